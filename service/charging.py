"""Every route draws on its caller's limits, unless it says why not: one place, so that a new route cannot be forgotten.

A route's `opt` says one of two things, or nothing: that it takes a lease of its own (`ADMITS`), or the reason why it
stays open to a caller whose limits are used up (`FREE`). Any other one counts as a request before it begins.

What stays open is no way to wear the service out: looks are counted by themselves, so that a budget never refuses them
and a flood of them is refused. What withdraws is not counted at all.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from admission.counters import Ask, Refused
from admission.gate import Estimate, Gate
from admission.lease import finished, refusal
from admission.limits import Amounts, Draw, Limits
from admission.scopes import user_scope
from audit.trail import Trail
from metering.meter import Tariff
from retrieval.question import AnswerPath
from service.edge import PRINCIPAL, REQUEST_ID
from tenancy.errors import StrongroomError, Unavailable
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle

ADMITS: Final = "admits"
FREE: Final = "free"

Afford = Callable[[int, str], Coroutine[Any, Any, None]]
"""Hold the money for so many tokens of a model. Raises `LimitExceeded`."""

_BYTES_OF_TOKEN: Final = 4
_MUCH: Final = 1_000_000_000

EVIDENCE: Final = "evidence does not wait for a budget: who saw what, and the proof of it"
WITHDRAWS: Final = "what is withdrawn must be gone now, whatever else was used up"
STANDING: Final = "it says which limit it is, and when there is room again"


class Charging(ASGIMiddleware):
    """Counts one request of the caller, behind `Authentication`. A refusal is on record as the action "admit"."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, path: AnswerPath, looks_per_minute: int) -> None:
        self._path = path
        self._looks = looks_per_minute

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        opt = scope["route_handler"].opt
        if ADMITS not in opt and opt.get(FREE) != WITHDRAWS:
            principal = scope["state"][PRINCIPAL]
            async with refused_on_record(self._path, principal, scope["state"][REQUEST_ID]):
                if FREE in opt:
                    await one_look(self._path, principal, self._looks)
                else:
                    await one_request(self._path, principal)
        await next_app(scope, receive, send)


@asynccontextmanager
async def refused_on_record(path: AnswerPath, principal: Principal, request_id: str) -> AsyncIterator[None]:
    """What the block refuses is an event; what it admits tells of itself later."""
    try:
        yield
    except StrongroomError:
        async with path.trail.open(principal, action="admit", request_id=request_id):
            raise


async def one_look(path: AnswerPath, principal: Principal, per_minute: int) -> None:
    """Count a look of this user, and nothing else. Raises `LimitExceeded` for a flood of them; where the counters are
    away looking goes on.
    """
    scope = user_scope(principal.tenant_id, f"looks of {principal.user_id or principal.user}")
    draw = Draw(scope, Limits(requests_per_minute=per_minute))
    counters = path.admission.counters
    ask = Ask(secrets.token_hex(16), principal.tenant_id, (draw,), Amounts(1), path.admission.lease_s)
    try:
        found = await counters.take(ask)
        await finished(counters.leave(ask.lease))
    except Unavailable:
        return
    if isinstance(found, Refused):
        raise refusal(found)


async def one_request(path: AnswerPath, principal: Principal) -> None:
    """Count a request that uses nothing but itself. Nothing is held while it runs: it is short, or bounded by threads
    of its own. Raises `LimitExceeded`.
    """
    tenant = await path.workers.run(path.tenants.open, principal)
    async with path.admission.admit(principal, Estimate(0, 0), tenant.contract):
        pass


@asynccontextmanager
async def loading(
    gate: Gate,
    tariff: Tariff,
    trail: Trail,
    principal: Principal,
    tenant: TenantHandle,
    *,
    model: str,
    size: int,
    request_id: str | None = None,
) -> AsyncIterator[Afford]:
    """Admit documents of `size` bytes that `model` embeds: a request, and what that costs of the month's money. Tokens
    a minute are those of questions: a large document has more of them than a minute has.

    How many tokens it has shows when it is parsed: what the block gets then holds the money for them, before they are
    embedded, or raises `LimitExceeded`.

    Raises `LimitExceeded`, having taken nothing, and `Unavailable` without a price list.
    """
    prices = tariff.meter(tenant.contract.usage).prices

    def cost(tokens: int, model: str) -> int:
        price = prices.price("embed", model)
        # Where it costs anything it needs something, so that a month that is spent takes no more documents.
        return max(price.of(tokens, 0), min(1, price.of(_MUCH, 0)))

    expected = cost(size // _BYTES_OF_TOKEN, model)
    admitted = gate.admit(
        principal, Estimate(0, 0), tenant.contract, request_id=request_id, price=lambda _read, _written: expected
    )
    async with admitted as lease:

        async def afford(tokens: int, model: str) -> None:
            await lease.afford(cost(tokens, model))

        try:
            yield afford
        finally:
            await lease.settle(0, 0, trail.microunits)
