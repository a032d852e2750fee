"""The body of `POST /v1/answers?dry_run=true`: what a question would take, and how far limits are used."""

from __future__ import annotations

from typing import Literal

import msgspec

from admission.counters import Refused, Room
from admission.scopes import SHARED
from indexing.filters import canonical
from retrieval.dry_run import Preview
from service.ratelimit import told
from service.routes.retrieve import AuditBody
from tenancy.billing import Basis


class PlanBody(msgspec.Struct, frozen=True):
    """How the question would be answered; `rewritten` is how a follow-up was understood."""

    model: str
    adapter: str | None
    template: str
    top_k: int
    mode: Literal["dense", "lexical", "hybrid"]
    cache: Literal["default", "bypass", "refresh"]
    filter: str | None
    rewritten: str | None


class EstimateBody(msgspec.Struct, frozen=True):
    """Tokens that would be reserved: the prompt at its fullest, and an answer of the length that is expected of this
    user; `max_output_tokens` bounds the answer.
    """

    input_tokens: int
    output_tokens: int
    max_output_tokens: int


class PriceBody(msgspec.Struct, frozen=True):
    """Microunits of that estimate, and of the longest answer, under a price list that charges the `basis` tokens. A
    remembered answer costs less.
    """

    prices: str
    basis: Basis
    microunits: int
    max_microunits: int


class RoomBody(msgspec.Struct, frozen=True):
    """One limit of the caller's own: `used` with what requests in flight hold, of money in twentieths of the limit, and
    `left` of it now. It is all free again after `resets_s` seconds at the latest; 0 where requests in flight have to
    end, or nothing is used.
    """

    scope: str
    bound: str
    limit: int
    used: int
    left: int
    resets_s: float

    @classmethod
    def of(cls, room: Room) -> RoomBody:
        used = told(room.bound, room.limit, room.used)
        return cls(room.scope.kind, room.bound, room.limit, used, max(0, room.limit - used), round(room.resets_s, 3))


class RefusedBody(msgspec.Struct, frozen=True):
    """What would refuse the question now. Of limits over all tenants it says the scope alone."""

    scope: str
    bound: str | None
    limit: int | None
    used: int | None
    need: int | None

    @classmethod
    def of(cls, refused: Refused) -> RefusedBody:
        if refused.scope.kind in SHARED:
            return cls(refused.scope.kind, None, None, None, None)
        used = told(refused.bound, refused.limit, refused.used)
        return cls(refused.scope.kind, refused.bound, refused.limit, used, refused.need)


class PreviewResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was searched, generated or counted. Whether the answer is remembered is not looked up."""

    dry_run: Literal[True] = True
    admitted: bool
    refused: RefusedBody | None
    plan: PlanBody
    estimate: EstimateBody
    price: PriceBody
    room: list[RoomBody]
    audit: AuditBody
    request_id: str

    @classmethod
    def of(cls, found: Preview) -> PreviewResponse:
        plan, route = found.plan, found.plan.route
        return cls(
            admitted=found.refused is None,
            refused=None if found.refused is None else RefusedBody.of(found.refused),
            plan=PlanBody(
                model=route.identity.model,
                adapter=route.adapter,
                template=plan.template.name,
                top_k=plan.top_k,
                mode=plan.search_mode,
                cache=plan.cache_mode.value,
                filter=None if plan.where is None else canonical(plan.where),
                rewritten=plan.rewritten,
            ),
            estimate=EstimateBody(found.input_tokens, found.output_tokens, found.max_output_tokens),
            price=PriceBody(found.meter.prices.id, found.meter.basis, found.microunits, found.max_microunits),
            room=[RoomBody.of(room) for room in found.rooms],
            audit=AuditBody(found.audit_seq),
            request_id=found.request_id,
        )
