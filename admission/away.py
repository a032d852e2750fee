"""While the store of the counters is away: what a contract permits then, and how it gets into the store afterwards.

    away, no allowance      nothing is admitted: `LimitsUnavailable`
    away, an allowance      this server admits by all limits of the request, counted from nothing, and by the allowance,
                            which bounds what the tenant uses here until the store has heard of it
    admitted before         goes on with what it holds; more comes from the allowance, or the answer ends
    back                    the store is told of all that ended meanwhile, each request once

A tenant's allowance is its own at each server: with n servers n allowances are spent at most.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from admission.counters import Ask, Counters, Crossing, Granted, Reaped, Refused, Settled, Use
from admission.limits import NO_AMOUNTS, WINDOW_S, Amounts, Draw, Limits
from admission.local import LocalCounters
from admission.scopes import DEPLOYMENT, Scope, tenant_scope
from admission.tally import BUSY_RETRY_S
from tenancy.errors import LimitsUnavailable

_LIFE: Final = frozenset({"requests", "tokens", "money"})

_log = logging.getLogger(__name__)


class UnfitStore(LimitsUnavailable):
    """A store that answers and must not be used."""


class Store(Counters, Protocol):
    """Counters that can be away, and are told afterwards. `emptied` is awaited where they have lost what they kept."""

    emptied: Callable[[tuple[Draw, ...]], Awaitable[None]] | None

    @property
    def available(self) -> bool: ...

    async def report(self, ask: Ask, used: Amounts, *, recent: bool) -> Settled: ...


@dataclass(slots=True)
class _Meanwhile:
    """A request on the allowance; `ended` by the clock of this process, `None` while it goes on."""

    ask: Ask
    used: Amounts = NO_AMOUNTS
    settled: bool = False
    ended: float | None = None


class WithAllowance:
    """`Counters` over a `store` that may be away. `tell` hears of budgets that reports have crossed; it must not wait.

    For one event loop at a time.
    """

    def __init__(
        self,
        store: Store,
        *,
        tell: Callable[[tuple[Crossing, ...]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.tell = tell or _untold
        self._clock = clock
        self._asks: dict[str, Ask] = {}
        self._owed: dict[str, Amounts | None] = {}
        self._local = LocalCounters()
        self._meanwhile: dict[str, _Meanwhile] = {}
        self._longer: dict[str, Amounts] = {}
        self._later: dict[Scope, Callable[[], Awaitable[None]]] = {}
        self._telling = False
        self._counts: Counter[str] = Counter()

    @property
    def available(self) -> bool:
        """Whether the store answered when it was last asked."""
        return self.store.available

    @property
    def counts(self) -> Mapping[str, int]:
        """Requests since the process began: refused while the store was away, on the allowance, and of those reported;
        `waiting` is what the store has yet to hear of.
        """
        waiting = len(self._owed) + sum(one.ended is not None for one in self._meanwhile.values())
        return {"refused": 0, "allowed": 0, "reported": 0, **self._counts, "waiting": waiting}

    async def take(self, ask: Ask) -> Granted | Refused:
        await self._catch_up()
        try:
            found = await self.store.take(ask)
        except LimitsUnavailable as away:
            return await self._on_allowance(ask, away)
        if isinstance(found, Granted):
            self._asks[ask.lease] = ask
        return found

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        own = self._meanwhile.get(lease)
        if own is not None:
            if not own.settled:
                own.used = own.used.or_more(used)
            return await self._local.extend(lease, more, used)
        try:
            return await self.store.extend(lease, more, used)
        except LimitsUnavailable:
            wanted = more.or_more(NO_AMOUNTS)
            return None if wanted == NO_AMOUNTS else await self._go_on(lease, wanted)

    async def settle(self, lease: str, used: Amounts) -> Settled:
        own = self._meanwhile.get(lease)
        if own is not None:
            booked = (await self._local.settle(lease, used)).booked
            if booked:
                own.used, own.settled = used, True
            return Settled(booked)
        try:
            return await self.store.settle(lease, used)
        except LimitsUnavailable:
            known = lease in self._asks and lease not in self._owed
            if known:
                self._owed[lease] = used
            return Settled(known)

    async def leave(self, lease: str) -> Settled:
        own = self._meanwhile.get(lease)
        if own is not None:
            booked = own.ended is None and (await self._local.leave(lease)).booked
            own.ended = own.ended or self._clock()
            return Settled(booked)
        longer = self._longer.pop(lease, None)
        if longer is not None:
            await self._local.settle(lease, longer)
            await self._local.leave(lease)
        known = self._asks.pop(lease, None) is not None
        try:
            return await self._end(lease)
        except LimitsUnavailable:
            # What was never granted is not owed: where the store took it after all, it expires there.
            if known:
                self._owed.setdefault(lease, None)
            return Settled(booked=False)

    async def reap(self) -> tuple[Reaped, ...]:
        await self._catch_up()
        return await self.store.reap()

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        try:
            await self.store.seed(month, spent)
        except LimitsUnavailable:
            await self._local.seed(month, spent)
            for scope, money in spent.items():
                self._later[scope] = _seeding(self.store, month, scope, money)

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        try:
            await self.store.recall(scope, until, used)
        except LimitsUnavailable:
            await self._local.recall(scope, until, used)
            self._later[scope] = _recalling(self.store, scope, until, used)

    async def use(self, scope: Scope) -> Use:
        """Of this process alone where the store is away."""
        try:
            return await self.store.use(scope)
        except LimitsUnavailable:
            return await self._local.use(scope)

    async def aclose(self) -> None:
        """Tell the store what it has yet to hear of, where it is there; afterwards nobody can."""
        await self._catch_up()
        await self.store.aclose()

    async def _on_allowance(self, ask: Ask, away: LimitsUnavailable) -> Granted | Refused:
        whole = tenant_scope(ask.tenant)
        if ask.allowance is None or all(draw.scope != whole for draw in ask.draws):
            self._counts["refused"] += 1
            raise away
        draws = tuple(
            msgspec.structs.replace(draw, budget=ask.allowance, until=None) if draw.scope == whole else draw
            for draw in ask.draws
        )
        found = await self._local.take(msgspec.structs.replace(ask, draws=draws))
        if isinstance(found, Refused):
            if found.scope != whole or found.bound not in _LIFE:
                return found
            self._counts["refused"] += 1
            raise LimitsUnavailable(
                f"is away, and the tenant's allowance of {found.limit} {found.bound} is spent",
                item=away.item,
                remedy=away.remedy,
            )
        self._meanwhile[ask.lease] = _Meanwhile(ask)
        self._counts["allowed"] += 1
        rooms = tuple(room for room in found.rooms if room.scope != whole or room.bound not in _LIFE)
        return Granted(ask.lease, rooms, on_allowance=True)

    async def _go_on(self, lease: str, wanted: Amounts) -> Refused | None:
        """What an answer that was admitted before gets beyond what it holds; to the allowance it is a request as well.

        Its lease settles at the store with all that it used, so that nothing of this is reported.
        """
        ask = self._asks.get(lease)
        if ask is None:
            return Refused(DEPLOYMENT, "lease", 0, 0, 0, BUSY_RETRY_S)
        if ask.allowance is None:
            return Refused(tenant_scope(ask.tenant), "store", 0, 0, 0, BUSY_RETRY_S)
        if lease in self._longer:
            refused = await self._local.extend(lease, wanted, NO_AMOUNTS)
        else:
            draws = (Draw(tenant_scope(ask.tenant), Limits(), ask.allowance),)
            found = await self._local.take(msgspec.structs.replace(ask, draws=draws, need=wanted))
            refused = found if isinstance(found, Refused) else None
        if refused is None:
            self._longer[lease] = self._longer.get(lease, NO_AMOUNTS) + wanted
            return None
        return msgspec.structs.replace(refused, bound="store")

    async def _end(self, lease: str) -> Settled:
        """Settle what is owed, and leave."""
        owed = self._owed.get(lease)
        settled = Settled(booked=False) if owed is None else await self.store.settle(lease, owed)
        left = await self.store.leave(lease)
        self._owed.pop(lease, None)
        return Settled(settled.booked or left.booked, (*settled.crossed, *left.crossed))

    async def _catch_up(self) -> None:
        """Tell the store of what ended while it was away; does nothing where it still is."""
        if self._telling or not (self._owed or self._meanwhile or self._later):
            return
        self._telling = True
        try:
            await self._tell_store()
        except LimitsUnavailable:
            return
        finally:
            self._telling = False

    async def _tell_store(self) -> None:
        for scope, begin in tuple(self._later.items()):
            await begin()
            self._later.pop(scope, None)
        for lease in tuple(self._owed):
            if lease not in self._asks:
                self.tell((await self._end(lease)).crossed)
        ended = [(lease, one) for lease, one in self._meanwhile.items() if one.ended is not None]
        for lease, one in ended:
            recent = one.ended is not None and self._clock() - one.ended < WINDOW_S
            settled = await self.store.report(one.ask, one.used, recent=recent)
            del self._meanwhile[lease]
            self._counts["reported"] += 1
            self.tell(settled.crossed)
        if ended:
            _log.warning("the store of the counters has heard of %d requests admitted while it was away", len(ended))
        if not self._meanwhile and not self._longer:
            # All of it counts at the store now: the next outage begins with a whole allowance.
            self._local = LocalCounters()


def _seeding(store: Store, month: str, scope: Scope, money: int) -> Callable[[], Awaitable[None]]:
    return lambda: store.seed(month, {scope: money})


def _recalling(store: Store, scope: Scope, until: float, used: Amounts) -> Callable[[], Awaitable[None]]:
    return lambda: store.recall(scope, until, used)


def _untold(_crossed: Iterable[Crossing]) -> None:
    return
