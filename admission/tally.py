"""What one scope counts, in memory: a row of numbers, and the steps of a sliding window.

All of this happens several times for each question, so that it is laid out for speed. What counts against a bound is
the sum of two places of the row, whatever its span, and nothing is made anew but the steps of a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from admission.limits import REACH_S, WINDOW_S, Bound, Draw, Span, bounds_of

BUSY_RETRY_S: Final = 1.0
"""What a refusal says where requests in flight have to end first."""

Vector = list[int]
"""Requests, input, output, money, and tokens: input plus output."""

INDEX: Final = {"requests": 0, "input": 1, "output": 2, "money": 3, "tokens": 4}

# Where in a row a vector begins: of what is held by requests that have not settled; of what those that have settled,
# and not left, had held; of the window; of a life. A request counts in the window and in a life as it begins. A month
# has its money alone. The last place stays 0.
HELD: Final = 0
SETTLED: Final = 5
MINUTE: Final = 10
LIFE: Final = 15
MONTH: Final = 20
NOTHING: Final = 21
_ROW: Final = [0] * 22
_NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class Rule:
    """A bound with its number. What counts against it is the sum of two places of a row: `booked`, and `held`."""

    name: str
    index: int
    span: Span
    limit: int
    booked: int
    held: int


Rules = tuple[Rule, ...]


def rules_of(draw: Draw) -> Rules:
    return tuple(
        Rule(bound.name, INDEX[bound.measure], bound.span, limit, *_places(bound)) for bound, limit in bounds_of(draw)
    )


def _places(bound: Bound) -> tuple[int, int]:
    index = INDEX[bound.measure]
    if bound.span == "now":
        return SETTLED + index, HELD + index
    booked = {"minute": MINUTE + index, "month": MONTH, "life": LIFE + index}[bound.span]
    return booked, NOTHING if bound.measure == "requests" else HELD + index


@dataclass(frozen=True, slots=True)
class Month:
    """`label` as in "2026-11"; from `begins` up to `ends`, in Unix seconds."""

    label: str
    begins: float
    ends: float

    @classmethod
    def at(cls, now: float) -> Month:
        """The month (UTC) of this moment."""
        first = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return cls(month_of(now), first.timestamp(), month_end(now))


class Counts(msgspec.Struct, eq=False, gc=False):
    """The counters of one scope. `month` is there where a limit has money in it, `told` what alerts went out in it;
    `life_ends`, where the scope has a budget, is an instant or infinity. `steps` are amounts by second, oldest first,
    at most `WINDOW_S + 1`; `step` is the one of `second`, the newest.

    Whoever reads or adds anything calls `roll` before, where `over` has come: from then on something is over.
    """

    row: Vector = msgspec.field(default_factory=_ROW.copy)
    steps: list[tuple[int, Vector]] = []
    second: int = _NEVER
    step: Vector = []
    month: Month | None = None
    told: tuple[tuple[float, int], ...] = ()
    life_ends: float | None = None
    over: float = math.inf

    def roll(self, now: float) -> None:
        """Forget what is over: steps that left the window, last month, a life that has ended."""
        steps = self.steps
        while steps and steps[0][0] + REACH_S <= now:
            _, amounts = steps.pop(0)
            for index, amount in enumerate(amounts, MINUTE):
                self.row[index] -= amount
        if not steps:
            self.second = _NEVER
        if self.month is not None and self.month.ends <= now:
            self.month, self.told, self.row[MONTH] = None, (), 0
        if self.life_ends is not None and self.life_ends <= now:
            self.life_ends, self.row[LIFE : LIFE + 5] = None, [0] * 5
        self.over = min(
            steps[0][0] + REACH_S if steps else math.inf,
            math.inf if self.month is None else self.month.ends,
            math.inf if self.life_ends is None else self.life_ends,
        )

    def begin_month(self, month: Month, money: int = 0) -> None:
        self.month, self.row[MONTH] = month, money
        if month.ends < self.over:
            self.over = month.ends

    def begin_life(self, ends: float, used: Vector) -> None:
        self.life_ends, self.row[LIFE : LIFE + 5] = ends, used
        self.over = min(self.over, ends)

    def at_rest(self, now: float) -> bool:
        # First what most are told by: the scopes of a thousand tenants are in no cache of the processor.
        if (self.month is not None and now < self.month.ends) or self.row[HELD]:
            return False
        self.roll(now)
        return not (self.month is not None or self.life_ends is not None or any(self.row))

    def wait(self, rule: Rule, over: int, until: float | None, now: float) -> float:
        """Seconds until `over` units have become free, as far as that is known."""
        if rule.span == "minute":
            return self._leaves(rule.index, over, now)
        if rule.span == "now" or over <= self.row[rule.held]:
            return BUSY_RETRY_S
        return self._month_left(now) if rule.span == "month" else _left(until, now)

    def resets(self, rule: Rule, until: float | None, now: float) -> float:
        """Seconds until some of what is booked against a bound of a time no longer counts."""
        if rule.span == "minute":
            return self._leaves(rule.index, 1, now) if self.row[rule.booked] else 0.0
        return self._month_left(now) if rule.span == "month" else _left(until, now)

    def turn(self, second: int) -> None:
        """A step of the window begins: whoever adds to `step` calls this before, where `second` is a later one."""
        self.second, self.step = second, [0] * 5
        self.steps.append((second, self.step))
        if second + REACH_S < self.over:
            self.over = second + REACH_S

    def _leaves(self, index: int, needed: int, now: float) -> float:
        """Seconds until at least `needed` has left the window; the whole window where it never holds so much."""
        freed = 0
        for second, amounts in self.steps:
            freed += amounts[index]
            if freed >= needed:
                return second + REACH_S - now
        return float(WINDOW_S)

    def _month_left(self, now: float) -> float:
        return (month_end(now) if self.month is None else self.month.ends) - now


def begin(scopes: Iterable[Counts], need: Vector, second: int) -> None:
    """A request has begun at all of `scopes`: it counts at once, and holds what it needs."""
    _, read, written, money, tokens = need
    for counts in scopes:
        if counts.second < second:
            counts.turn(second)
        counts.step[0] += 1
        row = counts.row
        row[0] += 1
        row[1] += read
        row[2] += written
        row[3] += money
        row[4] += tokens
        row[10] += 1
        if counts.life_ends is not None:
            row[15] += 1


def hold(scopes: Iterable[Counts], change: Vector) -> None:
    """A request that has begun holds more, or less where it is below zero."""
    _, read, written, money, tokens = change
    for counts in scopes:
        row = counts.row
        row[1] += read
        row[2] += written
        row[3] += money
        row[4] += tokens


def settle(scopes: Iterable[Counts], held: Vector, used: Vector, second: int) -> None:
    """What was used takes the place of what was held, which stays in flight."""
    _, held_read, held_written, held_money, held_tokens = held
    _, read, written, money, tokens = used
    for counts in scopes:
        row = counts.row
        row[0] -= 1
        row[1] -= held_read
        row[2] -= held_written
        row[3] -= held_money
        row[4] -= held_tokens
        row[5] += 1
        row[6] += held_read
        row[7] += held_written
        row[8] += held_money
        row[9] += held_tokens
        row[11] += read
        row[12] += written
        row[13] += money
        row[14] += tokens
        if counts.month is not None:
            row[20] += money
        if counts.life_ends is not None:
            row[16] += read
            row[17] += written
            row[18] += money
            row[19] += tokens
        if counts.second < second:
            counts.turn(second)
        step = counts.step
        step[1] += read
        step[2] += written
        step[3] += money
        step[4] += tokens


def leave(scopes: Iterable[Counts], held: Vector) -> None:
    """A request that has settled is gone."""
    _, read, written, money, tokens = held
    for counts in scopes:
        row = counts.row
        row[5] -= 1
        row[6] -= read
        row[7] -= written
        row[8] -= money
        row[9] -= tokens


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
