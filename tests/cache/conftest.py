"""Fixtures of the cache tests: a store with a clock, a readable document, and two people who may read it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache.policy import CachePolicy
from cache.stores.local import LocalStore
from tests.cache.desk import Clock, Desk
from tests.support.people import Company


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> LocalStore:
    return LocalStore(CachePolicy(), clock=clock)


@pytest.fixture
def handbook(acme: Company) -> int:
    acme.member("staff", "user:ana", "user:bo")
    return acme.document("handbook", allow=["group:staff"])


@pytest.fixture
def desk_of(acme: Company, store: LocalStore) -> Callable[[str], Desk]:
    return lambda user: Desk(acme, acme.principal(user), store)


@pytest.fixture
def ana(desk_of: Callable[[str], Desk], handbook: int) -> Desk:
    return desk_of("ana")


@pytest.fixture
def bo(desk_of: Callable[[str], Desk], handbook: int) -> Desk:
    return desk_of("bo")
