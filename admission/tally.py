"""What one scope counts, in memory: sliding windows, months, lives, and what is held."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from admission.limits import WINDOW_S, Draw, Span, bounds_of

BUSY_RETRY_S: Final = 1.0
"""What a refusal says where requests in flight have to end first."""

Vector = list[int]
"""Requests, input, output, money, and tokens: input plus output."""

INDEX: Final = {"requests": 0, "input": 1, "output": 2, "money": 3, "tokens": 4}
MEASURES: Final = range(5)
MONEY: Final = INDEX["money"]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    index: int
    span: Span
    limit: int


Rules = tuple[Rule, ...]


def rules_of(draw: Draw) -> Rules:
    return tuple(Rule(bound.name, INDEX[bound.measure], bound.span, limit) for bound, limit in bounds_of(draw))


class Window:
    """Amounts by second; at most `WINDOW_S + 1` steps."""

    __slots__ = ("_steps", "total")

    def __init__(self) -> None:
        self._steps: deque[tuple[int, Vector]] = deque()
        self.total: Vector = [0] * 5

    def add(self, amounts: Vector, now: float) -> None:
        step, total = self._step(now), self.total
        for index in MEASURES:
            amount = amounts[index]
            step[index] += amount
            total[index] += amount

    def add_request(self, now: float) -> None:
        self._step(now)[0] += 1
        self.total[0] += 1

    def _step(self, now: float) -> Vector:
        steps, second = self._steps, int(now)
        if not steps or steps[-1][0] < second:
            steps.append((second, [0] * 5))
        return steps[-1][1]

    def expire(self, now: float) -> None:
        while self._steps and self._steps[0][0] + 1 + WINDOW_S <= now:
            add(self.total, self._steps.popleft()[1], -1)

    def wait(self, index: int, needed: int, now: float) -> float:
        """Seconds until at least `needed` has left the window; the whole window where it never holds so much."""
        freed = 0
        for step, amounts in self._steps:
            freed += amounts[index]
            if freed >= needed:
                return step + 1 + WINDOW_S - now
        return float(WINDOW_S)


@dataclass(slots=True)
class Month:
    """`label` as in "2026-11"; `ends` is the first instant of the next one (UTC), in Unix seconds."""

    label: str
    money: int = 0
    told: set[tuple[float, int]] = field(default_factory=set)
    ends: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends = _end(int(self.label[:4]), int(self.label[5:]))


@dataclass(slots=True)
class Life:
    until: float | None
    used: Vector = field(default_factory=lambda: [0] * 5)


@dataclass(slots=True)
class Counts:
    """The counters of one scope. `month` and `life` are there where a limit asks for them."""

    window: Window = field(default_factory=Window)
    flight: Vector = field(default_factory=lambda: [0] * 5)
    held: Vector = field(default_factory=lambda: [0] * 5)
    month: Month | None = None
    life: Life | None = None

    def roll(self, now: float) -> None:
        """Forget what is over: steps that left the window, last month, a life that has ended."""
        self.window.expire(now)
        if self.month is not None and self.month.ends <= now:
            self.month = None
        if self.life is not None and self.life.until is not None and self.life.until <= now:
            self.life = None

    def at_rest(self, now: float) -> bool:
        if self.flight[0] or (self.month is not None and now < self.month.ends):
            return False
        self.roll(now)
        kept = self.month is not None or self.life is not None
        return not (kept or any(self.flight) or any(self.held) or any(self.window.total))

    def used(self, rule: Rule) -> int:
        """What counts against a bound, what is held included."""
        index = rule.index
        if rule.span == "now":
            return self.flight[index]
        if rule.span == "minute":
            return self.window.total[index] + self.held[index]
        if rule.span == "month":
            return (self.month.money if self.month else 0) + self.held[MONEY]
        return (self.life.used[index] if self.life else 0) + self.held[index]

    def wait(self, rule: Rule, over: int, until: float | None, now: float) -> float:
        """Seconds until `over` units have become free, as far as that is known."""
        if rule.span == "minute":
            return self.window.wait(rule.index, over, now)
        if rule.span == "now" or over <= self.held[rule.index]:
            return BUSY_RETRY_S
        return self._month_left(now) if rule.span == "month" else _left(until, now)

    def room(self, rule: Rule, until: float | None, now: float) -> tuple[int, float]:
        """What counts against a bound, and the seconds until some of it no longer does."""
        index, span = rule.index, rule.span
        if span == "now":
            return self.flight[index], 0.0
        if span == "minute":
            settled = self.window.total[index]
            return settled + self.held[index], self.window.wait(index, 1, now) if settled else 0.0
        return self.used(rule), self._month_left(now) if span == "month" else _left(until, now)

    def begin(self, need: Vector, now: float) -> None:
        """A request has begun: it counts at once, what it needs is held."""
        self.window.add_request(now)
        if self.life is not None:
            self.life.used[0] += 1
        add(self.flight, need)
        held = self.held
        held[1] += need[1]
        held[2] += need[2]
        held[3] += need[3]
        held[4] += need[4]

    def book(self, amounts: Vector, now: float) -> None:
        self.window.add(amounts, now)
        if self.month is not None:
            self.month.money += amounts[MONEY]
        if self.life is not None:
            add(self.life.used, amounts)

    def _month_left(self, now: float) -> float:
        return (month_end(now) if self.month is None else self.month.ends) - now


def month_of(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_end(now: float) -> float:
    """The first instant of the next month (UTC), in Unix seconds."""
    at = datetime.fromtimestamp(now, UTC)
    return _end(at.year, at.month)


def _end(year: int, month: int) -> float:
    return datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()


def _left(until: float | None, now: float) -> float:
    return float(WINDOW_S) if until is None else max(0.0, until - now)


def add(total: Vector, amounts: Vector, sign: int = 1) -> None:
    requests, read, written, money, tokens = amounts
    total[0] += sign * requests
    total[1] += sign * read
    total[2] += sign * written
    total[3] += sign * money
    total[4] += sign * tokens
