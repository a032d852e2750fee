"""Named places where a test can hold a thread, to try the orders in which processes may come to meet.

Nothing happens at them in the product: `reached` looks at one variable. Tests that interleave two processes set it
(`tests/isolation/interleaving`); they all stand in worker threads, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

Point = Literal[
    "cache",
    "cache-checked",
    "hit",
    "hit-checked",
    "scope",
    "searched",
    "hydrated",
    "recheck",
    "rechecked",
    "store",
    "commit",
    "committed",
]

_hold: Callable[[Point], None] | None = None


def reached(point: Point) -> None:
    """A thread of the product is at `point`."""
    if _hold is not None:
        _hold(point)


def hold_at(hold: Callable[[Point], None] | None) -> None:
    """Call `hold` at each point from now on; for tests."""
    global _hold
    _hold = hold
