"""When entries last served, kept in memory until the next write: a hit should not cost one."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

USES: Final = 1_000
"""Entries of a tenant whose last use waits; an older use is lost, and with it an order of eviction."""

TENANTS: Final = 1_024
"""Tenants with such uses; the one that served least recently loses them, whatever the others served."""


class Uses:
    """By tenant id, then by a name of the entry; a fixed number of both. Safe for threads."""

    def __init__(self) -> None:
        self._used: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, tenant_id: str, entry: str, at: float) -> None:
        with self._lock:
            used = self._used.setdefault(tenant_id, OrderedDict())
            self._used.move_to_end(tenant_id)
            used[entry] = at
            used.move_to_end(entry)
            if len(used) > USES:
                used.popitem(last=False)
            if len(self._used) > TENANTS:
                self._used.popitem(last=False)

    def take(self, tenant_id: str) -> dict[str, float]:
        with self._lock:
            return dict(self._used.pop(tenant_id, {}))

    @property
    def tenants(self) -> set[str]:
        with self._lock:
            return set(self._used)
