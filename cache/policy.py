"""Limits of a tenant's cache: quotas, life time, staleness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Times in seconds, sizes in bytes; quotas hold per tenant.

    `max_staleness` bounds how long an answer may be served after documents or access lists have moved elsewhere in
    the tenant; the documents that the answer rests on are checked at every hit regardless.
    """

    time_to_live: float = 86_400.0
    max_staleness: float = 600.0
    max_staleness_by_template: Mapping[str, float] = field(default_factory=dict)
    max_entries: int = 100_000
    max_bytes: int = 1 << 30
    nearest: int = 5

    def staleness(self, template: str) -> float:
        return self.max_staleness_by_template.get(template, self.max_staleness)
