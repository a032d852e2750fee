"""How far limits are used, without taking anything: for previews, and for whoever wants to know where they stand."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from admission.counters import Refused, Room, Use
from admission.limits import BOUNDS, REACH_S, WINDOW_S, Amounts, Bound, Draw, Measure, bounds_of
from admission.scopes import SHARED, Scope
from admission.tally import BUSY_RETRY_S, month_end

_MEASURES: Final[dict[str, Measure]] = {bound.name: bound.measure for bound in BOUNDS}


@dataclass(frozen=True, slots=True)
class Look:
    """What a request would need, of `ceiling` output tokens at most; the caller's own `rooms`; what would refuse it."""

    need: Amounts
    ceiling: int
    rooms: tuple[Room, ...]
    refused: Refused | None


class _Read(Protocol):
    async def use(self, scope: Scope) -> Use: ...


async def rooms_of(counters: _Read, draws: Iterable[Draw]) -> tuple[Room, ...]:
    """All bounds of `draws` as they stand. Each scope is read in a step of its own, so that requests which come and go
    meanwhile show in some and not in others; `resets_s` is the longest that it can take.
    """
    now = time.time()
    found: list[Room] = []
    for draw in draws:
        use = await counters.use(draw.scope)
        for bound, limit in bounds_of(draw):
            used = _used(use, bound)
            found.append(Room(draw.scope, bound.name, limit, used, _resets(bound, draw, used, now)))
    return tuple(found)


def refused_by(rooms: Iterable[Room], need: Amounts) -> Refused | None:
    """What would refuse a request that needs `need`: the bound with the longest wait. How far limits that tenants share
    are used stays out of it: who looks often, at no cost, would learn what the others use.
    """
    found = []
    for room in rooms:
        needed, used = need.of(_MEASURES[room.bound]), 0 if room.scope.kind in SHARED else room.used
        if used + needed > room.limit:
            wait = max(BUSY_RETRY_S, room.resets_s)
            found.append(Refused(room.scope, room.bound, room.limit, used, needed, wait))
    return max(found, key=lambda refused: refused.retry_after, default=None)


def own(rooms: Iterable[Room]) -> tuple[Room, ...]:
    """Those of the caller: what tenants share says nothing to one of them."""
    return tuple(room for room in rooms if room.scope.kind not in SHARED)


def _used(use: Use, bound: Bound) -> int:
    if bound.span == "now":
        return use.flight.of(bound.measure)
    settled = {"minute": use.minute, "month": use.month, "life": use.life}[bound.span]
    return settled.of(bound.measure) + use.held.of(bound.measure)


def _resets(bound: Bound, draw: Draw, used: int, now: float) -> float:
    if bound.span == "now":
        return 0.0
    if bound.span == "minute":
        return float(REACH_S) if used else 0.0
    if bound.span == "month":
        return month_end(now) - now
    return float(WINDOW_S) if draw.until is None else max(0.0, draw.until - now)
