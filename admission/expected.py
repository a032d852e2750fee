"""How long answers get: a moving average per user and model, so that neither too much nor too little is reserved."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

LEAST_OUTPUT: Final = 64
FIRST_OUTPUT: Final = 256
"""What is expected of whoever has no history here."""
_WEIGHT: Final = 0.2
_KEPT: Final = 10_000


class ExpectedOutput:
    """Thread-safe; forgets whoever asked longest ago."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._averages: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tenant: str, user: str, model: str, most: int) -> int:
        """Tokens of the next answer, within [64, `most`], or `most` where that is less."""
        with self._lock:
            average = self._averages.get((tenant, user, model), FIRST_OUTPUT)
        return min(most, max(LEAST_OUTPUT, round(average)))

    def learn(self, tenant: str, user: str, model: str, produced: int) -> None:
        """An answer of `produced` tokens was generated."""
        key = (tenant, user, model)
        with self._lock:
            average = self._averages.pop(key, None)
            self._averages[key] = produced if average is None else average + _WEIGHT * (produced - average)
            if len(self._averages) > self._kept:
                self._averages.popitem(last=False)
