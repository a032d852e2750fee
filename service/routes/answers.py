"""POST /v1/answers: an answer with verified citations, as JSON or as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, Response, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body, FromQuery

from generation.prompt import Turn
from retrieval.answer import answer
from retrieval.citations import Citation
from retrieval.dry_run import preview
from retrieval.question import Answer, CacheReport, Delta, Question
from service.auth import QUERY, principal_of, request_id_of
from service.bodies import FILTERS, AnswerRequest, SignedRoot
from service.charging import ADMITS, one_look, refused_on_record
from service.disconnect import while_connected
from service.openapi import PROBLEMS
from service.operation import require_own_tenant
from service.problems import problem_of
from service.routes.preview import PreviewResponse
from service.routes.retrieve import AuditBody, check_question
from service.streaming import EventStream, event_bytes
from service.wiring import Services
from tenancy.errors import StrongroomError
from tenancy.identity import Principal
from tenancy.names import nfc_name

EXAMPLES = [
    Example(summary="A question", value={"query": "How long is the notice period?"}),
    Example(summary="From some documents", value={"query": "How long is the notice period?", "filter": FILTERS[1]}),
    Example(
        summary="A follow-up, streamed",
        value={
            "query": "And during probation?",
            "stream": True,
            "history": [
                {"role": "user", "content": "How long is the notice period?"},
                {"role": "assistant", "content": "Three months to the end of a quarter."},
            ],
        },
    ),
]


class CitationBody(msgspec.Struct, frozen=True):
    """`quote` stands verbatim from `start` to `end` (characters) in the document's text of that version, but for
    personal data that the tenant's contract takes out of it ("[email removed]"). `chunk` names the passage also after
    edits elsewhere in the document; `place` is where a person finds the quote ("page 3", "sheet Costs!A2:F40"), null
    for a format without places; `hidden` text is in the file, and not seen by who opens it.
    """

    source: str
    document: str
    title: str
    version: str
    chunk: str
    start: int
    end: int
    quote: str
    place: str | None
    hidden: bool

    @classmethod
    def of(cls, citation: Citation) -> CitationBody:
        return cls(**{name: getattr(citation, name) for name in cls.__struct_fields__})


class CacheBody(msgspec.Struct, frozen=True):
    """Whether a remembered answer was served. `age_s` is coarse: whole minutes, hours or days; `cached_from` is the id
    of the entry, by which `/v1/cache/entries` and the audit name it.
    """

    status: Literal["hit", "miss", "bypass", "refresh"]
    kind: Literal["exact", "semantic"] | None
    age_s: int | None
    cached_from: str | None
    certified: Literal["certified", "uncertified"] | None


class UsageBody(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int


class AnswerResponse(msgspec.Struct, frozen=True):
    """`finish` is "abstain" where the readable documents do not hold the answer: then `nearest` names the nearest
    titles and nothing is cited. `rewritten` is how a follow-up question was understood. `warnings` may hold
    "sources-separated" (passages with other readers were left out), "instructions-in-source" (a source speaks to the
    model), "hidden-text-in-source" (a source is not seen by who opens its document), "links-removed", "history-cut",
    "personal-data-removed" and "uncited" (an answer without a verified citation was withheld: guard rails of the
    contract). `request_id` and `created` (UTC epoch seconds) are those of this response, also where a remembered answer
    is served.
    """

    answer: str
    citations: list[CitationBody]
    finish: Literal["stop", "length", "budget", "abstain"]
    model: str
    rewritten: str | None
    nearest: list[str]
    warnings: list[str]
    cache: CacheBody
    usage: UsageBody
    audit: AuditBody
    request_id: str
    created: int

    @classmethod
    def of(cls, found: Answer) -> AnswerResponse:
        return cls(
            answer=found.text,
            citations=[CitationBody.of(citation) for citation in found.citations],
            finish=found.finish,
            model=found.model,
            rewritten=found.rewritten,
            nearest=list(found.nearest_titles),
            warnings=list(found.warnings),
            cache=CacheBody(
                found.cache.status, found.cache.kind, found.cache.age_s, found.cache.cached_from, found.cache.certified
            ),
            usage=UsageBody(found.usage.input, found.usage.output),
            audit=AuditBody(found.audit_seq),
            request_id=found.request_id,
            created=int(time.time()),
        )


def router(services: Services) -> Router:
    @post(
        "/",
        status_code=200,
        opt={QUERY: frozenset({"dry_run"}), ADMITS: True},
        summary="Answer a question",
        responses=PROBLEMS,
    )
    async def answer_question(
        request: Request[Any, Any, Any],
        data: Annotated[AnswerRequest, Body(examples=EXAMPLES)],
        signed_root: SignedRoot = None,
        dry_run: FromQuery[bool] = False,
    ) -> Response[AnswerResponse | PreviewResponse]:
        """An answer from the documents that the caller may read, with citations that were checked verbatim.

        With `stream` the response is `text/event-stream`: `delta` (text, not yet verified; a remembered answer comes
        in one), then `citation`, `usage` and `done` (the whole answer), or `error` (a problem document). Closing the
        connection ends the generation.

        With `dry_run=true` nothing is asked: the response says how the question would be answered, what that would take
        and cost, and how much room the caller's limits have.
        """
        principal = principal_of(request)
        await require_own_tenant(services.control, request, data.tenant)
        question = replace(question_of(data, request_id_of(request)), signed_root=signed_root)
        if dry_run:
            # The same body as of the question itself: whatever it says of streaming, this is one document.
            async with refused_on_record(services.path, principal, question.request_id):
                await one_look(services.path, principal, services.settings.admission.looks_per_minute)
            seen = await while_connected(request.receive, preview(services.path, principal, question))
            return Response(PreviewResponse.of(seen))
        if data.stream:
            return EventStream(  # type: ignore[return-value]
                lambda: _events(services, principal, question),
                failed=lambda error: event_bytes(problem_of(error, question.request_id), "error"),
            )
        found = await while_connected(request.receive, whole_answer(services, principal, question))
        return Response(AnswerResponse.of(found), headers={"Cache-Status": cache_status(found.cache)})

    return Router("/answers", route_handlers=[answer_question], tags=["questions"])


def question_of(data: AnswerRequest, request_id: str) -> Question:
    """The question as the path takes it. Raises `InvalidInput`."""
    check_question(data)
    return Question(
        query=data.query,
        request_id=request_id,
        top_k=data.top_k,
        mode=data.mode,
        filter=data.filter,
        template=data.template,
        model=data.model,
        adapter=data.adapter,
        max_tokens=data.max_tokens,
        cache=data.cache,
        history=tuple(Turn(turn.role, turn.content) for turn in data.history),
        feature=None if data.feature is None else nfc_name(data.feature, "feature"),
        root=None if data.root is None else nfc_name(data.root, "root id"),
    )


def cache_status(report: CacheReport) -> str:
    """The `Cache-Status` header (RFC 9211), with the coarse age as an extension parameter."""
    if report.status == "hit":
        detail = f"{report.kind}-{report.certified}" if report.certified else str(report.kind)
        return f"strongroom; hit; detail={detail}; age={report.age_s or 0}"
    forwarded = {"miss": "miss", "bypass": "bypass", "refresh": "request"}[report.status]
    return f"strongroom; fwd={forwarded}" + ("; stored" if report.stored else "")


async def whole_answer(services: Services, principal: Principal, question: Question) -> Answer:
    """The answer as a whole, without its deltas."""
    async with aclosing(answer(services.path, principal, question)) as events:
        done = [event.answer async for event in events if not isinstance(event, Delta)]
    if not done:
        raise StrongroomError("the answer path ended without an answer")
    return done[0]


async def _events(services: Services, principal: Principal, question: Question) -> AsyncGenerator[bytes, None]:
    async with aclosing(answer(services.path, principal, question)) as events:
        async for event in events:
            if isinstance(event, Delta):
                yield event_bytes({"text": event.text}, "delta")
                continue
            body = AnswerResponse.of(event.answer)
            for citation in body.citations:
                yield event_bytes(citation, "citation")
            yield event_bytes(body.usage, "usage")
            yield event_bytes(body, "done")
