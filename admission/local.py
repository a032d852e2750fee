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
    MEASURES,
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


@dataclass(frozen=True, slots=True)
class _Part:
    """One scope of a request: what it counts, by which rules."""

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
    """`Counters` of this process, which a restart empties: `seed` tells what a month has cost before.

    `immediate`: no call ever waits, so that no cancellation can come in between.
    """

    immediate = True

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Scope, Counts] = OrderedDict()
        self._leases: dict[str, _Lease] = {}
        self._rules: dict[Limits, Rules] = {}

    def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        """Add what scopes `spent` (micro-units) in `month`, as "2026-11", before this process began."""
        with self._lock:
            for scope, money in spent.items():
                counts = self._scopes.setdefault(scope, Counts())
                if counts.month is None:
                    counts.month = Month(month)
                counts.month.money += money

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
            held = [0, *need[1:]]
            for part in parts:
                draw, own = part.draw, part.counts
                if draw.limits.money_per_month is not None and own.month is None:
                    own.month = Month(month_of(now))
                if draw.budget is not None and own.life is None:
                    own.life = Life(draw.until)
                own.book([1, 0, 0, 0, 0], now)
                add(own.flight, need)
                add(own.held, held)
                self._keep(draw.scope, own, now)
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
            for index, amount in enumerate(_vector(used)):
                held.reported[index] = max(held.reported[index], amount)
            held.reported[0] = 0
            back, wanted = _vector(_part(more, min)), _vector(_part(more, max))
            target = [max(held.held[i] + back[i], held.reported[i]) for i in MEASURES]
            target[4] = target[1] + target[2]
            _hold(held, [target[i] - held.held[i] for i in MEASURES])
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

    def _rules_for(self, draw: Draw) -> Rules:
        """The rules of limits without a budget are remembered: most requests have the same few."""
        if draw.budget is not None:
            return rules_of(draw)
        rules = self._rules.get(draw.limits)
    async def aclose(self) -> None:
        return

        if rules is None:
            if len(self._rules) >= _KNOWN:
                self._rules.clear()
            rules = self._rules[draw.limits] = rules_of(draw)
        return rules

    def _keep(self, scope: Scope, counts: Counts, now: float) -> None:
        """Note that a scope was used, and drop up to two at rest, so that only active ones take memory."""
        table = self._scopes
        table[scope] = counts
        table.move_to_end(scope)
        for _ in range(2):
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
        Room(
            part.draw.scope,
            rule.name,
            rule.limit,
            part.counts.used(rule),
            part.counts.resets(rule, part.draw.until, now),
        )
        for part in parts
        for rule in part.rules
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
        crossed += _crossed(draw, counts.month)
    return tuple(crossed)


def _crossed(draw: Draw, month: Month | None) -> Iterable[Crossing]:
    limit = draw.limits.money_per_month
    if month is None or limit is None:
        return
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


def _part(amounts: Amounts, pick: Callable[[int, int], int]) -> Amounts:
    return Amounts(0, pick(0, amounts.input), pick(0, amounts.output), pick(0, amounts.money))
