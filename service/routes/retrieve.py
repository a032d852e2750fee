"""POST /v1/retrieve: the passages that a question finds among those that the caller may read."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body

from retrieval.answer import retrieve
from retrieval.highlights import Shown, shown
from retrieval.passage import Passage
from retrieval.question import Question
from service.auth import principal_of, request_id_of
from service.bodies import FILTERS, RetrieveRequest, SignedRoot
from service.bodies import Question as Asked
from service.charging import ADMITS
from service.disconnect import while_connected
from service.openapi import PROBLEMS
from service.operation import require_own_tenant
from service.wiring import Services
from tenancy.errors import InvalidInput

EXAMPLES = [
    Example(summary="Passages", value={"query": "How long is the notice period?", "top_k": 3}),
    Example(summary="Among some documents", value={"query": "How long is the notice period?", "filter": FILTERS[0]}),
]


class SpanBody(msgspec.Struct, frozen=True):
    """Characters of the document's text, from `start` to `end`."""

    start: int
    end: int


class PassageBody(msgspec.Struct, frozen=True):
    """One chunk; `start` and `end` are character offsets into the document's text of that version.

    `chunk` names it also after edits elsewhere in the document. `context` are the headings above it and the header of
    its table, `place` is where it begins ("page 3"); `hidden` text is in the file, and not seen by who opens it.
    `snippet` is the stretch with most of the question's words, `highlights` are these words; both are offsets into the
    document's text, so that `text[span.start - start : span.end - start]` is what they mark.
    """

    document: str
    title: str
    version: str
    chunk: str
    start: int
    end: int
    text: str
    score: float
    context: str | None
    place: str | None
    hidden: bool
    snippet: SpanBody
    highlights: list[SpanBody]

    @classmethod
    def of(cls, passage: Passage, marked: Shown) -> PassageBody:
        return cls(
            **{name: getattr(passage, name) for name in cls.__struct_fields__ if hasattr(passage, name)},
            snippet=SpanBody(*marked.snippet),
            highlights=[SpanBody(*span) for span in marked.highlights],
        )


class AuditBody(msgspec.Struct, frozen=True):
    """The sequence number of this request's intent in the tenant's audit log."""

    seq: int


class RetrieveResponse(msgspec.Struct, frozen=True):
    """Passages, best first."""

    passages: list[PassageBody]
    audit: AuditBody
    request_id: str


def router(services: Services) -> Router:
    @post("/", status_code=200, opt={ADMITS: True}, summary="Find passages", responses=PROBLEMS)
    async def retrieve_passages(
        request: Request[Any, Any, Any],
        data: Annotated[RetrieveRequest, Body(examples=EXAMPLES)],
        signed_root: SignedRoot = None,
    ) -> RetrieveResponse:
        """The best passages for a question, among those that the caller may read and that `filter` describes; if
        `top_k` exist, `top_k` come.
        """
        principal = principal_of(request)
        await require_own_tenant(services.control, request, data.tenant)
        check_question(data)
        question = Question(
            query=data.query,
            request_id=request_id_of(request),
            top_k=data.top_k,
            mode=data.mode,
            filter=data.filter,
            signed_root=signed_root,
        )
        found = await while_connected(request.receive, retrieve(services.path, principal, question))
        marked = await services.workers.run(shown, found.asked, found.passages)
        return RetrieveResponse(
            passages=[PassageBody.of(*pair) for pair in zip(found.passages, marked, strict=True)],
            audit=AuditBody(found.audit_seq),
            request_id=found.request_id,
        )

    return Router("/retrieve", route_handlers=[retrieve_passages], tags=["questions"])


def check_question(asked: Asked) -> None:
    """What the schema cannot say. Raises `InvalidInput`."""
    if not asked.query.strip():
        raise InvalidInput("the question is empty", item="query")
