"""What each limit counts, over which time: one table, for every store of counters alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from admission.scopes import Scope
from tenancy.errors import InvalidInput
from tenancy.limits import Limits, TenantLimits

__all__ = [
    "BOUNDS",
    "NO_AMOUNTS",
    "REACH_S",
    "WINDOW_S",
    "Amounts",
    "Bound",
    "Budget",
    "Draw",
    "Limits",
    "TenantLimits",
    "bounds_of",
]

WINDOW_S: Final = 60
"""Windows slide in steps of one second. A step counts until its last instant has left the window, so that a true
window of 60 s never holds more than its limit.
"""
REACH_S: Final = WINDOW_S + 1
"""The longest that anything counts in a window."""

Measure = Literal["requests", "input", "output", "tokens", "money"]
Span = Literal["now", "minute", "month", "life"]


class Amounts(msgspec.Struct, frozen=True, gc=False):
    """Requests, tokens read (`input`) and written (`output`), micro-units."""

    requests: int = 0
    input: int = 0
    output: int = 0
    money: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output

    def of(self, measure: Measure) -> int:
        return int(getattr(self, measure))

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.requests + other.requests,
            self.input + other.input,
            self.output + other.output,
            self.money + other.money,
        )

    def __sub__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.requests - other.requests,
            self.input - other.input,
            self.output - other.output,
            self.money - other.money,
        )

    def or_more(self, other: Amounts) -> Amounts:
        """The larger one of each."""
        return Amounts(
            max(self.requests, other.requests),
            max(self.input, other.input),
            max(self.output, other.output),
            max(self.money, other.money),
        )

    def checked(self) -> Amounts:
        """These, where none is negative. Raises `InvalidInput`."""
        if self.requests < 0 or self.input < 0 or self.output < 0 or self.money < 0:
            raise InvalidInput("what was used is never negative", item="amounts")
        return self


NO_AMOUNTS: Final = Amounts()


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scope may use in its whole life, which ends at `Draw.until`; for roots."""

    requests: int | None = None
    tokens: int | None = None
    money: int | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit by `name`: so much of a `measure` in a `span`. What is held counts as used in every span.

    "now" counts what requests in flight hold until they leave; "minute" the sliding window; "month" the calendar month
    (UTC); "life" all that the scope ever used.
    """

    name: str
    measure: Measure
    span: Span
    words: str


BOUNDS: Final = (
    Bound("concurrent", "requests", "now", "requests at one time"),
    Bound("kv_tokens", "tokens", "now", "tokens held at one time"),
    Bound("requests_per_minute", "requests", "minute", "requests a minute"),
    Bound("input_tokens_per_minute", "input", "minute", "input tokens a minute"),
    Bound("output_tokens_per_minute", "output", "minute", "output tokens a minute"),
    Bound("tokens_per_minute", "tokens", "minute", "tokens a minute"),
    Bound("money_per_month", "money", "month", "micro-units a month"),
    Bound("requests", "requests", "life", "requests in all"),
    Bound("tokens", "tokens", "life", "tokens in all"),
    Bound("money", "money", "life", "micro-units in all"),
)


class Draw(msgspec.Struct, frozen=True, gc=False):
    """A scope that a request draws on, with its limits of this moment. After `until` (Unix seconds) it has ended."""

    scope: Scope
    limits: Limits = Limits()
    budget: Budget | None = None
    until: float | None = None


def bounds_of(draw: Draw) -> list[tuple[Bound, int]]:
    """The bounds that are set, with their numbers, in the order of `BOUNDS`."""
    found = []
    for bound in BOUNDS:
        source = draw.budget if bound.span == "life" else draw.limits
        limit = None if source is None else getattr(source, bound.name)
        if limit is not None:
            found.append((bound, int(limit)))
    return found
