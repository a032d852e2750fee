"""The counters in memory, for a service of one server. Thread-safe; nothing in it waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from admission.counters import Ask, Crossing, Granted, Reaped, Refused, Room, Settled, Use
from admission.limits import NO_AMOUNTS, WINDOW_S, Amounts, Draw, Limits
from admission.scopes import DEPLOYMENT, Scope
from admission.tally import (
    BUSY_RETRY_S,
    Counts,
    Life,
    Month,
    Rules,
    Vector,
    add,
    month_of,
    rules_of,
)

_KNOWN: Final = 1_000
"""Sets of limits whose rules are remembered."""


def steady_clock() -> Callable[[], float]:
    """Unix time that never steps: the start's, and what has passed since."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


@dataclass(slots=True, eq=False)
class _Part:
    """One scope of a request: what it counts, by which rules. Never changed; a frozen one takes longer to make."""

    draw: Draw
    counts: Counts
    rules: Rules


@dataclass(slots=True)
class _Lease:
    ask: Ask
    parts: tuple[_Part, ...]
    held: Vector
    flight: Vector
    reported: Vector
    expires: float
    settled: bool = False


class LocalCounters:
    """`Counters` of this process, which a restart empties.

    `immediate`: no call ever waits, so that no cancellation can come in between.
    """

    immediate = True

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Scope, Counts] = OrderedDict()
        self._leases: dict[str, _Lease] = {}
        self._rules: dict[Limits, Rules] = {}

    async def take(self, ask: Ask) -> Granted | Refused:
        with self._lock:
            now = self._clock()
            lease = self._leases.get(ask.lease)
            if lease is not None:
                return Granted(ask.lease, _rooms(lease.parts, now))
            need = _vector(ask.need)
            need[0] = 1
            parts = tuple(
                _Part(draw, self._scopes.get(draw.scope) or Counts(), self._rules_for(draw)) for draw in ask.draws
            )
            refused = _refusal(parts, need, now)
            if refused is not None:
                return refused
            held, known = [0, *need[1:]], len(self._scopes)
            for part in parts:
                draw, own = part.draw, part.counts
                if draw.limits.money_per_month is not None and own.month is None:
                    own.month = Month(month_of(now))
                if draw.budget is not None and own.life is None:
                    own.life = Life(draw.until)
                own.begin(need, now)
                self._scopes[draw.scope] = own
                self._scopes.move_to_end(draw.scope)
            self._sweep(1 + len(self._scopes) - known, now)
            flight = list(need)
            self._leases[ask.lease] = _Lease(ask, parts, held, flight, [0] * 5, now + ask.ttl_s)
            return Granted(ask.lease, _rooms(parts, now))

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        used.checked()
        with self._lock:
            now = self._clock()
            held = self._leases.get(lease)
            if held is None or held.settled:
                scope = DEPLOYMENT if held is None else held.ask.draws[0].scope
                return Refused(scope, "lease", 0, 0, 0, BUSY_RETRY_S)
            held.expires = now + held.ask.ttl_s
            held.reported = _more(held.reported, _vector(used))
            change, wanted = _change(held, more)
            if any(change):
                _hold(held, change)
            if not any(wanted):
                return None
            refused = _refusal(held.parts, wanted, now, begins=False)
            if refused is None:
                _hold(held, wanted)
            return refused

    async def settle(self, lease: str, used: Amounts) -> Settled:
        used.checked()
        with self._lock:
            held = self._leases.get(lease)
            if held is None or held.settled:
                return Settled(booked=False)
            return Settled(booked=True, crossed=_settle(held, _vector(used), self._clock()))

    async def leave(self, lease: str) -> Settled:
        with self._lock:
            held = self._leases.pop(lease, None)
            return Settled(booked=False) if held is None else _end(held, self._clock())

    async def reap(self) -> tuple[Reaped, ...]:
        with self._lock:
            now = self._clock()
            expired = [lease for lease, held in self._leases.items() if held.expires <= now]
            ended = []
            for lease in expired:
                held = self._leases.pop(lease)
                crossed = _end(held, now).crossed
                ended.append(Reaped(lease, held.ask.tenant, _amounts(held.reported), crossed))
            return tuple(ended)

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        with self._lock:
            now = self._clock()
            for scope, money in spent.items():
                counts = self._scopes.setdefault(scope, Counts())
                counts.roll(now)
                if counts.month is None and month == month_of(now):
                    counts.month = Month(month, money)

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        used.checked()
        with self._lock:
            now = self._clock()
            counts = self._scopes.setdefault(scope, Counts())
            counts.roll(now)
            if counts.life is None and until > now:
                counts.life = Life(until, [used.requests, *_vector(used)[1:]])

    async def use(self, scope: Scope) -> Use:
        with self._lock:
            counts = self._scopes.get(scope)
            if counts is None:
                return Use()
            counts.roll(self._clock())
            return Use(
                flight=_amounts(counts.flight),
                held=_amounts(counts.held),
                minute=_amounts(counts.window.total),
                month=Amounts(money=counts.month.money) if counts.month else NO_AMOUNTS,
                life=_amounts(counts.life.used) if counts.life else NO_AMOUNTS,
            )

    async def aclose(self) -> None:
        return

    def _rules_for(self, draw: Draw) -> Rules:
        """The rules of limits without a budget are remembered: most requests have the same few."""
        if draw.budget is not None:
            return rules_of(draw)
        rules = self._rules.get(draw.limits)
        if rules is None:
            if len(self._rules) >= _KNOWN:
                self._rules.clear()
            rules = self._rules[draw.limits] = rules_of(draw)
        return rules

    def _sweep(self, count: int, now: float) -> None:
        """Drop those at rest of the `count` scopes that were looked at longest ago, so that only active ones take
        memory: more than have come.
        """
        table = self._scopes
        for _ in range(count):
            oldest = next(iter(table))
            if table[oldest].at_rest(now):
                del table[oldest]
            else:
                # Nobody holds up the others: what was spent in a month stays for all of it.
                table.move_to_end(oldest)


