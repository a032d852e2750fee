"""The counters in memory, for a service of one server. Thread-safe; nothing in it waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from admission.counters import Ask, Crossing, Granted, Reaped, Refused, Room, Settled, Use
from admission.limits import NO_AMOUNTS, WINDOW_S, Amounts, Draw, Span, bounds_of
from admission.scopes import DEPLOYMENT, Scope

BUSY_RETRY_S: Final = 1.0
"""What a refusal says where requests in flight have to end first."""

Vector = list[int]
"""Requests, input, output, money, and tokens: input plus output."""

_INDEX: Final = {"requests": 0, "input": 1, "output": 2, "money": 3, "tokens": 4}
_MEASURES: Final = range(5)
_MONEY: Final = _INDEX["money"]


def steady_clock() -> Callable[[], float]:
    """Unix time that never steps: the start's, and what has passed since."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    index: int
    span: Span
    limit: int


def _rules(draw: Draw) -> tuple[_Rule, ...]:
    return tuple(_Rule(bound.name, _INDEX[bound.measure], bound.span, limit) for bound, limit in bounds_of(draw))


class _Window:
    """Amounts by second; at most `WINDOW_S + 1` steps."""

    __slots__ = ("_steps", "total")

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Vector]] = deque()
        self.total: Vector = [0] * 5

    def add(self, amounts: Vector, now: float) -> None:
        if not any(amounts):
            return
        step = int(now // 1)
        if not self._steps or self._steps[-1][0] < step:
            self._steps.append((step, [0] * 5))
        _add(self._steps[-1][1], amounts)
        _add(self.total, amounts)

    def expire(self, now: float) -> None:
        while self._steps and self._steps[0][0] + 1 + WINDOW_S <= now:
            _add(self.total, self._steps.popleft()[1], -1)

    def wait(self, index: int, needed: int, now: float) -> float:
        """Seconds until at least `needed` has left the window; the whole window where it never holds so much."""
        freed = 0
        for step, amounts in self._steps:
            freed += amounts[index]
            if freed >= needed:
                return step + 1 + WINDOW_S - now
        return float(WINDOW_S)


@dataclass(slots=True)
class _Month:
    label: str
    money: int = 0
    told: set[tuple[float, int]] = field(default_factory=set)


@dataclass(slots=True)
class _Life:
    until: float | None
    used: Vector = field(default_factory=lambda: [0] * 5)


@dataclass(slots=True)
class _Counts:
    """The counters of one scope. `month` and `life` are there where a limit asks for them."""

    window: _Window = field(default_factory=_Window)
    flight: Vector = field(default_factory=lambda: [0] * 5)
    held: Vector = field(default_factory=lambda: [0] * 5)
    month: _Month | None = None
    life: _Life | None = None

    def roll(self, now: float) -> None:
        """Forget what is over: steps that left the window, last month, a life that has ended."""
        self.window.expire(now)
        if self.month is not None and self.month.label != month_of(now):
            self.month = None
        if self.life is not None and self.life.until is not None and self.life.until <= now:
            self.life = None

    def at_rest(self, now: float) -> bool:
        self.roll(now)
        kept = self.month is not None or self.life is not None
        return not (kept or any(self.flight) or any(self.held) or any(self.window.total))

    def used(self, rule: _Rule) -> int:
        """What counts against a bound, what is held included."""
        index = rule.index
        if rule.span == "now":
            return self.flight[index]
        if rule.span == "minute":
            return self.window.total[index] + self.held[index]
        if rule.span == "month":
            return (self.month.money if self.month else 0) + self.held[_MONEY]
        return (self.life.used[index] if self.life else 0) + self.held[index]

    def wait(self, rule: _Rule, over: int, until: float | None, now: float) -> float:
        """Seconds until `over` units have become free, as far as that is known."""
        if rule.span == "minute":
            return self.window.wait(rule.index, over, now)
        if rule.span == "now" or over <= self.held[rule.index]:
            return BUSY_RETRY_S
        return month_end(now) - now if rule.span == "month" else _left(until, now)

    def resets(self, rule: _Rule, until: float | None, now: float) -> float:
        if rule.span == "now":
            return 0.0
        if rule.span == "minute":
            return self.window.wait(rule.index, 1, now) if self.window.total[rule.index] else 0.0
        return month_end(now) - now if rule.span == "month" else _left(until, now)

    def book(self, amounts: Vector, now: float) -> None:
        self.window.add(amounts, now)
        if self.month is not None:
            self.month.money += amounts[_MONEY]
        if self.life is not None:
            _add(self.life.used, amounts)


@dataclass(slots=True)
class _Lease:
    ask: Ask
    counts: tuple[_Counts, ...]
    held: Vector
    flight: Vector
    reported: Vector
    expires: float
    settled: bool = False


class LocalCounters:
    """`Counters` of this process, which a restart empties: `seed` tells what a month has cost before."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._scopes: OrderedDict[Scope, _Counts] = OrderedDict()
        self._leases: dict[str, _Lease] = {}

    def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        """Add what scopes `spent` (micro-units) in `month`, as "2026-11", before this process began."""
        with self._lock:
            for scope, money in spent.items():
                counts = self._scopes.setdefault(scope, _Counts())
                if counts.month is None:
                    counts.month = _Month(month)
                counts.month.money += money

    async def take(self, ask: Ask) -> Granted | Refused:
        with self._lock:
            now = self._clock()
            lease = self._leases.get(ask.lease)
            if lease is not None:
                return Granted(ask.lease, tuple(_rooms(lease.ask.draws, lease.counts, now)))
            need = _vector(ask.need)
            need[0] = 1
            counts = tuple(self._scopes.get(draw.scope) or _Counts() for draw in ask.draws)
            refused = _refusal(ask.draws, counts, need, now)
            if refused is not None:
                return refused
            held = [0, *need[1:]]
            for draw, own in zip(ask.draws, counts, strict=True):
                if draw.limits.money_per_month is not None and own.month is None:
                    own.month = _Month(month_of(now))
                if draw.budget is not None and own.life is None:
                    own.life = _Life(draw.until)
                own.book([1, 0, 0, 0, 0], now)
                _add(own.flight, need)
                _add(own.held, held)
                self._keep(draw.scope, own, now)
            flight = list(need)
            self._leases[ask.lease] = _Lease(ask, counts, held, flight, [0] * 5, now + ask.ttl_s)
            return Granted(ask.lease, tuple(_rooms(ask.draws, counts, now)))

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
            target = [max(held.held[i] + back[i], held.reported[i]) for i in _MEASURES]
            target[4] = target[1] + target[2]
            _hold(held, [target[i] - held.held[i] for i in _MEASURES])
            if not any(wanted):
                return None
            refused = _refusal(held.ask.draws, held.counts, wanted, now, begins=False)
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

    def _keep(self, scope: Scope, counts: _Counts, now: float) -> None:
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


def month_of(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_end(now: float) -> float:
    """The first instant of the next month (UTC), in Unix seconds."""
    at = datetime.fromtimestamp(now, UTC)
    year, month = (at.year + 1, 1) if at.month == 12 else (at.year, at.month + 1)
    return datetime(year, month, 1, tzinfo=UTC).timestamp()


def _refusal(
    draws: Iterable[Draw], counts: Iterable[_Counts], need: Vector, now: float, *, begins: bool = True
) -> Refused | None:
    """The refusal with the longest wait, of the first scope of several; `None` where `need` fits everywhere."""
    found: list[Refused] = []
    for draw, own in zip(draws, counts, strict=True):
        own.roll(now)
        if begins and draw.until is not None and draw.until <= now:
            found.append(Refused(draw.scope, "deadline", 0, 0, 0, float(WINDOW_S)))
            continue
        for rule in _rules(draw):
            needed = need[rule.index]
            if not needed and not begins:
                continue
            used = own.used(rule)
            over = used + needed - rule.limit
            if over > 0:
                wait = own.wait(rule, over, draw.until, now)
                found.append(Refused(draw.scope, rule.name, rule.limit, used, needed, wait))
    return max(found, key=lambda refused: refused.retry_after, default=None)


def _rooms(draws: Iterable[Draw], counts: Iterable[_Counts], now: float) -> Iterable[Room]:
    for draw, own in zip(draws, counts, strict=True):
        for rule in _rules(draw):
            yield Room(draw.scope, rule.name, rule.limit, own.used(rule), own.resets(rule, draw.until, now))


def _hold(lease: _Lease, change: Vector) -> None:
    _add(lease.held, change)
    _add(lease.flight, change)
    for counts in lease.counts:
        _add(counts.held, change)
        _add(counts.flight, change)


def _settle(lease: _Lease, used: Vector, now: float) -> tuple[Crossing, ...]:
    lease.settled = True
    used[0] = 0
    lease.reported = used
    crossed: list[Crossing] = []
    for draw, counts in zip(lease.ask.draws, lease.counts, strict=True):
        counts.roll(now)
        _add(counts.held, lease.held, -1)
        if draw.limits.money_per_month is not None and counts.month is None:
            counts.month = _Month(month_of(now))
        counts.book(used, now)
        crossed += _crossed(draw, counts.month)
    return tuple(crossed)


def _crossed(draw: Draw, month: _Month | None) -> Iterable[Crossing]:
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
    for counts in lease.counts:
        _add(counts.flight, lease.flight, -1)
    return Settled(booked=booked, crossed=crossed)


def _left(until: float | None, now: float) -> float:
    return float(WINDOW_S) if until is None else max(0.0, until - now)


def _add(total: Vector, amounts: Vector, sign: int = 1) -> None:
    for index in _MEASURES:
        total[index] += sign * amounts[index]


def _vector(amounts: Amounts) -> Vector:
    return [0, amounts.input, amounts.output, amounts.money, amounts.input + amounts.output]


def _amounts(vector: Vector) -> Amounts:
    return Amounts(vector[0], vector[1], vector[2], vector[3])


def _part(amounts: Amounts, pick: Callable[[int, int], int]) -> Amounts:
    return Amounts(0, pick(0, amounts.input), pick(0, amounts.output), pick(0, amounts.money))
