"""Quantiles of many values in little memory: DDSketch (Masson, Rim and Lee, PVLDB 12, 2019)."""

from __future__ import annotations

import math
from typing import Final

ERROR: Final = 0.02
"""Relative error of a quantile, at most."""
LEAST: Final = 1e-5
"""What is smaller counts as this."""
MOST: Final = 1e6
"""What is larger counts as this; so a sketch has at most some 640 buckets."""

_GAMMA: Final = (1 + ERROR) / (1 - ERROR)
_LOG_GAMMA: Final = math.log(_GAMMA)


class Sketch:
    """Counts of values by bucket: bucket i holds those in (gamma^(i-1), gamma^i]."""

    __slots__ = ("buckets", "count")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0

    def add(self, value: float) -> None:
        """Count one value, 0 or more."""
        bucket = math.ceil(math.log(min(max(value, LEAST), MOST)) / _LOG_GAMMA)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.count += 1

    def merge(self, other: Sketch) -> None:
        """Count what `other` counted."""
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count

    def quantile(self, share: float) -> float | None:
        """The value that `share` of all values do not exceed (the nearest rank), within `ERROR`; None of nothing."""
        rank = max(1, math.ceil(share * self.count))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return 2 * _GAMMA**bucket / (_GAMMA + 1)
        return None

    def surely_above(self, value: float) -> int:
        """How many values exceed `value` without doubt: those in its own bucket do not count."""
        limit = math.ceil(math.log(min(max(value, LEAST), MOST)) / _LOG_GAMMA)
        return sum(count for bucket, count in self.buckets.items() if bucket > limit)
