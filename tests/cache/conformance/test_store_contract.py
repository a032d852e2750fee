"""What every store promises, `cache/stores/port.py` word for word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cache.entry import Entry, new_entry_id, sealed
from cache.lookup import Hit, Miss
from cache.policy import CachePolicy
from cache.store import Stored
from cache.stores.port import CacheStore
from cache.stores.selector import Selector
from tenancy.errors import InvalidInput
from tests.cache.conformance.rig import Rig
from tests.cache.desk import DIMENSION, Asked, Clock, Desk, unit
from tests.support.people import Company


def entry_of(desk: Desk, asked: Asked, document: int, **changes: object) -> Entry:
    """A sealed entry as `cache.store` makes one."""
    now = desk.store.clock()
    whole = Entry(
        id=new_entry_id(), namespace=asked.namespace.value, exact=asked.exact, template=asked.template,
        question=asked.question, vector=unit(1.0).tobytes(), payload=b'{"answer":"x"}',
        dependencies=((document, "sha256:1"),), acl_epoch=1, corpus_epoch=1, created=now, expires=now + 3_600.0,
        origin_seq=3, origin_user=desk.principal.user_id,
    )  # fmt: skip
    return sealed(desk.company.handle, replace(whole, **changes))  # type: ignore[arg-type]


def put(desk: Desk, entry: Entry, refusal: str | None = None) -> str | None:
    return desk.store.put(desk.company.handle, entry, allowed=lambda: refusal)


def fill(desk: Desk, count: int, *documents: int, start: int = 0) -> list[str]:
    ids = []
    for number in range(start, start + count):
        stored = desk.put(f"What is rule {chr(97 + number % 26)}{number}?", desk.answer(*documents))
        assert isinstance(stored, Stored)
        ids.append(stored.entry_id)
    return ids


def ids_of(store: CacheStore, company: Company) -> set[str]:
    return {record.id for record in store.inspect(company.handle, limit=1000)}


def agrees(store: CacheStore, company: Company) -> bool:
    """The totals are those of what is there."""
    stats, records = store.stats(company.handle), store.inspect(company.handle, limit=1000)
    return (stats.entries, stats.bytes, stats.users) == (
        len(records), sum(record.bytes for record in records), len({record.origin_user for record in records}),
    )  # fmt: skip


def test_what_was_put_comes_back_bit_for_bit_and_nothing_else(ana: Desk, bo: Desk, handbook: int) -> None:
    tenant, store = ana.company.handle, ana.store
    asked, other = ana.ask("How long is leave?"), ana.ask("How long is notice?")
    entry = entry_of(ana, asked, handbook, payload=bytes(range(256)), question="e\u0301 \u00e9 \x00 \U0001f600")
    assert put(ana, entry) is None
    assert store.get(tenant, asked.namespace, asked.exact) == entry
    assert store.get(tenant, asked.namespace, other.exact) is None
    assert store.nearest(tenant, asked.namespace, unit(1.0)) == [(entry, pytest.approx(1.0))]
    elsewhere = ana.ask("How long is leave?", filter="year=2026").namespace
    assert store.nearest(tenant, elsewhere, unit(1.0)) == []
    assert agrees(store, ana.company)


def test_a_refusal_at_the_last_moment_writes_nothing(ana: Desk, handbook: int) -> None:
    asked = ana.ask("How long is leave?")
    first = entry_of(ana, asked, handbook)
    assert put(ana, first, "a document moved") == "a document moved"
    assert ana.store.get(ana.company.handle, asked.namespace, asked.exact) is None
    assert put(ana, first) is None
    assert put(ana, entry_of(ana, asked, handbook), "a document moved") == "a document moved"
    assert ana.store.get(ana.company.handle, asked.namespace, asked.exact) == first


def test_the_same_question_again_takes_the_place_of_the_first(ana: Desk, handbook: int) -> None:
    tenant, store, asked = ana.company.handle, ana.store, ana.ask("How long is leave?")
    first = entry_of(ana, asked, handbook)
    second = entry_of(ana, asked, handbook, vector=unit(0.0, 1.0).tobytes(), payload=b"longer than it was before")
    assert put(ana, first) is put(ana, second) is None
    assert store.get(tenant, asked.namespace, asked.exact) == second
    assert [entry for entry, _ in store.nearest(tenant, asked.namespace, unit(1.0, 1.0))] == [second]
    assert (store.holds(tenant, first), store.holds(tenant, second)) == (False, True)
    assert store.stats(tenant).entries == 1
    assert agrees(store, ana.company)


def test_nearest_are_the_best_by_cosine_in_order(ana: Desk, handbook: int) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((40, DIMENSION)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for number, vector in enumerate(vectors):
        assert put(ana, entry_of(ana, ana.ask(f"Rule {number}?"), handbook, vector=vector.tobytes())) is None
    only_exact = ana.ask("Which rule repeats?")
    assert put(ana, entry_of(ana, only_exact, handbook, vector=b"")) is None
    query = unit(1.0, 0.5, -0.2)
    found = ana.store.nearest(ana.company.handle, only_exact.namespace, query)
    best = np.sort(vectors @ query)[::-1][:5]
    assert [similarity for _, similarity in found] == pytest.approx(best.tolist(), abs=1e-6)
    assert all(entry.similarity(query) == similarity for entry, similarity in found)
    assert ana.store.get(ana.company.handle, only_exact.namespace, only_exact.exact) is not None


def test_a_vector_of_another_width_finds_nothing_and_breaks_nothing(ana: Desk, handbook: int) -> None:
    asked = ana.ask("How long is leave?")
    assert put(ana, entry_of(ana, asked, handbook)) is None
    wide = np.ones(2 * DIMENSION, dtype=np.float32) / np.sqrt(2 * DIMENSION).astype(np.float32)
    assert ana.store.nearest(ana.company.handle, asked.namespace, wide) == []
    assert len(ana.store.nearest(ana.company.handle, asked.namespace, unit(1.0))) == 1


def test_confirming_changes_the_count_alone_and_only_of_an_entry_that_is_there(
    ana: Desk, handbook: int, clock: Clock
) -> None:
    tenant, store, asked = ana.company.handle, ana.store, ana.ask("How long is leave?")
    entry = entry_of(ana, asked, handbook)
    assert put(ana, entry) is None
    confirmed = sealed(tenant, replace(entry, confirmed=1))
    clock.now += 5
    assert store.confirm(tenant, confirmed)
    assert store.get(tenant, asked.namespace, asked.exact) == confirmed
    assert (store.holds(tenant, entry), store.holds(tenant, confirmed)) == (False, True)
    assert [found for found, _ in store.nearest(tenant, asked.namespace, unit(1.0))] == [confirmed]
    successor = entry_of(ana, asked, handbook)
    assert put(ana, successor) is None
    assert not store.confirm(tenant, sealed(tenant, replace(entry, confirmed=2)))
    assert store.get(tenant, asked.namespace, asked.exact) == successor
    store.discard(tenant, successor)
    assert not store.confirm(tenant, sealed(tenant, replace(successor, confirmed=1)))
    assert store.get(tenant, asked.namespace, asked.exact) is None
    assert agrees(store, ana.company)


def test_discarding_removes_that_entry_and_not_its_successor(ana: Desk, handbook: int) -> None:
    tenant, store, asked = ana.company.handle, ana.store, ana.ask("How long is leave?")
    first, second = entry_of(ana, asked, handbook), entry_of(ana, asked, handbook)
    assert put(ana, first) is put(ana, second) is None
    store.discard(tenant, first)
    assert store.get(tenant, asked.namespace, asked.exact) == second
    store.discard(tenant, second)
    assert store.get(tenant, asked.namespace, asked.exact) is None
    assert store.nearest(tenant, asked.namespace, unit(1.0)) == []
    assert store.stats(tenant).entries == 0
    assert agrees(store, ana.company)


def test_an_entry_of_another_tenant_s_namespace_is_not_asked_for(ana: Desk, globex: Company) -> None:
    asked = ana.ask("How long is leave?")
    with pytest.raises(InvalidInput):
        ana.store.get(globex.handle, asked.namespace, asked.exact)
    with pytest.raises(InvalidInput):
        ana.store.nearest(globex.handle, asked.namespace, unit(1.0))


def test_no_entry_of_one_tenant_is_found_counted_or_removed_through_another(
    ana: Desk, acme: Company, globex: Company, handbook: int
) -> None:
    store = ana.store
    gil = Desk(globex, globex.principal("gil"), store)
    notes = globex.document("notes", allow=["tenant"])
    (mine,) = fill(ana, 1, handbook)
    (theirs,) = fill(gil, 1, notes)
    assert (ids_of(store, acme), ids_of(store, globex)) == ({mine}, {theirs})
    assert store.invalidate(globex.handle, Selector(entry=mine)) == 0
    assert store.invalidate(globex.handle, Selector(everything=True)) == 1
    assert (ids_of(store, acme), ids_of(store, globex)) == ({mine}, set())
    assert (store.stats(acme.handle).entries, store.stats(globex.handle).entries) == (1, 0)


def test_a_flood_in_one_tenant_evicts_nothing_of_another(
    rig: Rig, acme: Company, globex: Company, handbook: int, clock: Clock
) -> None:
    store = rig.open(CachePolicy(max_entries=20))
    ana, gil = Desk(acme, acme.principal("ana"), store), Desk(globex, globex.principal("gil"), store)
    notes = globex.document("notes", allow=["tenant"])
    kept = fill(gil, 15, notes)
    for number in range(60):
        clock.now += 0.01
        fill(ana, 1, handbook, start=number)
        assert store.stats(acme.handle).entries <= 20
    assert ids_of(store, globex) == set(kept)
    assert isinstance(ana.exact("What is rule h59?"), Hit)
    assert isinstance(ana.exact("What is rule a0?"), Miss)
    assert agrees(store, acme)
    assert agrees(store, globex)


def test_eviction_spares_what_was_served_lately(rig: Rig, acme: Company, handbook: int, clock: Clock) -> None:
    ana = Desk(acme, acme.principal("ana"), rig.open(CachePolicy(max_entries=10)))
    for number in range(10):
        clock.now += 0.01
        fill(ana, 1, handbook, start=number)
    clock.now += 0.01
    assert isinstance(ana.exact("What is rule a0?"), Hit)
    clock.now += 0.01
    fill(ana, 1, handbook, start=10)
    assert isinstance(ana.exact("What is rule a0?"), Hit)
    assert isinstance(ana.exact("What is rule b1?"), Miss)


def test_the_quota_of_bytes_holds_and_refuses_what_can_never_fit(
    rig: Rig, acme: Company, handbook: int, clock: Clock
) -> None:
    store = rig.open(CachePolicy(max_bytes=20_000))
    ana = Desk(acme, acme.principal("ana"), store)
    for number in range(20):
        clock.now += 0.01
        assert isinstance(ana.put(f"Rule {number}?", ana.answer(handbook, text="x" * 3_000)), Stored)
    assert 10_000 < store.stats(acme.handle).bytes <= 20_000
    refused = ana.put("Rule 99?", ana.answer(handbook, text="x" * 30_000))
    assert getattr(refused, "reason", "") == "larger than the quota"
    assert agrees(store, acme)


def test_a_hit_extends_no_life_and_what_has_expired_goes(ana: Desk, handbook: int, clock: Clock) -> None:
    tenant, store = ana.company.handle, ana.store
    (old,) = fill(ana, 1, handbook)
    clock.now += 86_000
    assert isinstance(ana.exact("What is rule a0?"), Hit)
    (young,) = fill(ana, 1, handbook, start=1)
    clock.now += 500
    assert isinstance(ana.exact("What is rule a0?"), Miss)
    assert isinstance(ana.exact("What is rule b1?"), Hit)
    assert store.stats(tenant).expired == 1
    assert store.sweep(tenant) == 1
    assert ids_of(store, ana.company) == {young}
    assert agrees(store, ana.company)
    assert old != young


def test_an_expired_neighbour_takes_nobody_s_place(ana: Desk, handbook: int, clock: Clock) -> None:
    tenant, asked = ana.company.handle, ana.ask("Rule?")
    for number in range(8):
        assert put(ana, entry_of(ana, ana.ask(f"Rule {number}?"), handbook, expires=clock.now + 60)) is None
    survivor = entry_of(ana, asked, handbook, vector=unit(1.0, 0.3).tobytes())
    assert put(ana, survivor) is None
    assert survivor not in [entry for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))]
    clock.now += 61
    assert survivor in [entry for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))]


def test_each_selector_takes_its_own_entries_and_leaves_the_rest(
    acme: Company, ana: Desk, bo: Desk, handbook: int, clock: Clock
) -> None:
    tenant, store = acme.handle, ana.store
    travel = acme.document("travel", allow=["group:staff"])

    def again() -> tuple[str, str, str]:
        store.invalidate(tenant, Selector(everything=True))
        (first,) = fill(ana, 1, handbook)
        clock.now += 100
        asked = bo.ask("Who pays for the trip?", template="travel", template_revision="travel@1")
        second, third = bo.put(asked, bo.answer(handbook, travel)), bo.put("Who approves it?", bo.answer(travel))
        assert isinstance(second, Stored)
        assert isinstance(third, Stored)
        return first, second.entry_id, third.entry_id

    chosen: list[tuple[Callable[[str], Selector], set[int]]] = [
        (lambda _: Selector(document=handbook), {0, 1}),
        (lambda _: Selector(document=travel), {1, 2}),
        (lambda first: Selector(entry=first), {0}),
        (lambda _: Selector(user=bo.principal.user_id), {1, 2}),
        (lambda _: Selector(template="travel"), {1}),
        (lambda _: Selector(older_than=50.0), {0}),
        (lambda _: Selector(document=travel, template="default"), {2}),
        (lambda _: Selector(user=ana.principal.user_id, document=travel), set()),
        (lambda _: Selector(everything=True), {0, 1, 2}),
    ]
    for selector, taken in chosen:
        ids = again()
        wanted = selector(ids[0])
        assert {record.id for record in store.inspect(tenant, selector=wanted)} == {ids[n] for n in taken}
        assert store.invalidate(tenant, wanted) == len(taken), wanted
        assert ids_of(store, acme) == {ids[n] for n in {0, 1, 2} - taken}, wanted
        assert agrees(store, acme)
        if 0 in taken:
            assert isinstance(ana.exact("What is rule a0?"), Miss)
        else:
            assert isinstance(ana.exact("What is rule a0?"), Hit)


def test_inspect_pages_newest_first_and_bounds_its_limit(ana: Desk, handbook: int, clock: Clock) -> None:
    ids = []
    for number in range(5):
        clock.now += 1
        ids += fill(ana, 1, handbook, start=number)
    tenant, store = ana.company.handle, ana.store
    assert [record.id for record in store.inspect(tenant)] == ids[::-1]
    assert [record.id for record in store.inspect(tenant, limit=2, offset=1)] == [ids[3], ids[2]]
    chosen = store.inspect(tenant, limit=2, offset=1, selector=Selector(user=ana.principal.user_id))
    assert [record.id for record in chosen] == [ids[3], ids[2]]
    (record,) = store.inspect(tenant, limit=1)
    assert (record.question, record.dependencies) == ("What is rule e4?", ((handbook, "sha256:1"),))
    assert (record.origin_user, record.created) == (ana.principal.user_id, clock.now)
    for limit, offset in ((0, 0), (1001, 0), (1, -1), (1, 2**63)):
        with pytest.raises(InvalidInput):
            store.inspect(tenant, limit=limit, offset=offset)


def test_another_process_sees_the_same_entries_and_invalidations_at_once(rig: Rig, ana: Desk, handbook: int) -> None:
    second = Desk(ana.company, ana.principal, rig.open())
    fill(ana, 2, handbook)
    assert isinstance(second.exact("What is rule a0?"), Hit)
    assert len(second.store.nearest(ana.company.handle, ana.ask("?").namespace, unit(1.0))) == 2
    assert second.store.invalidate(ana.company.handle, Selector(document=handbook)) == 2
    assert isinstance(ana.exact("What is rule a0?"), Miss)
    assert ana.store.nearest(ana.company.handle, ana.ask("?").namespace, unit(1.0)) == []
    fill(second, 1, handbook)
    assert isinstance(ana.exact("What is rule a0?"), Hit)


def test_a_deleted_tenant_leaves_nothing_and_one_of_its_name_starts_empty(
    ana: Desk, acme: Company, globex: Company, handbook: int, rig: Rig
) -> None:
    store = ana.store
    notes = globex.document("notes", allow=["tenant"])
    (kept,) = fill(Desk(globex, globex.principal("gil"), store), 1, notes)
    fill(ana, 3, handbook)
    assert store.purge(acme.handle) == 3
    if rig.server is not None:
        with rig.server.client() as client:
            mark = f"sr:{{{acme.handle.tenant_id}}}:state".encode()
            assert client.keys(f"*{acme.handle.tenant_id}*") == [mark]
            assert client.hgetall(mark) == {b"moved": b"deleted"}
            assert 0 < client.ttl(mark) <= 60
        assert store.stats(acme.handle).entries == 0
        assert isinstance(ana.exact("What is rule a0?"), Miss)
        late = ana.put("What is rule a0?", ana.answer(handbook))
        assert getattr(late, "reason", "") == "the tenant is deleted"
    assert ids_of(store, globex) == {kept}


def test_after_a_restart_entries_are_all_there_or_all_gone_and_hits_resume(rig: Rig, ana: Desk, handbook: int) -> None:
    kept = fill(ana, 3, handbook)
    rig.restart()
    again = Desk(ana.company, ana.principal, rig.open())
    for desk in (ana, again):
        found = ids_of(desk.store, ana.company)
        assert found == (set(kept) if rig.durable else set())
        assert agrees(desk.store, ana.company)
        assert isinstance(desk.exact("What is rule a0?"), Hit if rig.durable else Miss)
        near = desk.store.nearest(ana.company.handle, ana.ask("?").namespace, unit(1.0))
        assert len(near) == (3 if rig.durable else 0)
    fill(again, 1, handbook)
    assert isinstance(ana.exact("What is rule a0?"), Hit)
    assert agrees(ana.store, ana.company)


def test_health_says_that_the_store_is_there(ana: Desk, handbook: int) -> None:
    fill(ana, 1, handbook)
    assert ana.store.health().available
