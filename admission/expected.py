"""How long answers get: a moving average per user and model, so that neither too much nor too little is reserved."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

LEAST_OUTPUT: Final = 64
FIRST_OUTPUT: Final = 256
"""What is expected of whoever has no history here."""
_WEIGHT: Final = 0.2
_KEPT: Final = 10_000

_Averages = OrderedDict[tuple[str, str], float]


class ExpectedOutput:
    """One thread at a time. Keeps `kept` averages of all tenants together. With more to keep, each tenant has an equal
    share: whoever has more forgets those of its users that asked longest ago, and nobody else loses any.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._count = 0
        self._tenants: dict[str, _Averages] = {}

    def of(self, tenant: str, user: str, model: str, most: int) -> int:
        """Tokens of the next answer, within [64, `most`], or `most` where that is less."""
        averages = self._tenants.get(tenant)
        average = FIRST_OUTPUT if averages is None else averages.get((user, model), FIRST_OUTPUT)
        expected = LEAST_OUTPUT if average < LEAST_OUTPUT else round(average)
        return expected if expected < most else most

    def learn(self, tenant: str, user: str, model: str, produced: int) -> None:
        """An answer of `produced` tokens was generated."""
        key = (user, model)
        averages = self._tenants.get(tenant)
        if averages is None:
            averages = self._tenants[tenant] = OrderedDict()
        average = averages.get(key)
        if average is not None:
            averages[key] = average + _WEIGHT * (produced - average)
            averages.move_to_end(key)
            return
        averages[key] = produced
        self._count += 1
        if self._count > self._kept:
            self._forget(tenant)

    def _forget(self, newest: str) -> None:
        """`newest` has just learnt. Only where it has no more than its share are all tenants looked through."""
        share = max(1, self._kept // len(self._tenants))
        owner = newest
        if len(self._tenants[newest]) <= share:
            owner = max(self._tenants, key=lambda tenant: len(self._tenants[tenant]))
        averages = self._tenants[owner]
        averages.popitem(last=False)
        self._count -= 1
        if not averages:
            del self._tenants[owner]
