"""Admission: nothing is dispatched before it is paid for. Requests enter here, and nowhere else.

A request draws on its user, its tenant and its key, on the model and the deployment where those have limits, and on
the roots that it belongs to. All limits of all of them are checked, then taken, in one step of the counters, so that a
refusal consumes nothing and requests in flight can never together exceed a limit.
"""

from __future__ import annotations

import logging
import secrets
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

from admission.counters import Ask, Counters, Crossing, Granted, Refused, Room, Use
from admission.expected import ExpectedOutput
from admission.fair import Party
from admission.lease import Lease, Price, finished, refusal
from admission.limits import Amounts, Budget, Draw, Limits, TenantLimits
from admission.looking import Look, own, refused_by, rooms_of
from admission.months import Months, Spent
from admission.scopes import DEPLOYMENT, key_scope, model_scope, tenant_scope, user_scope
from admission.waiting import Entry, WaitingRoom
from tenancy.errors import InvalidInput
from tenancy.identity import Principal

LEASE_S: Final = 30.0
"""A lease without a sign of life for so long is settled by the reaper; `admission.reaper` gives one every third."""
WAIT_S: Final = 10.0
"""The longest wait of requests that wait at a limit, where nothing else is said."""
NO_LIMITS: Final = Limits()

_KNOWN: Final = 10_000
"""Tenants whose limits are remembered."""

ROOMS: ContextVar[list[Room] | None] = ContextVar("admission_rooms", default=None)
"""Where it is set, `admit` adds how far the caller's own limits are used; for the headers of an answer."""

_log = logging.getLogger(__name__)


