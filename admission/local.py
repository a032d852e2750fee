"""The counters in memory, for a service of one server. Thread-safe; nothing in it waits."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from admission.counters import Ask, Crossing, Granted, Reaped, Refused, Room, Settled, Use
from admission.limits import NO_AMOUNTS, REACH_S, WINDOW_S, Amounts, Draw, Limits
from admission.scopes import DEPLOYMENT, SHARED, Scope
from admission.tally import (
    BUSY_RETRY_S,
    HELD,
    LIFE,
    MINUTE,
    MONTH,
    SETTLED,
    Counts,
    Month,
    Rules,
    Vector,
    begin,
    hold,
    leave,
    month_of,
    rules_of,
    settle,
)

_KNOWN: Final = 1_000
"""Sets of limits whose rules are remembered."""
_NOTHING: Final = Settled(booked=False)


def steady_clock() -> Callable[[], float]:
    """Unix time that never steps: the start's, and what has passed since."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


_Part = tuple[Draw, Counts, Rules]
"""One scope of a request: what it counts, by which rules."""


class _Lease(msgspec.Struct, eq=False, gc=False):
    """What one request holds of each of its scopes, and what it `reported`, of which requests are not looked at."""

    ask: Ask
    parts: list[_Part]
    scopes: list[Counts]
    held: Vector
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
        self._now = Month.at(self._clock())

    async def take(self, ask: Ask) -> Granted | Refused:
        with self._lock:
            now = self._clock()
            lease = self._leases.get(ask.lease)
            if lease is not None:
                return Granted(ask.lease, _rooms(lease.parts, now))
            need = _vector(ask.need)
            need[0] = 1
            parts: list[_Part] = []
            scopes: list[Counts] = []
            new = 0
            for draw in ask.draws:
                counts = self._scopes.get(draw.scope)
                if counts is None:
                    counts = self._scopes[draw.scope] = Counts()
                    new += 1
                elif counts.over <= now:
                    counts.roll(now)
                rules = self._rules.get(draw.limits) if draw.budget is None else None
                scopes.append(counts)
                parts.append((draw, counts, self._rules_for(draw) if rules is None else rules))
            refused = _refusal(parts, need, now)
            if refused is None:
                self._begin(parts, now)
                begin(scopes, need, int(now))
                self._leases[ask.lease] = _Lease(ask, parts, scopes, need, [0] * 5, now + ask.ttl_s)
            self._sweep(new or 1, now)
            if refused is not None:
                return refused
            return Granted(ask.lease, _rooms(parts, now) if ask.rooms else ())

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        used.checked()
        with self._lock:
            now = self._clock()
            held = self._leases.get(lease)
            if held is None or held.settled:
                scope = DEPLOYMENT if held is None else held.ask.draws[0].scope
                return Refused(scope, "lease", 0, 0, 0, BUSY_RETRY_S)
            held.expires = now + held.ask.ttl_s
            if used is not NO_AMOUNTS:
                _report(held.reported, used)
            change, wanted = _change(held, more)
            _hold(held, change)
            if wanted is None:
                return None
            for counts in held.scopes:
                if counts.over <= now:
                    counts.roll(now)
            refused = _refusal(held.parts, wanted, now, begins=False)
            if refused is None:
                _hold(held, wanted)
            return refused

    async def settle(self, lease: str, used: Amounts) -> Settled:
        used.checked()
        with self._lock:
            held = self._leases.get(lease)
            if held is None or held.settled:
                return _NOTHING
            return Settled(booked=True, crossed=self._settle(held, _vector(used), self._clock()))

    async def leave(self, lease: str) -> Settled:
        with self._lock:
            held = self._leases.pop(lease, None)
            return _NOTHING if held is None else self._end(held)

    async def reap(self) -> tuple[Reaped, ...]:
        with self._lock:
            now = self._clock()
            expired = [lease for lease, held in self._leases.items() if held.expires <= now]
            ended = []
            for lease in expired:
                held = self._leases.pop(lease)
                crossed = self._end(held).crossed
                ended.append(Reaped(lease, held.ask.tenant, _amounts(held.reported), crossed))
            return tuple(ended)

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        with self._lock:
            now = self._clock()
            for scope, money in spent.items():
                counts = self._scopes.setdefault(scope, Counts())
                counts.roll(now)
                if counts.month is None and month == month_of(now):
                    counts.begin_month(self._month(now), money)

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        used.checked()
        with self._lock:
            now = self._clock()
            counts = self._scopes.setdefault(scope, Counts())
            counts.roll(now)
            if counts.life_ends is None and until > now:
                counts.begin_life(until, [used.requests, *_vector(used)[1:]])

    async def use(self, scope: Scope) -> Use:
        with self._lock:
            counts = self._scopes.get(scope)
            if counts is None:
                return Use()
            counts.roll(self._clock())
            row = counts.row
            held = _amounts(row, HELD)
            return Use(
                flight=held + _amounts(row, SETTLED),
                held=held - Amounts(held.requests),
                minute=_amounts(row, MINUTE),
                month=Amounts(money=row[MONTH]),
                life=_amounts(row, LIFE),
            )

    async def aclose(self) -> None:
        return

    def _rules_for(self, draw: Draw) -> Rules:
        """The rules of limits without a budget are remembered: most requests have the same few."""
        rules = rules_of(draw)
        if draw.budget is None:
            if len(self._rules) >= _KNOWN:
                self._rules.clear()
            self._rules[draw.limits] = rules
        return rules

    def _month(self, now: float) -> Month:
        """That of `now`, which most scopes share."""
        if not self._now.begins <= now < self._now.ends:
            self._now = Month.at(now)
        return self._now

    def _sweep(self, count: int, now: float) -> None:
        """Drop those at rest of the `count` scopes that were looked at longest ago, so that only active ones take
        memory: as many as have come, and one where none has.
        """
        table = self._scopes
        for _ in range(count):
            oldest = next(iter(table), None)
            if oldest is None:
                return
            if table[oldest].at_rest(now):
                del table[oldest]
            else:
                # Nobody holds up the others: what was spent in a month stays for all of it.
                table.move_to_end(oldest)

    def _begin(self, parts: list[_Part], now: float) -> None:
        """Begin the months and lives that limits ask for."""
        for draw, counts, _ in parts:
            if counts.month is None and draw.limits.money_per_month is not None:
                counts.begin_month(self._month(now))
            if draw.budget is not None and counts.life_ends is None:
                counts.begin_life(math.inf if draw.until is None else draw.until, [0] * 5)

    def _settle(self, lease: _Lease, used: Vector, now: float) -> tuple[Crossing, ...]:
        lease.settled = True
        lease.reported = used
        for draw, counts, _ in lease.parts:
            if counts.over <= now:
                counts.roll(now)
            if counts.month is None and draw.limits.money_per_month is not None:
                counts.begin_month(self._month(now))
        settle(lease.scopes, lease.held, used, int(now))
        crossed: tuple[Crossing, ...] = ()
        for draw, counts, _ in lease.parts:
            limit = draw.limits.money_per_month
            if limit is not None and counts.row[MONTH] >= (draw.limits.soft or 1.0) * limit:
                crossed += tuple(_crossed(draw, counts, limit))
        return crossed

    def _end(self, lease: _Lease) -> Settled:
        settled = _NOTHING
        if not lease.settled:
            settled = Settled(True, self._settle(lease, lease.reported, self._clock()))
        leave(lease.scopes, lease.held)
        return settled


