"""A circuit breaker: a back end that is away is asked by one call now and then, not by every question.

closed --`failures` in a row--> open --after a jittered pause--> one probe --> closed, or open for twice as long
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

LONGEST_S: Final = 30.0
"""The pause doubles with every probe that fails, up to so many seconds."""

_draw: Final = random.SystemRandom().uniform


class Breaker:
    """Safe for threads. `pause_s` is the first pause in seconds and `longest_s` the last; each is drawn from its half
    to its whole length.
    """

    def __init__(
        self,
        failures: int,
        pause_s: float,
        *,
        longest_s: float = LONGEST_S,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = _draw,
    ) -> None:
        self._limit = failures
        self._first = pause_s
        self._longest = max(longest_s, pause_s)
        self._clock = clock
        self._draw = draw
        self._lock = threading.Lock()
        self._failed = 0
        self._pause = pause_s
        self._until: float | None = None

    @property
    def is_open(self) -> bool:
        return self._until is not None

    def admits(self) -> bool:
        """Whether a call may be made now. Behind an open breaker one caller gets through: the probe."""
        with self._lock:
            if self._until is None:
                return True
            now = self._clock()
            if now < self._until:
                return False
            # Everybody else goes on waiting, also where this one never comes back.
            self._until = now + self._draw(self._pause / 2, self._pause)
            return True

    def succeeded(self) -> bool:
        """Returns whether this closed it."""
        with self._lock:
            was_open, self._until = self._until is not None, None
            self._failed, self._pause = 0, self._first
            return was_open

    def failed(self, *, at_once: bool = False) -> bool:
        """Returns whether this opened it; `at_once` does not wait for more failures."""
        with self._lock:
            self._failed += 1
            if self._until is not None:
                self._pause = min(2 * self._pause, self._longest)
            elif self._failed < self._limit and not at_once:
                return False
            opened = self._until is None
            self._until = self._clock() + self._draw(self._pause / 2, self._pause)
            return opened
