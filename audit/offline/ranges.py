"""Ranges of record numbers, each (first, last), both within."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Ranges:
    """Those of `given`, in any order and overlapping or not."""

    def __init__(self, given: Iterable[tuple[int, int]]) -> None:
        self._merged: list[tuple[int, int]] = []
        for first, last in sorted(given):
            if self._merged and first <= self._merged[-1][1] + 1:
                begun, until = self._merged[-1]
                self._merged[-1] = (begun, max(until, last))
            elif first <= last:
                self._merged.append((first, last))
        self._firsts = [first for first, _ in self._merged]

    def past(self, place: int) -> int:
        """The first number from `place` on that is in none of them."""
        at = bisect_right(self._firsts, place) - 1
        return place if at < 0 else max(place, self._merged[at][1] + 1)
