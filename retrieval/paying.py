"""What a question pays: its lease before anything is spent, and the settlement once it is known what was."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from admission.gate import Estimate
from admission.lease import Lease, Price
from metering.meter import Meter
from retrieval.plan import Opened
from retrieval.question import Answer, AnswerPath, Question
from tenancy.identity import Principal

if TYPE_CHECKING:
    from retrieval.steps import Asking


def admitted(
    path: AnswerPath,
    principal: Principal,
    opened: Opened,
    question: Question,
    meter: Meter,
    *,
    generates: bool = True,
) -> AbstractAsyncContextManager[Lease]:
    """A lease for the question, under its request id; one that only retrieves has no answer to pay.

    Raises `LimitExceeded`, having taken nothing.
    """
    estimate = opened.plan.estimate if generates else Estimate(opened.plan.estimate.input_tokens, 0)
    model = opened.plan.route.identity.model if generates else ""
    return path.admission.admit(
        principal,
        estimate,
        opened.tenant.contract,
        request_id=question.request_id,
        model=model,
        price=_price(meter, opened, model),
    )


async def settle(asking: Asking, finished: Answer) -> None:
    """Book what was used and note the answer's text; the trail and the lease end with their blocks."""
    await asking.lease.settle(finished.usage.input, finished.usage.output, asking.meter.microunits)
    asking.trail.note(answer=finished.text)


def _price(meter: Meter, opened: Opened, model: str) -> Price:
    """What a question costs with so many tokens of its prompt and its answer: all hops together."""
    name = opened.embedder.fingerprint.name
    hops = meter.prices.price("embed", name).of(opened.plan.estimate.input_tokens, 0)
    hops += meter.prices.price("retrieve", opened.engine).of(0, 0)
    generate = meter.prices.price("generate", model)

    def price(input_tokens: int, output_tokens: int) -> int:
        return hops + (generate.of(input_tokens, output_tokens) if model else 0)

    return price
