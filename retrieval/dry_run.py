"""What a question would take, without asking it: nothing is embedded, searched, generated, remembered or counted.

Memory is not looked into either: whether an answer is remembered would tell what others asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.counters import Refused, Room
from metering.meter import Meter
from retrieval import paying, steps
from retrieval.plan import Plan
from retrieval.question import AnswerPath, Question
from retrieval.roots import belonging, draws_of
from tenancy.identity import Principal, Role


@dataclass(frozen=True, slots=True)
class Preview:
    """`output_tokens` are expected, of `max_output_tokens` at most; microunits likewise, under the meter's prices.

    `rooms` are the caller's own limits as they stand, without this question. `refused` is what would refuse it now.
    """

    plan: Plan
    meter: Meter
    input_tokens: int
    output_tokens: int
    max_output_tokens: int
    microunits: int
    max_microunits: int
    rooms: tuple[Room, ...]
    refused: Refused | None
    audit_seq: int
    request_id: str


async def preview(path: AnswerPath, principal: Principal, question: Question) -> Preview:
    """Plan `question` as `retrieval.answer.answer` would, and look how far limits are used. On record as a look.

    Raises `Forbidden`, `NotFound`, `InvalidInput`, `RootRefused` and `AuditUnavailable`, but not `LimitExceeded`.
    """
    async with path.trail.open(
        principal, action="answer.preview", request_id=question.request_id, root=question.root
    ) as trail:
        steps.note_question(trail, question)
        principal.require(Role.READER)
        opened = await steps.opened(path, principal, question)
        steps.note_plan(trail, opened.plan, path.settings.revision)
        steps.require_feature(opened.tenant, question)
        meter = path.tariff.meter(opened.tenant.contract.usage)
        root = belonging(path, principal, opened.tenant, question, trail)
        price, model = paying.price_of(meter, opened, generates=True)
        look = await path.admission.look(
            principal,
            opened.plan.estimate,
            opened.tenant.contract,
            model=model,
            price=price,
            roots=await draws_of(path, principal, root, trail.log),
        )
        read = opened.plan.estimate.input_tokens
        seq = await trail.intent()
        return Preview(
            plan=opened.plan,
            meter=meter,
            input_tokens=read,
            output_tokens=look.need.output,
            max_output_tokens=look.ceiling,
            microunits=look.need.money,
            max_microunits=price(read, look.ceiling),
            rooms=look.rooms,
            refused=look.refused,
            audit_seq=seq,
            request_id=question.request_id,
        )
