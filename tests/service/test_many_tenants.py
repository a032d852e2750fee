"""A tenant that nobody uses costs disk only: after traffic over many, memory depends on the budgets alone."""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from audit.log import AuditLog
from audit.subjects import SubjectKeys
from cache.stores.local import LocalStore
from indexing.segment import Segment
from indexing.snapshot import Snapshot
from tenancy.database import Database, _Connection
from tenancy.tenant import AuditFiles, TenantHandle
from tests.service.house import House

LIMIT = 3
CONNECTIONS = 12
VECTORS = 20_000
"""Bytes for the vectors of remembered answers, about three tenants' too."""
KINDS = (TenantHandle, AuditFiles, AuditLog, SubjectKeys, Snapshot, Segment, Database, _Connection)


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """A house whose budgets are for about three tenants."""
    monkeypatch.setattr("tenancy.control.HANDLES", LIMIT)
    monkeypatch.setattr("audit.logs.LOGS", LIMIT)
    monkeypatch.setattr("cache.stores.uses.TENANTS", LIMIT)
    monkeypatch.setattr("service.wiring.LocalStore", partial(LocalStore, memory_bytes=VECTORS))
    monkeypatch.setattr("tenancy.pools.connections_within", lambda _: CONNECTIONS)
    return House(folder, STRONGROOM_COLLECTIONS__BUDGET="40000")


def alive() -> list[object]:
    gc.collect()
    # Not `isinstance`, which asks the object: some of other libraries warn when they are asked anything.
    return [found for found in gc.get_objects() if issubclass(type(found), KINDS)]


def counted(earlier: list[object]) -> Counter[str]:
    """What is alive by kind, without what earlier tests of this process left, which `earlier` holds on to."""
    known = {id(found) for found in earlier}
    return Counter(type(found).__name__ for found in alive() if id(found) not in known)


@pytest.mark.slow
def test_what_is_in_memory_does_not_grow_with_the_tenants_that_were_served(small: House) -> None:
    counts: list[Counter[str]] = []
    earlier = alive()
    with small.client:
        for first in (0, 12):
            names = [f"t{number:02d}" for number in range(first, first + 12)]
            for name in names:
                small.put(name, "notice.md", "The notice period is three months.", allow=["tenant"])
            for _ in range(2):
                for name in names:
                    answered = small.post("/v1/answers", small.key(name, "ana"), {"query": "How long is the notice?"})
                    assert answered.status_code == 200, answered.text
            services = small.services
            for log in services.control.logs._logs.values():
                log.flush()
            services.control.logs.settle()
            del log
            services.forget_deleted()
            counts.append(counted(earlier))
            assert services.path.collections.nbytes <= 40_000
            assert services.control.tenants._pools.open <= CONNECTIONS
            cache = services.path.cache
            assert isinstance(cache, LocalStore)
            assert 0 < cache.nbytes <= VECTORS
            assert len(cache._uses.tenants) <= LIMIT
            assert len(services.path.collections._turns) == 0
            assert len(services.control.logs._marks) == 0
            assert len(services.loading._lines) == 0
    small.close()
    first, second = counts
    # One more of each may be held by what a thread did last.
    for kind in first | second:
        assert second[kind] <= first[kind] + 2, (first, second)
    assert second["TenantHandle"] <= LIMIT + 2
    assert second["AuditLog"] <= LIMIT + 3
    assert second["_Connection"] <= CONNECTIONS