def _refusal(parts: list[_Part], need: Vector, now: float, *, begins: bool = True) -> Refused | None:
    """The refusal with the longest wait, of the first scope of several; `None` where `need` fits everywhere."""
    found: list[Refused] = []
    for draw, counts, rules in parts:
        if begins and draw.until is not None and draw.until <= now:
            found.append(Refused(draw.scope, "deadline", 0, 0, 0, float(WINDOW_S)))
            continue
        row = counts.row
        for rule in rules:
            needed = need[rule.index]
            used = row[rule.booked] + row[rule.held]
            if used + needed > rule.limit and (needed or begins):
                wait = counts.wait(rule, used + needed - rule.limit, draw.until, now)
                found.append(Refused(draw.scope, rule.name, rule.limit, used, needed, wait))
    return max(found, key=lambda refused: refused.retry_after) if found else None


def _rooms(parts: list[_Part], now: float) -> tuple[Room, ...]:
    rooms = []
    for draw, counts, rules in parts:
        scope, row = draw.scope, counts.row
        if scope.kind in SHARED:
            continue
        # Most often what leaves the window first has something of each measure.
        second, oldest = counts.steps[0] if counts.steps else (0, row)
        for rule in rules:
            booked = row[rule.booked]
            if rule.span == "now":
                resets = 0.0
            elif rule.span == "minute" and oldest[rule.index]:
                resets = second + REACH_S - now if booked else 0.0
            else:
                resets = counts.resets(rule, draw.until, now)
            rooms.append(Room(scope, rule.name, rule.limit, booked + row[rule.held], resets))
    return tuple(rooms)


def _crossed(draw: Draw, counts: Counts, limit: int) -> Iterable[Crossing]:
    """The shares that are told now, and never again in this month."""
    money, month = counts.row[MONTH], counts.month
    for share in sorted({draw.limits.soft or 1.0, 1.0}):
        if month is not None and money >= share * limit and (share, limit) not in counts.told:
            counts.told += ((share, limit),)
            yield Crossing(draw.scope, share, limit, money, month.label)


def _hold(lease: _Lease, change: Vector) -> None:
    held = lease.held
    held[1] += change[1]
    held[2] += change[2]
    held[3] += change[3]
    held[4] += change[4]
    hold(lease.scopes, change)


def _vector(amounts: Amounts) -> Vector:
    read, written = amounts.input, amounts.output
    return [0, read, written, amounts.money, read + written]


def _amounts(row: Vector, begins: int = 0) -> Amounts:
    return Amounts(*row[begins : begins + 4])


def _report(reported: Vector, used: Amounts) -> None:
    """The larger of each measure stays; tokens are their sum, which is more than that of either report."""
    if used.input > reported[1]:
        reported[1] = used.input
    if used.output > reported[2]:
        reported[2] = used.output
    if used.money > reported[3]:
        reported[3] = used.money
    reported[4] = reported[1] + reported[2]


def _change(lease: _Lease, more: Amounts) -> tuple[Vector, Vector | None]:
    """What to hold more or less of at once, for use and for what is given back; and what is asked for beyond that."""
    held, reported = lease.held, lease.reported
    read, written, money = more.input, more.output, more.money
    change = [
        0,
        _less(held[1], read, reported[1]),
        _less(held[2], written, reported[2]),
        _less(held[3], money, reported[3]),
        0,
    ]
    change[4] = change[1] + change[2]
    if read <= 0 and written <= 0 and money <= 0:
        return change, None
    read, written = max(read, 0), max(written, 0)
    return change, [0, read, written, max(money, 0), read + written]


def _less(held: int, asked: int, reported: int) -> int:
    """The change of what is held: less where that is asked for, but never below what was reported."""
    kept = held + asked if asked < 0 else held
    return (kept if kept > reported else reported) - held
