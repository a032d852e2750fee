"""Admission: nothing is dispatched before it is paid for. First version, in process.

A request draws on two scopes, its user and its tenant. `admit` checks all limits of both and takes all or nothing, so
a refusal consumes nothing. Tokens are reserved (held) at admission and booked when the request settles; what is held
counts as used until then, so in-flight requests can never together exceed a limit that their estimates respect.

Windows slide over 60 s in steps of one second. A step counts until its last instant has left the window, so a true
60 s window never holds more than its limit.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from tenancy.errors import InvalidInput, LimitExceeded
from tenancy.identity import Principal
from tenancy.limits import Limits, TenantLimits

WINDOW_S: Final = 60
BUSY_RETRY_S: Final = 1.0

ScopeName = Literal["user", "tenant"]


class Agreed(Protocol):
    """What a contract says about limits."""

    def limits(self, deployment: TenantLimits) -> TenantLimits: ...


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens that a request is expected to use; output is cut to `max_output_tokens` at admission."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        _require_amounts(self.input_tokens, self.output_tokens)


@dataclass(frozen=True, slots=True)
class Use:
    """What one scope uses now. `held` are tokens reserved by requests in flight."""

    requests: int
    concurrent: int
    tokens: int
    held: int


class _Window:
    """Amounts by second; at most `WINDOW_S + 1` entries."""

    __slots__ = ("_steps", "total")

    def __init__(self) -> None:
        self._steps: deque[list[int]] = deque()
        self.total = 0

    def add(self, amount: int, now: float) -> None:
        if amount == 0:
            return
        step = int(now // 1)
        if self._steps and self._steps[-1][0] >= step:
            self._steps[-1][1] += amount
        else:
            self._steps.append([step, amount])
        self.total += amount

    def expire(self, now: float) -> None:
        while self._steps and self._steps[0][0] + 1 + WINDOW_S <= now:
            self.total -= self._steps.popleft()[1]

    def wait(self, needed: int, now: float) -> float:
        """Seconds until at least `needed` has left the window; the whole window where it never holds so much."""
        freed = 0
        for step, amount in self._steps:
            freed += amount
            if freed >= needed:
                return step + 1 + WINDOW_S - now
        return float(WINDOW_S)


@dataclass(slots=True)
class _Scope:
    """Counters of a tenant (with its `users`) or of a user. What a user uses, its tenant uses as well."""

    requests: _Window = field(default_factory=_Window)
    tokens: _Window = field(default_factory=_Window)
    held: int = 0
    concurrent: int = 0
    users: OrderedDict[str, _Scope] = field(default_factory=OrderedDict)

    def expire(self, now: float) -> None:
        self.requests.expire(now)
        self.tokens.expire(now)

    def at_rest(self, now: float) -> bool:
        self.expire(now)
        return not (self.concurrent or self.held or self.requests.total or self.tokens.total)

    def refusal(self, name: ScopeName, limits: Limits, need: int, now: float) -> LimitExceeded | None:
        """The refusal of this scope with the longest wait, or `None` where `need` tokens and a request fit."""
        self.expire(now)
        found: list[LimitExceeded] = []
        allowed = limits.concurrent
        if allowed is not None and self.concurrent + 1 > allowed:
            found.append(_refused(name, allowed, self.concurrent, "requests at one time", BUSY_RETRY_S))
        allowed = limits.requests_per_minute
        if allowed is not None and self.requests.total + 1 > allowed:
            wait = self.requests.wait(self.requests.total + 1 - allowed, now)
            found.append(_refused(name, allowed, self.requests.total, "requests a minute", wait))
        allowed = limits.tokens_per_minute
        used = self.tokens.total + self.held
        if allowed is not None and used + need > allowed:
            wait = self.tokens.wait(used + need - allowed, now)
            remedy = None if need <= allowed else f"this request alone needs {need}; ask for less"
            found.append(_refused(name, allowed, used, "tokens a minute", wait, remedy))
        return _longest(found)


class Lease:
    """What one admitted request holds. Made by `Admission.admit` alone; thread-safe.

    `max_output_tokens` is what the generator may produce at most, or `None` where nothing limits it.
    """

    def __init__(
        self,
        scopes: tuple[_Scope, ...],
        held: int,
        max_output_tokens: int | None,
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self.max_output_tokens = max_output_tokens
        self._scopes = scopes
        self._held = held
        self._reported = (0, 0)
        self._settled = False
        self._left = False
        self._lock = lock
        self._clock = clock

    @property
    def settled(self) -> bool:
        return self._settled

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """Report the totals so far: what is charged if the request ends without `settle`.

        Use above the reservation is held at once, so that later requests see it.
        """
        _require_amounts(input_tokens, output_tokens)
        with self._lock:
            if self._settled:
                return
            before = self._reported
            self._reported = (max(before[0], input_tokens), max(before[1], output_tokens))
            excess = sum(self._reported) - self._held
            if excess > 0:
                self._hold(excess)

    def settle(self, input_tokens: int, output_tokens: int) -> bool:
        """Book the totals used and give the reservation back. Exactly once: later calls change nothing.

        Returns whether this call settled.
        """
        _require_amounts(input_tokens, output_tokens)
        with self._lock:
            return self._settle(input_tokens + output_tokens)

    def leave(self) -> None:
        """End the request: settle with what was reported if nothing did, and free its concurrency. Idempotent."""
        with self._lock:
            if self._left:
                return
            self._left = True
            self._settle(sum(self._reported))
            for scope in self._scopes:
                scope.concurrent -= 1

    def _hold(self, tokens: int) -> None:
        self._held += tokens
        for scope in self._scopes:
            scope.held += tokens

    def _settle(self, tokens: int) -> bool:
        if self._settled:
            return False
        self._settled = True
        self._hold(-self._held)
        now = self._clock()
        for scope in self._scopes:
            scope.expire(now)
            scope.tokens.add(tokens, now)
        return True


class Admission:
    """Admits requests against the limits of their tenant. Thread-safe; nothing in it waits.

    `limits_for` gives the limits of a tenant id, from memory: it is called on every request.
    """

    def __init__(self, limits_for: Callable[[str], TenantLimits], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits_for = limits_for
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, _Scope] = OrderedDict()

    @asynccontextmanager
    async def admit(
        self, principal: Principal, estimate: Estimate, agreed: Agreed | None = None
    ) -> AsyncIterator[Lease]:
        """Hold a lease for the block; limits that were `agreed` with the tenant take the place of the deployment's.

        Raises `LimitExceeded`, having taken nothing, naming the scope that refused.
        """
        lease = self._take(principal.tenant_id, principal.user_id, estimate, agreed)
        try:
            yield lease
        finally:
            lease.leave()

    def use(self, tenant_id: str, user_id: str | None = None) -> Use:
        """What a tenant, or one of its users, uses now."""
        with self._lock:
            scope = self._tenants.get(tenant_id)
            if scope is not None and user_id is not None:
                scope = scope.users.get(user_id)
            if scope is None:
                return Use(requests=0, concurrent=0, tokens=0, held=0)
            scope.expire(self._clock())
            return Use(scope.requests.total, scope.concurrent, scope.tokens.total, scope.held)

    def _take(self, tenant_id: str, user_id: str, estimate: Estimate, agreed: Agreed | None = None) -> Lease:
        limits = self._limits_for(tenant_id)
        if agreed is not None:
            limits = agreed.limits(limits)
        output_limit = min(
            (part.max_output_tokens for part in (limits.user, limits.tenant) if part.max_output_tokens is not None),
            default=None,
        )
        output = estimate.output_tokens if output_limit is None else min(estimate.output_tokens, output_limit)
        need = estimate.input_tokens + output
        with self._lock:
            now = self._clock()
            tenant = self._tenants.get(tenant_id) or _Scope()
            user = tenant.users.get(user_id) or _Scope()
            refusals = (
                user.refusal("user", limits.user, need, now),
                tenant.refusal("tenant", limits.tenant, need, now),
            )
            refusal = _longest(refusal for refusal in refusals if refusal is not None)
            if refusal is not None:
                raise refusal
            scopes = (user, tenant)
            for scope in scopes:
                scope.requests.add(1, now)
                scope.concurrent += 1
                scope.held += need
            _keep(tenant.users, user_id, user, now)
            _keep(self._tenants, tenant_id, tenant, now)
            return Lease(scopes, need, output_limit, self._lock, self._clock)


def _keep(table: OrderedDict[str, _Scope], key: str, scope: _Scope, now: float) -> None:
    """Note that `scope` was used, and drop up to two scopes at rest, so that only active ones take memory."""
    table[key] = scope
    table.move_to_end(key)
    for _ in range(2):
        oldest = next(iter(table))
        if table[oldest].at_rest(now):
            del table[oldest]
        elif table[oldest].concurrent:
            table.move_to_end(oldest)
        else:
            return


def _longest(refusals: Iterable[LimitExceeded]) -> LimitExceeded | None:
    return max(refusals, key=lambda refusal: refusal.retry_after, default=None)


def _refused(
    scope: ScopeName, limit: int, used: int, what: str, retry_after: float, remedy: str | None = None
) -> LimitExceeded:
    return LimitExceeded(
        f"the {scope}'s limit of {limit} {what} is reached",
        scope=scope,
        limit=limit,
        used=used,
        retry_after=retry_after,
        remedy=remedy,
    )


def _require_amounts(*tokens: int) -> None:
    if any(amount < 0 for amount in tokens):
        raise InvalidInput("a number of tokens is never negative", item="tokens")
