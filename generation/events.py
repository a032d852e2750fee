"""Chat completion events as they come over the wire, and what a stream adds up to.

Source: OpenAI's chat completion chunk object, and the recorded events of SGLang 0.5.23 in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from generation.generator import Finish, FinishReason, Usage

_LONGEST_TOKEN: Final = 256
"""Characters; the tokens of known models have half as many at most."""
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=100_000_000)]
"""What a server may count: another number would be booked, and stand in the audit."""


class MalformedEvent(ValueError):
    """An event that is not of the protocol."""


class WrongModel(MalformedEvent):
    """An event of another model than the one asked for."""


class ErrorEvent(ValueError):
    """An event by which the server reports an error, with its code where that is a number.

    SGLang reports a full queue this way: status 200, then an error event with the code 503.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the server reported an error (code {code})")
        self.code = code


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta
    index: int = 0
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    prompt_tokens_details: _PromptDetails | None = None


class _Error(msgspec.Struct, frozen=True):
    code: int | str | None = None


class _Chunk(msgspec.Struct, frozen=True):
    model: str | None = None
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | str | None = None


@dataclass(frozen=True, slots=True)
class ChatEvent:
    text: str
    finish: str | None
    usage: Usage | None


def decode_event(data: str, model: str | None) -> ChatEvent:
    """One event's payload; `model` is the name that it must carry, if any.

    Raises `MalformedEvent` and `ErrorEvent`.
    """
    try:
        chunk = msgspec.json.decode(data.encode("utf-8", "replace"), type=_Chunk)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedEvent("an event is not a chat completion chunk") from None
    if chunk.error is not None:
        code = chunk.error.code if isinstance(chunk.error, _Error) else None
        raise ErrorEvent(code if isinstance(code, int) else None)
    if not chunk.choices and chunk.usage is None:
        raise MalformedEvent("an event holds neither text nor usage")
    if model is not None and chunk.model != model:
        raise WrongModel("an event comes from another model than the one asked for")
    choice = next((choice for choice in chunk.choices if choice.index == 0), None)
    return ChatEvent(
        text=(choice.delta.content or "") if choice else "",
        finish=choice.finish_reason if choice else None,
        usage=_usage(chunk.usage) if chunk.usage else None,
    )


def _usage(usage: _Usage) -> Usage:
    details = usage.prompt_tokens_details
    return Usage(usage.prompt_tokens, (details.cached_tokens or 0) if details else 0, usage.completion_tokens)


@dataclass(slots=True)
class StreamTotals:
    """What one attempt has brought so far. `counted`: `usage` came with or after the finish reason."""

    engine_request: str
    salted: bool
    begun: bool = False
    finish_reason: str | None = None
    usage: Usage | None = None
    counted: bool = False
    _texts: list[str] = field(default_factory=list)
    _length: int = 0

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def note(self, event: ChatEvent, max_tokens: int) -> None:
        """Raises `MalformedEvent` where the text is longer than `max_tokens` can be."""
        self._length += len(event.text)
        if self._length > _LONGEST_TOKEN * max_tokens:
            raise MalformedEvent("the text goes on behind the limit of tokens")
        self.begun = True
        self._texts.append(event.text)
        self.finish_reason = event.finish or self.finish_reason
        if event.usage is not None:
            self.usage, self.counted = event.usage, self.finish_reason is not None

    def complete(self) -> None:
        """The end of the stream; raises `MalformedEvent` where no finish reason came before it."""
        if self.finish_reason is None:
            raise MalformedEvent("the stream ended without a finish reason")

    def finish(self, estimate: tuple[int, int], failed: str | None) -> Finish:
        """The last piece. Usage is the server's last count, be it from before its end; without any, `estimate` (input,
        output tokens).
        """
        usage = self.usage or Usage(input=estimate[0], output=estimate[1])
        detail = failed
        if detail is None and self.finish_reason not in {"stop", "length"}:
            detail = f"the generator stopped for another reason ({self.finish_reason})"
        reason: FinishReason = "error" if detail else ("length" if self.finish_reason == "length" else "stop")
        return Finish(reason, usage, (), detail, self.engine_request, self.salted, counted=self.counted)
