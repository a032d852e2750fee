"""What a contract promises, held against what was measured.

A window with few requests says little about a 99th percentile, so that windows are joined until there are enough. It is
a comparison of figures with targets, no statistical test. Each server judges what it served itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from service.metrics.windows import Window
from tenancy.objectives import Objectives

LEAST: Final = 100
"""Answers, or requests, without which nothing is judged."""
LEAST_DUE: Final = 10_000.0
"""Work due (tokens read + 2 x tokens written) without which a share is not judged."""
FORGET_S: Final = 86_400.0
"""Seconds after which windows that never came to enough are left out."""

Objective = Literal["p99_s", "share", "availability"]
_SLOWEST: Final = 0.01


@dataclass(frozen=True, slots=True)
class Breach:
    """`found` against `target` in one span (UTC epoch seconds), of `count` requests, or of so much work due."""

    objective: Objective
    target: float
    found: float
    count: int
    since: float
    until: float


def enough(window: Window, now: float) -> bool:
    """Whether `window` can be judged, or is so old that it is to be judged by what is there."""
    return window.served >= LEAST or now - window.since > FORGET_S


def breaches(agreed: Objectives, window: Window) -> list[Breach]:
    """The objectives that `window` misses; one for which there is too little to say is none."""
    found: list[Breach] = []

    def missed(objective: Objective, target: float, value: float, count: int) -> None:
        found.append(Breach(objective, target, value, count, window.since, window.until))

    if agreed.p99_s is not None and window.total.count >= LEAST:
        # Only those that are slower for sure, whatever the sketch rounds.
        slower = window.total.surely_above(agreed.p99_s)
        if slower > _SLOWEST * window.total.count:
            missed("p99_s", agreed.p99_s, window.total.quantile(0.99) or 0.0, window.total.count)
    if agreed.availability is not None and window.served >= LEAST:
        available = 1 - window.system / window.served
        if available < agreed.availability:
            missed("availability", agreed.availability, available, window.served)
    if agreed.share is not None and window.share.due >= LEAST_DUE:
        ratio = window.share.ratio or 0.0
        if ratio < agreed.share:
            missed("share", agreed.share, ratio, round(window.share.due))
    return found
