"""Served hits that wait to be written: a hit costs no write, and what a crash loses only makes suspending easier."""

from __future__ import annotations

import threading
from typing import Final

from tenancy.tenant import TenantHandle

FULL: Final = 512
"""So many hits of a tenant are written at once, if nothing else writes them before."""

Key = tuple[str, str, str]
"""Template, ladder version, namespace as the audit names it."""


class Tally:
    """Hits of each tenant since they were last taken."""

    def __init__(self) -> None:
        self._hits: dict[str, dict[Key, int]] = {}
        self._lock = threading.Lock()

    def add(self, tenant: TenantHandle, key: Key) -> bool:
        """Count one hit; returns whether so many wait that they should be written now."""
        with self._lock:
            hits = self._hits.setdefault(tenant.tenant_id, {})
            hits[key] = hits.get(key, 0) + 1
            return sum(hits.values()) >= FULL

    def take(self, tenant: TenantHandle) -> dict[Key, int]:
        """What waits, for whoever writes it in a transaction; give it back (`put_back`) where that fails."""
        with self._lock:
            return self._hits.pop(tenant.tenant_id, {})

    def put_back(self, tenant: TenantHandle, hits: dict[Key, int]) -> None:
        with self._lock:
            waiting = self._hits.setdefault(tenant.tenant_id, {})
            for key, number in hits.items():
                waiting[key] = waiting.get(key, 0) + number
