"""Exact: the same question again, in the same namespace."""

from __future__ import annotations

import hmac
from typing import Final

from cache.decision import Asked, Reason
from cache.entry import Entry
from cache.stores.port import CacheStore
from cache.verdict import Verdict, passed, veto
from tenancy.errors import Corrupt, Unavailable
from tenancy.tenant import TenantHandle

NAME: Final = "exact"


def fetch(tenant: TenantHandle, store: CacheStore, asked: Asked) -> tuple[Verdict, Entry | None]:
    """The entry under the exact key. A store that is out of reach has nothing."""
    try:
        entry = store.get(tenant, asked.namespace, asked.exact)
    except (Unavailable, Corrupt):
        return veto(NAME, Reason.STORE_AWAY), None
    return (veto(NAME, Reason.ABSENT), None) if entry is None else (passed(NAME), entry)


def check(asked: Asked, entry: Entry) -> Verdict:
    """The entry's own key, whatever key it was found under."""
    return passed(NAME) if hmac.compare_digest(entry.exact, asked.exact) else veto(NAME, Reason.CORRUPT)
