"""Open collections within a budget of bytes: closing disturbs no search, loads wait for room, and never for ever."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from indexing import loading
from indexing.collections import open as open_module
from indexing.collections.memory import Memory, NoRoom
from indexing.collections.open import OpenCollections
from indexing.collections.size import estimate
from indexing.model import require_model
from indexing.snapshot import READABLE_KEPT
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Authenticator, Principal
from tests.support.people import Company
from tests.support.shelf import DIMENSION, FINGERPRINT, Shelf

EAST = [1.0, 0.0, 0.0, 0.0]
VECTOR = np.array(EAST, dtype=np.float32)
TENANTS = 6


class Street:
    """Several tenants of about the same size, over one `OpenCollections`."""

    def __init__(self, tenants: Tenants, authenticator: Authenticator) -> None:
        self.shelves = [Shelf(Company(tenants, authenticator, f"t{number}")) for number in range(TENANTS)]
        self.people: list[Principal] = [shelf.company.principal("ana") for shelf in self.shelves]
        for shelf in self.shelves:
            shelf.put("a", *[f"word number {number}" for number in range(20)], allow=["tenant"])
        self.open(2**30)
        self.one = self.shelves[0].scope(self.people[0])[1].nbytes
        with self.shelves[0].company.handle.reading() as view:
            self.size = estimate(view, require_model(view, FINGERPRINT), DIMENSION)

    def open(self, budget: int, **named: float) -> OpenCollections:
        self.collections = OpenCollections(FINGERPRINT, budget, **named)  # type: ignore[arg-type]
        for shelf in self.shelves:
            shelf.collections = self.collections
        return self.collections

    def search(self, number: int) -> int:
        return len(self.shelves[number].dense(self.people[number], EAST, 5))


@pytest.fixture
def street(tenants: Tenants, authenticator: Authenticator) -> Street:
    return Street(tenants, authenticator)


def test_the_least_recently_used_leave_memory(street: Street) -> None:
    collections = street.open(street.size.peak + 2 * street.one, wait_s=0)
    for number in range(TENANTS):
        assert street.search(number) == 5
        assert street.search(0) == 5
        assert collections.nbytes <= street.size.peak + 2 * street.one
    names = [street.shelves[number].company.handle.tenant_id for number in (0, TENANTS - 1)]
    assert collections.tenants >= set(names)
    assert 2 <= collections.open_tenants < TENANTS
    collections.close(names[0])
    assert names[0] not in collections.tenants


def test_a_snapshot_in_use_stays_valid_counts_on_and_is_not_loaded_twice(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = street.open(street.size.peak + street.one, wait_s=0)
    domain, held = street.shelves[0].scope(street.people[0])
    for number in range(1, TENANTS):
        street.search(number)
    assert collections.open_tenants == 1
    assert len(held.dense(domain, VECTOR, 5)) == 5
    assert collections.nbytes >= held.nbytes + street.one
    monkeypatch.setattr(loading, "load", None)
    assert street.shelves[0].scope(street.people[0])[1] is held


def test_what_a_search_lets_go_is_given_back(street: Street) -> None:
    collections = street.open(street.size.peak + street.one, wait_s=0)
    held = street.shelves[0].scope(street.people[0])
    collections.close(held[1].tenant_id)
    assert collections.nbytes > 0
    del held
    assert collections.nbytes == 0


def test_a_load_that_does_not_fit_beside_what_is_in_use_is_refused_in_time(street: Street) -> None:
    street.open(street.size.peak, wait_s=0.05)
    held = street.shelves[0].scope(street.people[0])
    with pytest.raises(Unavailable, match="in use") as caught:
        street.search(1)
    assert (caught.value.item, "raise" in str(caught.value.remedy)) == ("collections.budget", True)
    assert street.search(0) == 5
    del held
    assert street.search(1) == 5


def test_a_load_waits_until_a_search_ends(street: Street) -> None:
    street.open(street.size.peak, wait_s=30)
    held = street.shelves[0].scope(street.people[0])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(street.search, 1)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        del held
        assert waiting.result(10) == 5


def test_no_more_than_so_many_wait_at_one_time(street: Street) -> None:
    collections = street.open(street.size.peak, wait_s=30, waiters=1)
    held = street.shelves[0].scope(street.people[0])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(street.search, 1)
        while collections._memory._waiters._value:  # type: ignore[union-attr]
            pass
        with pytest.raises(Unavailable):
            street.search(2)
        with pytest.raises(Unavailable):
            street.search(1)
        assert street.search(0) == 5
        del held
        assert waiting.result(10) == 5
    street.open(street.size.peak, wait_s=30, waiters=0)
    held = street.shelves[0].scope(street.people[0])
    with pytest.raises(Unavailable):
        street.search(1)
    del held


def test_a_tenant_larger_than_the_budget_is_refused_with_the_setting_to_raise(street: Street) -> None:
    collections = street.open(street.size.kept - 1, wait_s=30)
    for _ in range(2):
        with pytest.raises(Unavailable, match="needs about") as caught:
            street.search(0)
        assert "raise collections.budget" in str(caught.value.remedy)
    assert collections.nbytes == 0
    street.open(street.size.kept)
    assert street.search(0) == 5


def test_a_tenant_that_outgrows_the_budget_is_refused_and_gives_its_memory_back(street: Street) -> None:
    collections = street.open(street.size.peak, wait_s=0)
    assert street.search(0) == 5
    texts = [f"much longer text about matter {number}" for number in range(2_000)]
    street.shelves[0].put("b", *texts, allow=["tenant"])
    with pytest.raises(Unavailable, match="needs about"):
        street.search(0)
    assert street.search(1) == 5
    assert collections.nbytes <= street.size.peak


def test_concurrent_cold_opens_never_overshoot_together(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = 2 * street.size.peak
    collections = street.open(budget, wait_s=30, waiters=TENANTS)
    most: list[int] = []
    at_once: list[int] = []
    inside = 0
    lock = threading.Lock()
    load = loading.load

    def watched(*arguments: object) -> object:
        nonlocal inside
        with lock:
            inside += 1
            at_once.append(inside)
        most.append(collections.nbytes)
        try:
            return load(*arguments)  # type: ignore[arg-type]
        finally:
            with lock:
                inside -= 1

    monkeypatch.setattr(open_module.loading, "load", watched)
    with ThreadPoolExecutor(TENANTS) as pool:
        for _ in range(5):
            assert list(pool.map(street.search, range(TENANTS))) == [5] * TENANTS
    assert max(most) <= budget
    assert max(at_once) <= 2


def test_segments_that_two_snapshots_share_count_once(street: Street) -> None:
    collections = street.open(2**30)
    first = street.shelves[0].scope(street.people[0])
    before = collections.nbytes
    street.shelves[0].put("b", "word", vectors=[EAST], allow=["tenant"])
    second = street.shelves[0].scope(street.people[0])
    assert before < collections.nbytes < first[1].nbytes + second[1].nbytes
    del first, second
    street.shelves[0].company.member("legal", "user:bo")
    assert collections.nbytes < before + 20_000


def test_readable_sets_count_and_are_bounded(street: Street) -> None:
    collections = street.open(2**30)
    shelf = street.shelves[0]
    domain, snapshot = shelf.scope(street.people[0])
    before = collections.nbytes
    snapshot.dense(domain, VECTOR, 5)
    one = collections.nbytes - before
    assert one > 20
    snapshot.dense(domain, VECTOR, 5)
    assert collections.nbytes == before + one
    for number in range(READABLE_KEPT + 20):
        name = f"user{number}"
        shelf.company.access("a", allow=["tenant", *(f"user:user{other}" for other in range(number + 1))])
        person = shelf.company.principal(name)
        domain, snapshot = shelf.scope(person)
        snapshot.dense(domain, VECTOR, 5)
    assert collections.nbytes < 2 * before + (READABLE_KEPT + 1) * one
    del domain, snapshot
    collections.close(shelf.company.handle.tenant_id)
    assert collections.nbytes == 0


def test_an_estimate_is_near_and_never_far_below(street: Street) -> None:
    assert street.one <= street.size.kept < 2 * street.one
    assert street.size.kept < street.size.peak


def test_a_failed_load_gives_its_reservation_back(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    collections = street.open(street.size.peak, wait_s=0)
    with monkeypatch.context() as patched:
        patched.setattr(open_module.loading, "load", lambda *_: 1 / 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                street.search(0)
    assert collections.nbytes == 0
    assert street.search(0) == 5


def test_nothing_of_a_tenant_stays_behind(street: Street) -> None:
    collections = street.open(street.size.peak, wait_s=0)
    for _ in range(3):
        for number in range(TENANTS):
            street.search(number)
    assert len(collections._turns) == 0
    assert len(collections._memory.tenants) == collections.open_tenants == 1


def test_bytes_come_back_from_objects_that_are_collected_in_a_cycle() -> None:
    class Piece:
        nbytes = 100

    memory = Memory(150, lambda: False, wait_s=0, waiters=0, setting="x")
    piece = Piece()
    piece.itself = piece  # type: ignore[attr-defined]
    memory.hold("t", piece)
    memory.hold("t", piece)
    assert (memory.used, memory.of("t")) == (100, 100)
    with pytest.raises(NoRoom), memory.reserved("u", 100, 100):
        pass
    with memory.reserved("t", 100, 100):
        assert memory.used == 200
    del piece
    gc.collect()
    assert (memory.used, memory.tenants) == (0, set())
    with memory.reserved("u", 1_000, 100):
        assert memory.used == 150
    with pytest.raises(Unavailable), memory.reserved("u", 151, 151):
        pass
    with pytest.raises(InvalidInput):
        Memory(-1, lambda: False, wait_s=0, waiters=0, setting="x")