class Agreed(Protocol):
    """What a contract says about limits. It never changes: another revision is another object."""

    def limits(self, deployment: TenantLimits) -> TenantLimits: ...

    @property
    def weight(self) -> int:
        """The tenant's share, relative to other tenants', where several wait."""
        ...


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """What a request will use: tokens to read, and to write at most."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if self.input_tokens < 0 or self.output_tokens < 0:
            raise InvalidInput("a number of tokens is never negative", item="tokens")


class SharedLimits(msgspec.Struct, frozen=True):
    """Limits over all tenants: of the deployment, and of models by name."""

    deployment: Limits = NO_LIMITS
    models: Mapping[str, Limits] = {}


class _Terms(msgspec.Struct, frozen=True, eq=False):
    """What holds for one tenant, as made of what was `agreed` and the limits of the deployment. `whole` is what all of
    its requests draw on; `keys` says whether keys have limits, `allowance` what is allowed while a store is away.
    """

    agreed: weakref.ref[Agreed] | None
    """Not the contract itself: of a tenant that is gone only numbers are left here."""
    deployment: TenantLimits
    limits: TenantLimits
    whole: Draw
    keys: bool
    allowance: Budget | None

    def hold(self, agreed: Agreed | None, deployment: TenantLimits) -> bool:
        known = self.agreed
        same = agreed is None if known is None else agreed is not None and known() is agreed
        return same and self.deployment is deployment


class Admission(msgspec.Struct, eq=False):
    """The block of `Gate.admit`: a request that enters, and holds `lease` until it leaves."""

    gate: Gate
    principal: Principal
    estimate: Estimate
    agreed: Agreed | None
    request_id: str | None
    model: str
    price: Price
    roots: tuple[Draw, ...]
    lease: Lease | None = None
    entry: Entry | None = None

    def __aenter__(self) -> Coroutine[Any, Any, Lease]:
        return self.gate._begin(self)

    def __aexit__(self, *_raised: object) -> Coroutine[Any, Any, None]:
        assert self.lease is not None
        return self.gate._end(self, self.lease)


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
        self._immediate = getattr(counters, "immediate", False)
        self._limits_for = limits_for
        shared = shared or SharedLimits()
        self._all = () if shared.deployment == NO_LIMITS else (Draw(DEPLOYMENT, shared.deployment),)
        self._models = {name: (Draw(model_scope(name), limits), *self._all) for name, limits in shared.models.items()}
        self._terms: dict[str, _Terms] = {}
        self._alert = alert
        self._expected = ExpectedOutput()
        self._months = None if spent is None else Months(counters, spent)
        self._room = WaitingRoom(self._take, counters.leave, most=queue)

    def admit(
        self,
        principal: Principal,
        estimate: Estimate,
        agreed: Agreed | None = None,
        *,
        request_id: str | None = None,
        model: str = "",
        price: Price | None = None,
        roots: tuple[Draw, ...] = (),
    ) -> Admission:
        """Hold a lease for the block, under `request_id`; limits that were `agreed` take the place of the deployment's.

        `price` is what the tokens of `model` cost. Entering raises `LimitExceeded`, having taken nothing, naming the
        scope that refused: at once, or after the longest wait where the contract has requests wait.
        """
        return Admission(self, principal, estimate, agreed, request_id, model, price or _free, roots)

    async def _begin(self, admission: Admission) -> Lease:
        principal, agreed = admission.principal, admission.agreed
        terms = self._terms_of(principal.tenant_id, agreed)
        draws = self._draws(principal, terms, admission.model, admission.roots)
        need, ceiling, most = self._need(principal, admission.estimate, draws, admission.model, admission.price)
        request_id = admission.request_id or secrets.token_hex(16)
        rooms = ROOMS.get()
        ask = Ask(request_id, principal.tenant_id, draws, need, self.lease_s, terms.allowance, rooms is not None)
        within, limits = _deadline(draws), terms.limits
        begun = time.monotonic()
        if self._months is not None:
            await self._months.begin(draws)
        if limits.full == "queue" or self._room.waits_for(draws):
            weight = 1.0 if agreed is None else float(agreed.weight)
            longest = (limits.wait_s or WAIT_S) if limits.full == "queue" else 0.0
            entry = admission.entry = await self._room.enter(
                ask,
                Party(principal.tenant_id, principal.user_id, weight, principal.work),
                longest if within is None else min(longest, within),
            )
            granted = entry.found
        else:
            granted = await (self.counters.take(ask) if self._immediate else self._take(ask))
        if isinstance(granted, Refused):
            raise refusal(granted)
        if rooms is not None:
            rooms[:] = granted.rooms
        lease = admission.lease = Lease(
            id=granted.lease,
            counters=self.counters,
            immediate=self._immediate,
            on_allowance=granted.on_allowance,
            held=Amounts(0, need.input, need.output, need.money),
            ceiling=ceiling,
            max_output_tokens=most,
            deadline=None if within is None else begun + within,
            price=admission.price,
            waited_s=0.0 if admission.entry is None else admission.entry.waited_s,
        )
        self.live[lease.id] = lease
        return lease

    async def _end(self, admission: Admission, lease: Lease) -> None:
        self.live.pop(lease.id, None)
        try:
            await lease.leave()
        finally:
            if admission.entry is not None:
                admission.entry.leave(lease.used.input, lease.used.output)
            self._room.wake()
            if lease.output:
                principal = admission.principal
                self._expected.learn(principal.tenant_id, principal.user_id, admission.model, lease.output)
            if lease.crossed:
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
        draws = self._draws(principal, self._terms_of(principal.tenant_id, agreed), model, roots)
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
        most: int | None = None
        for draw in draws:
            bound = draw.limits.max_output_tokens
            if bound is not None and (most is None or bound < most):
                most = bound
        read, ceiling = estimate.input_tokens, estimate.output_tokens
        if most is not None and most < ceiling:
            ceiling = most
        output = self._expected.of(principal.tenant_id, principal.user_id, model, ceiling) if ceiling else 0
        return Amounts(1, read, output, price(read, output)), ceiling, most

    def _terms_of(self, tenant: str, agreed: Agreed | None) -> _Terms:
        """Those of the tenant's last request, as long as the same holds."""
        deployment = self._limits_for(tenant)
        terms = self._terms.get(tenant)
        if terms is None or not terms.hold(agreed, deployment):
            limits = deployment if agreed is None else agreed.limits(deployment)
            if len(self._terms) >= _KNOWN:
                self._terms.clear()
            terms = self._terms[tenant] = _Terms(
                None if agreed is None else weakref.ref(agreed),
                deployment,
                limits,
                Draw(tenant_scope(tenant), limits.tenant),
                limits.key != NO_LIMITS,
                _allowance(limits),
            )
        return terms

    def _draws(self, principal: Principal, terms: _Terms, model: str, roots: tuple[Draw, ...]) -> tuple[Draw, ...]:
        tenant, limits = principal.tenant_id, terms.limits
        own: tuple[Draw, ...] = (terms.whole,)
        if principal.user_id:
            own = (Draw(user_scope(tenant, principal.user_id), limits.user), terms.whole)
        if terms.keys and principal.method == "api_key":
            own += (Draw(key_scope(tenant, principal.credential_id), limits.key),)
        return roots + own + self._models.get(model, self._all)


def _allowance(limits: TenantLimits) -> Budget | None:
    """What the tenant may use while a store of the counters is away."""
    away = limits.away
    return Budget(away.requests, away.tokens) if away is not None and away.policy == "allowance" else None


def _deadline(draws: Iterable[Draw]) -> float | None:
    """The shortest, in seconds."""
    shortest: float | None = None
    for draw in draws:
        bound = draw.limits.deadline_s
        if bound is not None and (shortest is None or bound < shortest):
            shortest = bound
    return shortest


def _free(_input_tokens: int, _output_tokens: int) -> int:
    return 0
