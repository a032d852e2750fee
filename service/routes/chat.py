"""POST /v1/chat/completions: the answers of /v1/answers for programs that speak OpenAI's API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from litestar import Request, Response, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body

from retrieval.answer import answer
from retrieval.question import AnswerEvent, Delta, Done, Question
from service.auth import principal_of, request_id_of
from service.bodies import REFUSED_BODY, SignedRoot
from service.charging import ADMITS
from service.disconnect import while_connected
from service.openai_errors import ERRORS, NoSuchModel, body_of
from service.openai_request import ChatRequest, explained, question_of, recorded_field
from service.problems import problem_of
from service.routes.answers import cache_status
from service.routes.completions import Completing, Completion
from service.streaming import EventStream, event_bytes
from service.wiring import Services
from tenancy.errors import Forbidden, InvalidInput, NotFound, StrongroomError
from tenancy.identity import Principal, Role

END = b"data: [DONE]\n\n"

EXAMPLES = [
    Example(
        summary="A question",
        value={"model": "extractive-1", "messages": [{"role": "user", "content": "How long is the notice period?"}]},
    ),
    Example(
        summary="A follow-up, streamed",
        value={
            "model": "extractive-1",
            "stream": True,
            "stream_options": {"include_usage": True},
            "messages": [
                {"role": "user", "content": "How long is the notice period?"},
                {"role": "assistant", "content": "Three months to the end of a quarter."},
                {"role": "user", "content": "And during probation?"},
            ],
        },
    ),
]


def router(services: Services) -> Router:
    async def refuse(request: Request[Any, Any, Any], error: InvalidInput) -> None:
        """Raise `error`, on record: among what is refused are fields that reach for another's memory in an engine."""
        await _refuse(services, request, explained(error), recorded_field(error))

    @post(
        "/",
        status_code=200,
        summary="Answer a conversation",
        responses=ERRORS,
        opt={REFUSED_BODY: refuse, ADMITS: True},
    )
    async def complete(
        request: Request[Any, Any, Any],
        data: Annotated[ChatRequest, Body(examples=EXAMPLES)],
        signed_root: SignedRoot = None,
    ) -> Response[Completion]:
        """An answer from the documents that the caller may read, in the form of OpenAI's chat completions; errors are
        in OpenAI's form, too. `strongroom` holds the citations.

        With `stream` the response is `text/event-stream`: chunks of text, not yet verified, then one with the reason
        of the end and the citations, one with the usage if it was asked for, and `[DONE]`; or an error. Closing the
        connection ends the generation.
        """
        principal, request_id = principal_of(request), request_id_of(request)
        try:
            question = replace(question_of(data, principal, request_id), signed_root=signed_root)
        except (InvalidInput, Forbidden) as error:
            await _refuse(services, request, error, recorded_field(error))
            raise
        usage = data.stream_options is not None and bool(data.stream_options.include_usage)
        completing = Completing(request_id, int(time.time()), data.model, usage)
        if data.stream:
            return EventStream(  # type: ignore[return-value]
                lambda: _chunks(services, principal, question, completing),
                failed=lambda error: event_bytes(body_of(problem_of(error, request_id))),
            )
        done = await while_connected(request.receive, _whole(services, principal, question))
        return Response(completing.whole(done.answer), headers={"Cache-Status": cache_status(done.answer.cache)})

    return Router("/chat/completions", route_handlers=[complete], tags=["questions"])


async def _refuse(services: Services, request: Request[Any, Any, Any], error: StrongroomError, field: str) -> None:
    principal = principal_of(request)
    async with services.control.trail.open(principal, action="answer", request_id=request_id_of(request)) as trail:
        principal.require(Role.READER)
        trail.note(detail={"field": field})
        raise error


async def _answered(services: Services, principal: Principal, question: Question) -> AsyncGenerator[AnswerEvent, None]:
    """The events of the answer path; what it refuses is told by the fields that a client knows."""
    try:
        async with aclosing(answer(services.path, principal, question)) as events:
            async for event in events:
                yield event
    except NotFound as error:
        if not _names(question.model or "", error.item or ""):
            raise
        raise NoSuchModel(error.reason, item="model", remedy=error.remedy) from None
    except InvalidInput as error:
        if error.item == "query":
            error.item = "messages"
        raise


def _names(model: str, part: str) -> bool:
    """Whether `part` is `model`, its base or its adapter."""
    return model == part or model.startswith(f"{part}:") or model.endswith(f":{part}")


async def _whole(services: Services, principal: Principal, question: Question) -> Done:
    async with aclosing(_answered(services, principal, question)) as events:
        done = [event async for event in events if isinstance(event, Done)]
    if not done:
        raise StrongroomError("the answer path ended without an answer")
    return done[0]


async def _chunks(
    services: Services, principal: Principal, question: Question, completing: Completing
) -> AsyncGenerator[bytes, None]:
    opened = False
    async with aclosing(_answered(services, principal, question)) as events:
        async for event in events:
            if not opened:
                # Only now: an error before it has a status of its own.
                opened = True
                yield event_bytes(completing.opening())
            if isinstance(event, Delta):
                yield event_bytes(completing.text(event.text))
                continue
            yield event_bytes(completing.closing(event.answer))
            if completing.include_usage:
                yield event_bytes(completing.used(event.answer))
            yield END
