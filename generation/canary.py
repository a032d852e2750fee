"""A mark in every system message that no answer may hold: where one does, the model gave its instructions away."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final

from generation.output import Withheld
from tenancy.keys import keyed_hash

_LENGTH: Final = 20


def canary(key: bytes, template_revision: str) -> str:
    """The mark of one template of one tenant, 22 letters and digits: the same in each of its prompts, so that these
    share KV memory, and unknown to whoever writes documents. `key` is the tenant's for this purpose.
    """
    return "zq" + keyed_hash(key, "prompt-canary", template_revision).hex()[:_LENGTH]


class CanaryCheck:
    """Withholds an answer that holds the mark, also in other forms of its letters (capitals, full width, mathematical)
    or with spaces and signs in between.

    It holds back what may be the mark's beginning.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark.casefold()
        self._held = ""
        # The letters and digits of what is held, and where they stand there: a piece is looked through once.
        self._plain = ""
        self._places: list[int] = []
        self._found = False

    @property
    def detail(self) -> Mapping[str, int | bool]:
        return {"canary": True} if self._found else {}

    @property
    def warnings(self) -> tuple[str, ...]:
        return ()

    def feed(self, text: str) -> str:
        held, plain, places = self._held + text, self._plain, self._places
        for at, character in enumerate(text, len(self._held)):
            letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", character).lower()))
            plain += letters
            places += [at] * len(letters)
        if self._mark in plain:
            self._found = True
            raise Withheld("the answer gave the model's instructions away", item="answer", remedy="ask in other words")
        most = min(len(self._mark) - 1, len(plain))
        begun = next((count for count in range(most, 0, -1) if plain.endswith(self._mark[:count])), 0)
        cut = places[-begun] if begun else len(held)
        self._held, self._plain = held[cut:], plain[len(plain) - begun :]
        self._places = [at - cut for at in places[len(places) - begun :]]
        return held[:cut]

    def flush(self) -> str:
        held, self._held, self._plain, self._places = self._held, "", "", []
        return held
