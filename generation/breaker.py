"""A circuit breaker: a server that fails again and again is left alone for a while, and then tried with one request.

Source: M. Nygard, Release It! (2007), chapter 5. The pause doubles with each failed trial and is drawn at random
between its half and its whole, so that many clients do not come back at one instant.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """After `failures` in a row the server is left alone for up to `pause_s` seconds, doubling up to `longest_s`."""

    failures: int = 3
    pause_s: float = 1.0
    longest_s: float = 30.0


class Breaker:
    """Of one server, within one event loop. Whoever begins a trial ends it: by a success, a failure or `abandon`."""

    def __init__(
        self,
        terms: BreakerTerms | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._terms = terms or BreakerTerms()
        self._clock = clock
        self._jitter = jitter
        self._failures = 0
        self._openings = 0
        self._until: float | None = None
        self._trial = False

    @property
    def state(self) -> State:
        if self._until is None:
            return "closed"
        return "half-open" if self._clock() >= self._until else "open"

    @property
    def permits(self) -> bool:
        """Whether a request may be sent now."""
        return self.state == "closed" or (self.state == "half-open" and not self._trial)

    @property
    def retry_after(self) -> float:
        """Seconds until a request may be tried; 0 where one may now."""
        return 0.0 if self._until is None else max(0.0, self._until - self._clock())

    def begin(self) -> bool:
        """A request is sent; whether it is the trial of a server that failed before."""
        trial = self.state == "half-open" and not self._trial
        self._trial = self._trial or trial
        return trial

    def abandon(self) -> None:
        """The trial ended without telling anything about the server; a no-op where a verdict came before."""
        self._trial = False

    def succeed(self, *, trial: bool = False) -> None:
        """The server answered. While it is left alone, only the trial's answer counts."""
        if self._until is None:
            self._failures = 0
        elif trial:
            self._until, self._trial = None, False
            self._failures = self._openings = 0

    def fail(self) -> None:
        if self._until is not None and self.state == "open":
            return
        self._failures += 1
        if self._until is not None or self._failures >= self._terms.failures:
            self.trip()

    def trip(self) -> None:
        """Leave the server alone from now on: it is wrong in a way that no repetition mends."""
        pause = min(self._terms.longest_s, self._terms.pause_s * 2**self._openings)
        self._openings = min(self._openings + 1, 30)
        self._trial = False
        self._until = self._clock() + self._jitter(pause / 2, pause)
