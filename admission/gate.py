"""Admission: nothing is dispatched before it is paid for. Requests enter here, and nowhere else.

A request draws on its user, its tenant and its key, on the model and the deployment where those have limits, and on
the roots that it belongs to. All limits of all of them are checked, then taken, in one step of the counters, so that a
refusal consumes nothing and requests in flight can never together exceed a limit.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from admission.counters import Ask, Counters, Crossing, Granted, Refused, Room, Use
from admission.expected import ExpectedOutput
from admission.lease import Lease, Price, finished, refusal
from admission.limits import Amounts, Draw, Limits, TenantLimits
from admission.scopes import DEPLOYMENT, SHARED, key_scope, model_scope, tenant_scope, user_scope
from tenancy.errors import InvalidInput
from tenancy.identity import Principal

LEASE_S: Final = 30.0
"""A lease without a sign of life for so long is settled by the reaper; `admission.reaper` gives one every third."""
NO_LIMITS: Final = Limits()

ROOMS: ContextVar[list[Room] | None] = ContextVar("admission_rooms", default=None)
"""Where it is set, `admit` adds how far the caller's own limits are used; for the headers of an answer."""

Number = TypeVar("Number", int, float)
_log = logging.getLogger(__name__)


class Agreed(Protocol):
    """What a contract says about limits."""

    def limits(self, deployment: TenantLimits) -> TenantLimits: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a request will use: tokens to read, and to write at most."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if min(self.input_tokens, self.output_tokens) < 0:
            raise InvalidInput("a number of tokens is never negative", item="tokens")


class SharedLimits(msgspec.Struct, frozen=True):
    """Limits over all tenants: of the deployment, and of models by name."""

    deployment: Limits = NO_LIMITS
    models: Mapping[str, Limits] = {}


class Gate:
    """Admits requests. `limits_for` gives a tenant's limits from memory: it is called on every request.

    `alert` is told when a month's money reaches its soft share, and its end; it must not wait.
    """

    def __init__(
        self,
        counters: Counters,
        limits_for: Callable[[str], TenantLimits],
        *,
        shared: SharedLimits | None = None,
        alert: Callable[[Crossing], None] | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        self.counters = counters
        self.lease_s = lease_s
        self.live: dict[str, Lease] = {}
        self._limits_for = limits_for
        self._shared = shared or SharedLimits()
        self._alert = alert
        self._expected = ExpectedOutput()

    @asynccontextmanager
    async def admit(
        self,
        principal: Principal,
        estimate: Estimate,
        agreed: Agreed | None = None,
        *,
        request_id: str | None = None,
        model: str = "",
        price: Price | None = None,
        roots: tuple[Draw, ...] = (),
    ) -> AsyncIterator[Lease]:
        """Hold a lease for the block, under `request_id`; limits that were `agreed` take the place of the deployment's.

        `price` is what the tokens of `model` cost. Raises `LimitExceeded`, having taken nothing, naming the scope that
        refused.
        """
        limits = self._limits_for(principal.tenant_id)
        if agreed is not None:
            limits = agreed.limits(limits)
        price = price or _free
        draws = (*roots, *self._draws(principal, limits, model))
        most = _least(draw.limits.max_output_tokens for draw in draws)
        ceiling = estimate.output_tokens if most is None else min(estimate.output_tokens, most)
        who = (principal.tenant_id, principal.user_id, model)
        output = self._expected.of(*who, ceiling) if ceiling else 0
        need = Amounts(1, estimate.input_tokens, output, price(estimate.input_tokens, output))
        ask = Ask(request_id or secrets.token_hex(16), principal.tenant_id, draws, need, self.lease_s)
        within = _least(draw.limits.deadline_s for draw in draws)
        begun = time.monotonic()
        granted = await self._take(ask)
        if isinstance(granted, Refused):
            raise refusal(granted)
        _tell_rooms(granted)
        lease = Lease(
            self.counters,
            granted,
            msgspec.structs.replace(need, requests=0),
            ceiling=ceiling,
            max_output_tokens=most,
            deadline=None if within is None else begun + within,
            price=price,
        )
        self.live[lease.id] = lease
        try:
            yield lease
        finally:
            self.live.pop(lease.id, None)
            try:
                await lease.leave()
            finally:
                if lease.output:
                    self._expected.learn(*who, lease.output)
                self.tell(lease.crossed)

    async def use(self, tenant_id: str, user_id: str | None = None) -> Use:
        """What a tenant, or one of its users, uses now."""
        scope = tenant_scope(tenant_id) if user_id is None else user_scope(tenant_id, user_id)
        return await self.counters.use(scope)

    def tell(self, crossed: list[Crossing] | tuple[Crossing, ...]) -> None:
        for crossing in crossed:
            _log.warning(
                "a budget has reached %d %% (%s of tenant %s, %s)",
                round(100 * crossing.share),
                crossing.scope.kind,
                crossing.scope.tenant or "none",
                crossing.month,
            )
            if self._alert is not None:
                self._alert(crossing)

    async def _take(self, ask: Ask) -> Granted | Refused:
        """Take, and give back at once what was granted to a caller who was cancelled meanwhile."""
        try:
            return await self.counters.take(ask)
        except BaseException:
            await finished(self.counters.leave(ask.lease))
            raise

    def _draws(self, principal: Principal, limits: TenantLimits, model: str) -> list[Draw]:
        tenant = principal.tenant_id
        draws = [Draw(tenant_scope(tenant), limits.tenant)]
        if principal.user_id:
            draws.insert(0, Draw(user_scope(tenant, principal.user_id), limits.user))
        if limits.key != NO_LIMITS and principal.method == "api_key":
            draws.append(Draw(key_scope(tenant, principal.credential_id), limits.key))
        if model in self._shared.models:
            draws.append(Draw(model_scope(model), self._shared.models[model]))
        if self._shared.deployment != NO_LIMITS:
            draws.append(Draw(DEPLOYMENT, self._shared.deployment))
        return draws


def _tell_rooms(granted: Granted) -> None:
    rooms = ROOMS.get()
    if rooms is not None:
        rooms[:] = [room for room in granted.rooms if room.scope.kind not in SHARED]


def _least(amounts: Iterable[Number | None]) -> Number | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _free(_input_tokens: int, _output_tokens: int) -> int:
    return 0