def _refusal(parts: Iterable[_Part], need: Vector, now: float, *, begins: bool = True) -> Refused | None:
    """The refusal with the longest wait, of the first scope of several; `None` where `need` fits everywhere."""
    found: list[Refused] = []
    for part in parts:
        draw, own = part.draw, part.counts
        own.roll(now)
        if begins and draw.until is not None and draw.until <= now:
            found.append(Refused(draw.scope, "deadline", 0, 0, 0, float(WINDOW_S)))
            continue
        for rule in part.rules:
            needed = need[rule.index]
            if not needed and not begins:
                continue
            used = own.used(rule)
            over = used + needed - rule.limit
            if over > 0:
                wait = own.wait(rule, over, draw.until, now)
                found.append(Refused(draw.scope, rule.name, rule.limit, used, needed, wait))
    return max(found, key=lambda refused: refused.retry_after, default=None)


def _rooms(parts: Iterable[_Part], now: float) -> tuple[Room, ...]:
    return tuple(
        [
            Room(part.draw.scope, rule.name, rule.limit, *part.counts.room(rule, part.draw.until, now))
            for part in parts
            for rule in part.rules
        ]
    )


def _hold(lease: _Lease, change: Vector) -> None:
    add(lease.held, change)
    add(lease.flight, change)
    for part in lease.parts:
        add(part.counts.held, change)
        add(part.counts.flight, change)


def _settle(lease: _Lease, used: Vector, now: float) -> tuple[Crossing, ...]:
    lease.settled = True
    used[0] = 0
    lease.reported = used
    crossed: list[Crossing] = []
    for part in lease.parts:
        draw, counts = part.draw, part.counts
        counts.roll(now)
        add(counts.held, lease.held, -1)
        if draw.limits.money_per_month is not None and counts.month is None:
            counts.month = Month(month_of(now))
        counts.book(used, now)
        limit, month = draw.limits.money_per_month, counts.month
        if limit is not None and month is not None and month.money >= (draw.limits.soft or 1.0) * limit:
            crossed += _crossed(draw, month, limit)
    return tuple(crossed)


def _crossed(draw: Draw, month: Month, limit: int) -> Iterable[Crossing]:
    """The shares that are told now, and never again."""
    for share in sorted({draw.limits.soft or 1.0, 1.0}):
        if month.money >= share * limit and (share, limit) not in month.told:
            month.told.add((share, limit))
            yield Crossing(draw.scope, share, limit, month.money, month.label)


def _end(lease: _Lease, now: float) -> Settled:
    booked = not lease.settled
    crossed = _settle(lease, lease.reported, now) if booked else ()
    for part in lease.parts:
        add(part.counts.flight, lease.flight, -1)
    return Settled(booked=booked, crossed=crossed)


def _vector(amounts: Amounts) -> Vector:
    return [0, amounts.input, amounts.output, amounts.money, amounts.input + amounts.output]


def _amounts(vector: Vector) -> Amounts:
    return Amounts(vector[0], vector[1], vector[2], vector[3])


def _more(reported: Vector, used: Vector) -> Vector:
    """The larger of each measure; tokens are their sum, which is more than that of either report."""
    read, written = max(reported[1], used[1]), max(reported[2], used[2])
    return [0, read, written, max(reported[3], used[3]), read + written]


def _change(lease: _Lease, more: Amounts) -> tuple[Vector, Vector]:
    """What to hold more or less of at once, for use and for what is given back; and what is asked for beyond that."""
    held, reported = lease.held, lease.reported
    read, written, money = more.input, more.output, more.money
    target = [
        max(held[1] + min(read, 0), reported[1]),
        max(held[2] + min(written, 0), reported[2]),
        max(held[3] + min(money, 0), reported[3]),
    ]
    change = [0, target[0] - held[1], target[1] - held[2], target[2] - held[3], target[0] + target[1] - held[4]]
    read, written, money = max(read, 0), max(written, 0), max(money, 0)
    return change, [0, read, written, money, read + written]
