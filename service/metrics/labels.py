"""Which tenants have a label of their own: the busiest, up to a number; all others are "other".

A series counts what happened while its tenant had the label, and ends when another takes its place. So each series only
grows, and nothing is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

OTHER: Final = "other"

_FACTOR: Final = 8
"""Tenants counted for each label."""
_EVERY: Final = 4_096
"""Requests between two choices of the labelled."""


class TenantLabels:
    """At most `most` names besides "other". `ended` is told a name whose series end.

    Counts are those of Space-Saving (Metwally, Agrawal and El Abbadi, ICDT 2005) and halve with every choice: whoever
    is busy now is in, whoever was is out, in memory that no number of tenants makes grow.
    """

    def __init__(self, most: int, ended: Callable[[str], None]) -> None:
        self._most = most
        self._ended = ended
        self._counts: dict[str, float] = {}
        self._named: set[str] = set()
        self._until = _EVERY

    def of(self, tenant: str) -> str:
        """The label for one more request of `tenant`. A tenant that is called "other" is one of the others."""
        if tenant == OTHER or not self._most:
            return OTHER
        self._count(tenant)
        self._until -= 1
        if not self._until:
            self._choose()
        if tenant not in self._named and len(self._named) < self._most:
            self._named.add(tenant)
        return tenant if tenant in self._named else OTHER

    @property
    def named(self) -> Iterable[str]:
        return frozenset(self._named)

    def _count(self, tenant: str) -> None:
        counts = self._counts
        if tenant in counts or len(counts) < _FACTOR * self._most:
            counts[tenant] = counts.get(tenant, 0.0) + 1
            return
        least = min(counts, key=counts.__getitem__)
        counts[tenant] = counts.pop(least) + 1

    def _choose(self) -> None:
        self._until = _EVERY
        busiest = set(sorted(self._counts, key=self._counts.__getitem__, reverse=True)[: self._most])
        for name in self._named - busiest:
            self._ended(name)
        self._named &= busiest
        self._counts = {name: count / 2 for name, count in self._counts.items() if count > 1}
