"""What every layer's examination works with, and the secrets that canary documents hold."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import msgspec

from service.attest.caller import Caller
from service.attest.canaries import Canary, Pair
from service.settings import AttestSettings, Settings

PROBES: Final = 40
LOAD: Final = 8
LOAD_PROBES: Final = 100
"""Of each arm."""
TIMING_PROBES: Final = 1_050
"""Of each arm: with fewer, chance alone reaches past the bound."""
MEMORY_ROUNDS: Final = 5

_CONSONANTS: Final = "bdfgklmnprstvz"
_VOWELS: Final = "aeiou"


class Options(msgspec.Struct, frozen=True):
    """`probes` of each kind in the cache, `timing` of each arm, `rounds` of each pool's memory, `load` clients of one
    tenant while the other asks `load_probes` questions. `log` is the file that the service's log lines go to, `adapter`
    a folder with an adapter that one of its pools can load.
    """

    probes: int = PROBES
    timing: int = TIMING_PROBES
    rounds: int = MEMORY_ROUNDS
    load: int = LOAD
    load_probes: int = LOAD_PROBES
    log: Path | None = None
    adapter: Path | None = None


def options_of(settings: AttestSettings) -> Options:
    """What the settings say, before a command says otherwise."""
    log, adapter = (Path(text).expanduser() if text else None for text in (settings.log_file, settings.adapter))
    return Options(probes=settings.probes, timing=settings.timing, load=settings.load, log=log, adapter=adapter)


@dataclass(frozen=True, slots=True)
class Stage:
    settings: Settings
    caller: Caller
    pair: Pair
    options: Options

    @property
    def left(self) -> Canary:
        return self.pair.left

    @property
    def right(self) -> Canary:
        return self.pair.right


def word(syllables: int = 5) -> str:
    """A random word that can be read aloud, and that no document has: 70 possible syllables each."""
    return "".join(secrets.choice(_CONSONANTS) + secrets.choice(_VOWELS) for _ in range(syllables)).capitalize()


def code_of(topic: str, secret: str) -> str:
    """What a canary document says."""
    return f"The access code of {topic} is {secret}."


def asked_about(topic: str) -> str:
    """The question that it answers, without its secret."""
    return f"What is the access code of {topic}?"


def text_of(response: httpx.Response) -> str:
    """All that a caller receives, to be searched: body and headers."""
    return response.text + str(dict(response.headers))
