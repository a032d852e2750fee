"""OpenAI's chat completion and its chunks: https://platform.openai.com/docs/api-reference/chat/object.

What they have no place for stands in one field more, `strongroom`, on the completion and on the last chunk with a
choice; clients ignore it. Tokens that an engine took from its memory are not told (`prompt_tokens_details`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from generation.generator import Usage
from retrieval.question import Answer
from service.routes.answers import AnswerResponse, CacheBody, CitationBody
from service.routes.retrieve import AuditBody

End = Literal["stop", "length", "budget", "abstain"]
Ended = Literal["stop", "length"]

_ENDED: Final[dict[End, Ended]] = {"stop": "stop", "abstain": "stop", "length": "length", "budget": "length"}


class Provenance(msgspec.Struct, frozen=True):
    """What `POST /v1/answers` says of the same answer: there every field is described. `model` is the one that
    answered, also where it took over from the one that was asked for.
    """

    citations: list[CitationBody]
    finish: End
    model: str
    rewritten: str | None
    nearest: list[str]
    warnings: list[str]
    cache: CacheBody
    audit: AuditBody
    request_id: str

    @classmethod
    def of(cls, answer: AnswerResponse) -> Provenance:
        return cls(**{name: getattr(answer, name) for name in cls.__struct_fields__})


class CompletionUsage(msgspec.Struct, frozen=True):
    """Tokens of the prompt with its sources, and of the answer; none where a remembered answer is served."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, usage: Usage) -> CompletionUsage:
        return cls(usage.input, usage.output, usage.input + usage.output)


class CompletionMessage(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class CompletionChoice(msgspec.Struct, frozen=True):
    message: CompletionMessage
    finish_reason: Ended
    index: int = 0
    logprobs: None = None


class Completion(msgspec.Struct, frozen=True):
    """An answer. `created` is in UTC epoch seconds; `model` is the name that the request gave."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: CompletionUsage
    strongroom: Provenance
    object: Literal["chat.completion"] = "chat.completion"


class ChunkDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True):
    delta: ChunkDelta
    finish_reason: Ended | None = None
    index: int = 0
    logprobs: None = None


class Chunk(msgspec.Struct, frozen=True):
    """A piece of an answer. Where the usage was asked for, each has the field, and the last one tells it."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | UnsetType | None = UNSET
    strongroom: Provenance | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


@dataclass(frozen=True, slots=True)
class Completing:
    """One completion on its way: what all of its chunks have in common."""

    request_id: str
    created: int
    model: str
    include_usage: bool = False

    def whole(self, found: Answer) -> Completion:
        return Completion(
            id=self._id,
            created=self.created,
            model=self.model,
            choices=[CompletionChoice(CompletionMessage(found.text), _ENDED[found.finish])],
            usage=CompletionUsage.of(found.usage),
            strongroom=Provenance.of(AnswerResponse.of(found)),
        )

    def opening(self) -> Chunk:
        return self._chunk(ChunkChoice(ChunkDelta(role="assistant", content="")))

    def text(self, text: str) -> Chunk:
        return self._chunk(ChunkChoice(ChunkDelta(content=text)))

    def closing(self, found: Answer) -> Chunk:
        chunk = self._chunk(ChunkChoice(ChunkDelta(), _ENDED[found.finish]))
        return msgspec.structs.replace(chunk, strongroom=Provenance.of(AnswerResponse.of(found)))

    def used(self, found: Answer) -> Chunk:
        return msgspec.structs.replace(self._chunk(), usage=CompletionUsage.of(found.usage))

    @property
    def _id(self) -> str:
        return f"chatcmpl-{self.request_id}"

    def _chunk(self, *choices: ChunkChoice) -> Chunk:
        return Chunk(self._id, self.created, self.model, list(choices), None if self.include_usage else UNSET)
