"""What a question pays: its lease before anything is spent, and the settlement once it is known what was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from admission.gate import Estimate
from admission.lease import Lease, Price
from audit.trail import Trail
from metering.meter import Meter
from retrieval.plan import Opened
from retrieval.question import Answer, AnswerPath, Question
from retrieval.roots import BRANCH, belonging, draws_of
from tenancy.identity import Principal

if TYPE_CHECKING:
    from retrieval.steps import Asking


@asynccontextmanager
async def admitted(
    path: AnswerPath,
    principal: Principal,
    opened: Opened,
    question: Question,
    trail: Trail,
    meter: Meter,
    *,
    generates: bool = True,
) -> AsyncIterator[Lease]:
    """A lease for the question, under its request id; one that only retrieves has no answer to pay.

    Raises `LimitExceeded` and, for its root, `RootRefused` and `RootRequired`, having taken nothing.
    """
    root = belonging(path, principal, opened.tenant, question, trail)
    estimate = opened.plan.estimate if generates else Estimate(opened.plan.estimate.input_tokens, 0)
    price, model = price_of(meter, opened, generates=generates)
    async with path.admission.admit(
        principal,
        estimate,
        opened.tenant.contract,
        request_id=question.request_id,
        model=model,
        price=price,
        roots=await draws_of(path, principal, root, trail.log),
    ) as lease:
        if root is not None:
            trail.note(detail={BRANCH: root.branch})
        trail.course.waited(lease.waited_s)
        if lease.on_allowance:
            trail.note(detail={"admission": "allowance"})
        try:
            yield lease
        finally:
            # Of what ended early the limits count what the ledger books: else a question that its asker always leaves
            # before the answer would cost money, and never come to an end of it.
            if not lease.settled:
                read, written = meter.generated if generates else (_embedded(meter), 0)
                await lease.settle(read, written, meter.microunits)


async def settle(asking: Asking, finished: Answer) -> None:
    """Book what was used and note the answer's text; the trail and the lease end with their blocks."""
    await asking.lease.settle(finished.usage.input, finished.usage.output, asking.meter.microunits)
    asking.trail.note(answer=finished.text)


def _embedded(meter: Meter) -> int:
    """Tokens that were embedded: all that a question reads which only retrieves."""
    uses = [hop.metered for hop in meter.hops if hop.name == "embed"]
    return sum((use.computed if use.served is None else use.served)[0] for use in uses)


def price_of(meter: Meter, opened: Opened, *, generates: bool) -> tuple[Price, str]:
    """What a question costs with so many tokens of its prompt and its answer, all hops together; and the model."""
    model = opened.plan.route.identity.model if generates else ""
    name = opened.embedder.fingerprint.name
    hops = meter.prices.price("embed", name).of(opened.plan.estimate.input_tokens, 0)
    hops += meter.prices.price("retrieve", opened.engine).of(0, 0)
    generate = meter.prices.price("generate", model)

    def price(input_tokens: int, output_tokens: int) -> int:
        return hops + (generate.of(input_tokens, output_tokens) if model else 0)

    return price, model
