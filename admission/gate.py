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
from admission.fair import Party
from admission.lease import Lease, Price, finished, refusal
from admission.limits import Amounts, Budget, Draw, Limits, TenantLimits
from admission.looking import Look, own, refused_by, rooms_of
from admission.months import Months, Spent
from admission.scopes import DEPLOYMENT, SHARED, key_scope, model_scope, tenant_scope, user_scope
from admission.waiting import WaitingRoom
from tenancy.errors import InvalidInput
from tenancy.identity import Principal

LEASE_S: Final = 30.0
"""A lease without a sign of life for so long is settled by the reaper; `admission.reaper` gives one every third."""
WAIT_S: Final = 10.0
"""The longest wait of requests that wait at a limit, where nothing else is said."""
NO_LIMITS: Final = Limits()

ROOMS: ContextVar[list[Room] | None] = ContextVar("admission_rooms", default=None)
"""Where it is set, `admit` adds how far the caller's own limits are used; for the headers of an answer."""

Number = TypeVar("Number", int, float)
_log = logging.getLogger(__name__)


class Agreed(Protocol):
    """What a contract says about limits."""

    def limits(self, deployment: TenantLimits) -> TenantLimits: ...

    @property
    def weight(self) -> int:
        """The tenant's share, relative to other tenants', where several wait."""
        ...


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

    `alert` is told when a month's money reaches its soft share, and its end; it must not wait. `spent` reads what a
    month has cost before this process counted; without it every month begins with nothing.
    """

    def __init__(
        self,
        counters: Counters,
        limits_for: Callable[[str], TenantLimits],
        *,
        shared: SharedLimits | None = None,
        alert: Callable[[Crossing], None] | None = None,
        lease_s: float = LEASE_S,
        spent: Spent | None = None,
        queue: int = 256,
    ) -> None:
        self.counters = counters
        self.lease_s = lease_s
        self.live: dict[str, Lease] = {}
        self._limits_for = limits_for
        self._shared = shared or SharedLimits()
        self._alert = alert
        self._expected = ExpectedOutput()
        self._months = None if spent is None else Months(counters, spent)
        self._room = WaitingRoom(self._take, counters.leave, most=queue)

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
        refused: at once, or after the longest wait where the contract has requests wait.
        """
        price = price or _free
        limits = self._limits_of(principal.tenant_id, agreed)
        draws = (*roots, *self._draws(principal, limits, model))
        need, ceiling, most = self._need(principal, estimate, draws, model, price)
        ask = Ask(
            request_id or secrets.token_hex(16), principal.tenant_id, draws, need, self.lease_s, _allowance(limits)
        )
        within = _least(draw.limits.deadline_s for draw in draws)
        begun = time.monotonic()
        if self._months is not None:
            await self._months.begin(draws)
        entry = None
        if limits.full == "queue" or self._room.waits_for(draws):
            weight = 1.0 if agreed is None else float(agreed.weight)
            longest = (limits.wait_s or WAIT_S) if limits.full == "queue" else 0.0
            entry = await self._room.enter(
                ask,
                Party(principal.tenant_id, principal.user_id, weight, principal.work),
                longest if within is None else min(longest, within),
            )
        granted = await self._take(ask) if entry is None else entry.found
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
        lease.waited_s = 0.0 if entry is None else entry.waited_s
        self.live[lease.id] = lease
        try:
            yield lease
        finally:
            self.live.pop(lease.id, None)
            try:
                await lease.leave()
            finally:
                if entry is not None:
                    entry.leave(lease.used.input, lease.used.output)
                self._room.wake()
                if lease.output:
                    self._expected.learn(principal.tenant_id, principal.user_id, model, lease.output)
                self.tell(lease.crossed)

    async def look(
        self,
        principal: Principal,
        estimate: Estimate,
        agreed: Agreed | None = None,
        *,
        model: str = "",
        price: Price | None = None,
        roots: tuple[Draw, ...] = (),
    ) -> Look:
        """What `admit` would make of the same request now; nothing is taken."""
        draws = (*roots, *self._draws(principal, self._limits_of(principal.tenant_id, agreed), model))
        need, ceiling, _ = self._need(principal, estimate, draws, model, price or _free)
        if self._months is not None:
            await self._months.begin(draws)
        rooms = await rooms_of(self.counters, draws)
        return Look(need, ceiling, own(rooms), refused_by(rooms, need))

    async def use(self, tenant_id: str, user_id: str | None = None) -> Use:
        """What a tenant, or one of its users, uses now."""
        scope = tenant_scope(tenant_id) if user_id is None else user_scope(tenant_id, user_id)
        return await self.counters.use(scope)

    async def begin_again(self, draws: Iterable[Draw]) -> None:
        """The counters have lost what they kept: tell them what months have cost, those of `draws` now."""
        if self._months is not None:
            await self._months.again(draws)

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

    def _need(
        self, principal: Principal, estimate: Estimate, draws: Iterable[Draw], model: str, price: Price
    ) -> tuple[Amounts, int, int | None]:
        """What is needed to begin, and the most output tokens: of this request, and of any."""
        most = _least(draw.limits.max_output_tokens for draw in draws)
        ceiling = estimate.output_tokens if most is None else min(estimate.output_tokens, most)
        output = self._expected.of(principal.tenant_id, principal.user_id, model, ceiling) if ceiling else 0
        need = Amounts(1, estimate.input_tokens, output, price(estimate.input_tokens, output))
        return need, ceiling, most

    def _limits_of(self, tenant: str, agreed: Agreed | None) -> TenantLimits:
        limits = self._limits_for(tenant)
        return limits if agreed is None else agreed.limits(limits)

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


def _allowance(limits: TenantLimits) -> Budget | None:
    """What the tenant may use while a store of the counters is away."""
    away = limits.away
    return Budget(away.requests, away.tokens) if away is not None and away.policy == "allowance" else None


def _tell_rooms(granted: Granted) -> None:
    rooms = ROOMS.get()
    if rooms is not None:
        rooms[:] = [room for room in granted.rooms if room.scope.kind not in SHARED]


def _least(amounts: Iterable[Number | None]) -> Number | None:
    return min((amount for amount in amounts if amount is not None), default=None)


def _free(_input_tokens: int, _output_tokens: int) -> int:
    return 0
