"""POST /v1/feedback: what an asker says of an answer of their own."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body

from admission.gate import Estimate
from service.auth import principal_of
from service.bodies import FeedbackRequest
from service.charging import ADMITS
from service.feedback import tell
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.identity import Role

EXAMPLES = [
    Example(
        summary="An answer that was wrong",
        value={"answer_id": "0123456789abcdef0123456789abcdef", "verdict": "wrong_answer"},
    )
]


class FeedbackResponse(msgspec.Struct, frozen=True):
    """`removed`: the remembered answer was taken out of the cache and will not answer this question again."""

    answer_id: str
    verdict: str
    removed: bool


def router(services: Services) -> Router:
    @post("/", status_code=200, opt={ADMITS: True}, summary="Say what became of an answer", responses=PROBLEMS)
    async def give_feedback(
        request: Request[Any, Any, Any], data: Annotated[FeedbackRequest, Body(examples=EXAMPLES)]
    ) -> FeedbackResponse:
        """About an answer that the caller got: `wrong_hit` where a remembered answer does not fit the question (it is
        removed, and the two questions never share an answer again), `wrong_answer`, `edited` or `good`.
        """
        principal = principal_of(request)
        async with operation(services.control, request, "feedback", Role.READER, tenant=data.tenant) as trail:
            path = services.path
            tenant = await services.workers.run(path.tenants.open, principal)
            # A request like any other: it writes, and nobody may do so without end.
            async with path.admission.admit(principal, Estimate(0, 0), tenant.contract):
                await trail.intent()
                told = await services.workers.run(tell, path, principal, trail, data.answer_id, data.verdict)
            return FeedbackResponse(data.answer_id, data.verdict, told.removed)

    return Router("/feedback", route_handlers=[give_feedback], tags=["questions"])
