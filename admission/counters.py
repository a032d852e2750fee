"""The port of the counters: what is held and used per scope, in memory or in a store that several servers share.

One call is one atomic step over all scopes of a request. Data in, data out, nothing of a process in between, so that a
script in a store does exactly what memory does; `tests/admission/conformance/` holds every implementation to that.

The life of a lease, whose id is its request's:

    take -> extend, any number of times -> settle, once -> leave
      \\-> refused: nothing was taken        \\-> reap, where nobody renewed it: settled with the last use reported

What is held counts as used, in every span of every scope, until it is settled: then what was really used takes its
place. Concurrency and tokens in flight ("now") are given back by `leave`, whatever happens first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from admission.limits import NO_AMOUNTS, Amounts, Budget, Draw
from admission.scopes import Scope


class Ask(msgspec.Struct, frozen=True, gc=False):
    """A request that wants to begin: it needs `need` (with its one request) of every scope in `draws`.

    `lease` is its id, never used before. The lease expires after `ttl_s` seconds without a sign of life. The scopes
    within a tenant are all `tenant`'s. `allowance` is what the tenant may use while a store is away; `None`: nothing.
    Without `rooms` nobody reads those of the grant, and counters may leave them out.
    """

    lease: str
    tenant: str
    draws: tuple[Draw, ...]
    need: Amounts
    ttl_s: float
    allowance: Budget | None = None
    rooms: bool = True


class Room(msgspec.Struct, frozen=True, gc=False):
    """How far a bound is used, what is held included. `resets_s`: seconds until its window frees what stands first
    in it, or until the month or the scope ends; 0 where nothing is used, or a request that leaves frees it.
    """

    scope: Scope
    bound: str
    limit: int
    used: int
    resets_s: float


class Granted(msgspec.Struct, frozen=True, gc=False):
    """`rooms` are the bounds of the request's scopes, but for those that tenants share, with this request included;
    `on_allowance`: counted by this process alone, since the store is away.
    """

    lease: str
    rooms: tuple[Room, ...] = ()
    on_allowance: bool = False


class Refused(msgspec.Struct, frozen=True):
    """The bound with the longest wait of those that did not fit; `used` is without this request, which needed `need`.

    `bound` is a name of `limits.BOUNDS`, or "deadline" where the scope has ended, or "lease" where `extend` finds the
    lease settled or reaped, or "store" where that is away (`limit`, `used` and `need` are then 0). `retry_after` is in
    seconds.
    """

    scope: Scope
    bound: str
    limit: int
    used: int
    need: int
    retry_after: float


class Crossing(msgspec.Struct, frozen=True):
    """What was spent of a month's money has reached a `share` of it, 1.0 or the soft one: told to one settlement alone
    in a month (`month` as in "2026-11"), whichever it was.
    """

    scope: Scope
    share: float
    limit: int
    used: int
    month: str


class Settled(msgspec.Struct, frozen=True, gc=False):
    """`booked`: whether this call settled; a later one changes nothing."""

    booked: bool
    crossed: tuple[Crossing, ...] = ()


class Reaped(msgspec.Struct, frozen=True):
    """A lease that expired: settled with `used`, what was last reported, unless it was settled already."""

    lease: str
    tenant: str
    used: Amounts
    crossed: tuple[Crossing, ...] = ()


class Use(msgspec.Struct, frozen=True):
    """What a scope uses. `held` is reserved by requests that have not settled, `flight` what those that have not left
    hold together; `minute`, `month` and `life` are what was settled, and requests.

    `month` counts for scopes whose limits have money in them, `life` for those with a budget.
    """

    flight: Amounts = NO_AMOUNTS
    held: Amounts = NO_AMOUNTS
    minute: Amounts = NO_AMOUNTS
    month: Amounts = NO_AMOUNTS
    life: Amounts = NO_AMOUNTS


class Counters(Protocol):
    """Every method is atomic over all scopes, and safe to call from any task. Raises `Unavailable` where a store is
    away; whoever calls decides what that means.
    """

    async def take(self, ask: Ask) -> Granted | Refused:
        """Check all bounds of all scopes, then take all, or nothing.

        A request is counted in its windows at once, its tokens and its money are held. A repetition for a lease that
        lives takes nothing more and is granted: the first reply was lost.
        """
        ...

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        """Hold `more` (parts below zero give back, never below what was used), report `used`, the totals so far, and
        renew the lease. `None` where that was granted.

        Use is reported and the lease renewed even where more is refused. Use above what is held is held at once: it
        happened, so that later requests must see it. Nothing in `more` that is not above zero is ever refused.
        """
        ...

    async def settle(self, lease: str, used: Amounts) -> Settled:
        """Book what was used in place of what is held; exactly once, as of now. `used.requests` is not looked at."""
        ...

    async def leave(self, lease: str) -> Settled:
        """End the request: settle with what was reported last if nothing did, and give back what is in flight.

        The lease is gone afterwards; of one that is not there nothing changes.
        """
        ...

    async def reap(self) -> tuple[Reaped, ...]:
        """Settle and end the leases that expired. Each is named to one caller."""
        ...

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        """Begin the `month`, as in "2026-11", of scopes with what they `spent` in it (micro-units) before anything was
        counted here. A scope whose month has begun is left as it is, so that no repetition counts anything twice.
        """
        ...

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        """Begin the life of a scope, which ends at `until` (Unix seconds), with what it `used` before anything was
        counted here, its requests included. A life that has begun is left as it is.
        """
        ...

    async def use(self, scope: Scope) -> Use: ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
