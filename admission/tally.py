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
        if not any(amounts):
            return
        step = int(now // 1)
        if not self._steps or self._steps[-1][0] < step:
            self._steps.append((step, [0] * 5))
        add(self._steps[-1][1], amounts)
        add(self.total, amounts)

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
    label: str
    money: int = 0
    told: set[tuple[float, int]] = field(default_factory=set)


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
        if self.month is not None and self.month.label != month_of(now):
            self.month = None
        if self.life is not None and self.life.until is not None and self.life.until <= now:
            self.life = None

    def at_rest(self, now: float) -> bool:
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
        return month_end(now) - now if rule.span == "month" else _left(until, now)

    def resets(self, rule: Rule, until: float | None, now: float) -> float:
        if rule.span == "now":
            return 0.0
        if rule.span == "minute":
            return self.window.wait(rule.index, 1, now) if self.window.total[rule.index] else 0.0
        return month_end(now) - now if rule.span == "month" else _left(until, now)

    def book(self, amounts: Vector, now: float) -> None:
        self.window.add(amounts, now)
        if self.month is not None:
            self.month.money += amounts[MONEY]
        if self.life is not None:
            add(self.life.used, amounts)


def month_of(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m")


def month_end(now: float) -> float:
    """The first instant of the next month (UTC), in Unix seconds."""
    at = datetime.fromtimestamp(now, UTC)
    year, month = (at.year + 1, 1) if at.month == 12 else (at.year, at.month + 1)
    return datetime(year, month, 1, tzinfo=UTC).timestamp()


def _left(until: float | None, now: float) -> float:
    return float(WINDOW_S) if until is None else max(0.0, until - now)


def add(total: Vector, amounts: Vector, sign: int = 1) -> None:
    requests, read, written, money, tokens = amounts
    total[0] += sign * requests
    total[1] += sign * read
    total[2] += sign * written
    total[3] += sign * money
    total[4] += sign * tokens
