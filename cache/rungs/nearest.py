"""Nearest: the few entries of the namespace whose questions are closest. Similarity nominates, it serves nothing."""

from __future__ import annotations

from typing import Final

from cache.decision import Asked, Reason
from cache.entry import Entry, Vector
from cache.standing import Standing
from cache.stores.port import CacheStore
from cache.verdict import Verdict, passed, veto
from tenancy.errors import Corrupt, Unavailable
from tenancy.tenant import TenantHandle

NAME: Final = "nearest"


def fetch(
    tenant: TenantHandle, store: CacheStore, asked: Asked, vector: Vector
) -> tuple[Verdict, list[tuple[Entry, float]]]:
    """Candidates with their cosine, best first."""
    try:
        found = store.nearest(tenant, asked.namespace, vector)
    except (Unavailable, Corrupt):
        return veto(NAME, Reason.STORE_AWAY), []
    return (passed(NAME) if found else veto(NAME, Reason.ABSENT)), found


def check(similarity: float, standing: Standing) -> Verdict:
    """At or above the floor of an operator's opening, and a number at all."""
    floor = -1.0 if standing.opening is None else standing.opening.threshold
    # Not `similarity < floor`: a similarity that is not a number has to fail, too.
    if not similarity >= floor:
        return veto(NAME, Reason.BELOW_THRESHOLD, value=similarity)
    return passed(NAME, value=similarity)
