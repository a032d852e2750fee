"""The port that every generator implements, and the pieces of an answer that it streams.

A generation is an asynchronous iterator: any number of `Delta`, then exactly one `Finish`. Before the first
`Delta` a failure is raised (`Unavailable`, `GeneratorRefused`, `InvalidInput`); after it the iterator ends with
`Finish(reason="error")`, since part of the answer may have been shown and its tokens must be paid for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from generation.prompt import Prompt
from tenancy.errors import Unavailable

_MESSAGE_OVERHEAD = 8

FinishReason = Literal["stop", "length", "budget", "abstain", "error"]


class GeneratorRefused(Unavailable):
    """The generator's server answered, and refused: a wrong key, version, model or request."""

    told = "the model's server refused the request"


class Misfit(GeneratorRefused):
    """This server cannot serve at all, which no repetition mends: a wrong key, version, model or answer."""


class Rejected(GeneratorRefused):
    """The server refused this one request, and is well."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What produced an answer; each part belongs to the cache's composite identity.

    `adapter` is `None` without one, else an opaque name that changes with its revision. `temperature` above 0 draws
    the words by chance; such an answer is never remembered.
    """

    model: str
    revision: str
    tokenizer: str
    adapter: str | None = None
    temperature: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens; `cached_input` counts those of `input` that the engine took from its KV memory."""

    input: int = 0
    cached_input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Quote:
    """A span that the generator copied: `text == source.text[start:end]` of the prompt source `key`."""

    key: str
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Delta:
    """The next characters of the answer. Unverified. `usage` is the engine's own count so far, where it says one."""

    text: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    """The last piece.

    `detail` says in words why an answer ended in error. `engine_request` is the id under which the engine knows
    the request; `salted` says whether a KV salt was in force, `waited_s` how long the request stood in a queue of ours.
    `counted`: `usage` is the engine's count at its end, and not one from before, or of ours.
    """

    reason: FinishReason
    usage: Usage
    quotes: tuple[Quote, ...] = ()
    detail: str | None = None
    engine_request: str | None = None
    salted: bool = field(default=True)
    waited_s: float = 0.0
    counted: bool = True


Piece = Delta | Finish


class Generator(Protocol):
    """One model behind one endpoint, or none at all."""

    @property
    def identity(self) -> ModelIdentity: ...

    @property
    def salted(self) -> bool:
        """Whether answers of one salt can never reuse another salt's KV memory."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text`; an estimate errs upwards."""
        ...

    def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        """Stream an answer of at most `max_tokens`.

        `deadline` is an instant of `time.monotonic()` (seconds). Close the iterator (`contextlib.aclosing`) to
        give up early: the engine then stops within a second.
        """
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


def prompt_tokens(prompt: Prompt, count: Callable[[str], int]) -> int:
    """Tokens of the whole prompt, with what a chat template adds around each message and the answer's opening."""
    counted = sum(count(message.content) for message in prompt.messages)
    return counted + _MESSAGE_OVERHEAD * (len(prompt.messages) + 1)
