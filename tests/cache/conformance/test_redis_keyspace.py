"""What lies in Redis: every key names its tenant and expires, nothing can be read, and what is damaged is a miss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from redis.crc import key_slot

from cache.entry import sealed
from cache.lookup import Hit, Miss, Reason
from cache.store import Stored
from cache.stores.port import CacheStore
from cache.stores.redis_keys import member, prefix, tenant_of
from cache.stores.selector import Selector
from tenancy.errors import Corrupt
from tests.cache.conformance.rig import Rig
from tests.cache.conformance.test_store_contract import agrees, entry_of, fill, ids_of, put
from tests.cache.desk import Clock, Desk, unit
from tests.support.people import Company
from tests.support.redis_server import RedisServer

SECRET = "What does Magdalena Sibelius-Okonkwo earn?"


@pytest.fixture(params=["redis_memory", pytest.param("redis_cluster", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> RedisServer:
    found: RedisServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def rig(server: RedisServer, clock: Clock) -> Iterator[Rig]:
    made = Rig("redis", clock, server)
    yield made
    made.close()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with server.client() as made:
        yield made


def keys(client: Any) -> list[bytes]:
    return sorted(client.scan_iter(count=100))


def key_of(desk: Desk, question: str) -> str:
    return f"{prefix(desk.company.handle.tenant_id)}e:{member(desk.ask(question).exact)}"


def is_clustered(client: Any) -> bool:
    return bool(client.info("cluster")["cluster_enabled"])


def two_tenants(ana: Desk, globex: Company, handbook: int) -> tuple[Desk, Desk]:
    gil = Desk(globex, globex.principal("gil"), ana.store)
    notes = globex.document("notes", allow=["tenant"])
    fill(ana, 5, handbook)
    fill(gil, 5, notes)
    return ana, gil


def test_every_key_names_its_tenant_and_expires_and_one_tenant_s_share_a_slot(
    ana: Desk, globex: Company, handbook: int, client: Any
) -> None:
    for desk in two_tenants(ana, globex, handbook):
        # Everything that writes: a use, a confirmation, an invalidation, a repair.
        assert isinstance(desk.exact("What is rule a0?"), Hit)
        tenant, asked = desk.company.handle, desk.ask("What is rule b1?")
        entry = desk.store.get(tenant, asked.namespace, asked.exact)
        assert entry is not None
        assert desk.store.confirm(tenant, sealed(tenant, replace(entry, confirmed=1)))
        desk.store.invalidate(tenant, Selector(entry=entry.id))
        desk.store.sweep(tenant)
        desk.store.repair(tenant)
    found = keys(client)
    tenants = {ana.company.handle.tenant_id, globex.handle.tenant_id}
    assert {tenant_of(key) for key in found} == tenants
    assert len(found) > 20
    assert [key for key in found if client.ttl(key) <= 0] == []
    slots: dict[str | None, set[int]] = {tenant_of(key): set() for key in found}
    for key in found:
        slots[tenant_of(key)].add(key_slot(key))
        if is_clustered(client):
            assert client.execute_command("CLUSTER", "KEYSLOT", key) == key_slot(key)
    assert [len(numbers) for numbers in slots.values()] == [1, 1]
    assert tenant_of(b"sr:t_1:e:1") is tenant_of(b"other:{t_1}:e:1") is tenant_of(b"sr:{}:e") is None


def test_expiry_is_absolute_and_neither_a_hit_nor_a_neighbour_moves_it(
    ana: Desk, handbook: int, client: Any, clock: Clock
) -> None:
    asked = ana.ask("What is rule a0?")
    assert put(ana, entry_of(ana, asked, handbook, expires=clock.now + 100.5)) is None
    key = key_of(ana, "What is rule a0?")
    assert client.expiretime(key) == math.ceil(clock.now + 100.5)
    assert isinstance(ana.exact(asked), Hit)
    fill(ana, 3, handbook, start=1)
    assert client.expiretime(key) == math.ceil(clock.now + 100.5)
    # What belongs to several entries lives as long as the longest of them.
    assert client.expiretime(f"{prefix(ana.company.handle.tenant_id)}meta") == math.ceil(clock.now + 86_400)


def test_no_text_no_name_and_no_answer_can_be_read_from_outside(ana: Desk, handbook: int, client: Any) -> None:
    entry = entry_of(ana, ana.ask(SECRET), handbook, payload=b'{"answer":"Four hundred crowns."}')
    assert put(ana, entry) is None
    for key in keys(client):
        raw = key + (client.dump(key) or b"")
        for word in ("Magdalena", "crowns", "Four", "default", "staff", ana.principal.user_id):
            assert word.encode() not in raw, (key, word)
    asked = ana.ask(SECRET)
    assert ana.store.get(ana.company.handle, asked.namespace, asked.exact) == entry


def test_an_entry_that_expired_at_redis_hides_no_neighbour_behind_its_vector(
    ana: Desk, handbook: int, client: Any
) -> None:
    """Seen on Redis 8.2: an expired hash leaves its element, which still ranks first."""
    tenant, asked = ana.company.handle, ana.ask("Rule?")
    for number in range(11):
        assert put(ana, entry_of(ana, ana.ask(f"Rule {number}?"), handbook, vector=unit(1.0).tobytes())) is None
    survivor = entry_of(ana, asked, handbook, vector=unit(1.0, 0.3).tobytes())
    assert put(ana, survivor) is None
    for number in range(11):
        client.pexpire(key_of(ana, f"Rule {number}?"), 1)
    while any(client.exists(key_of(ana, f"Rule {number}?")) for number in range(11)):
        pass
    vectors = next(key for key in keys(client) if b":v:" in key)
    assert client.execute_command("VCARD", vectors) == 12
    assert [entry for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))] == [survivor]
    ana.store.repair(tenant)
    assert client.execute_command("VCARD", vectors) == 1
    assert agrees(ana.store, ana.company)
    assert ana.store.stats(tenant).entries == 1


def test_what_expired_by_our_clock_is_filtered_out_before_it_takes_a_place(
    ana: Desk, handbook: int, clock: Clock
) -> None:
    tenant, asked = ana.company.handle, ana.ask("Rule?")
    for number in range(8):
        short = entry_of(ana, ana.ask(f"Rule {number}?"), handbook, expires=clock.now + 60)
        assert put(ana, short) is None
    survivor = entry_of(ana, asked, handbook, vector=unit(1.0, 0.3).tobytes())
    assert put(ana, survivor) is None
    clock.now += 61
    assert [entry for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))] == [survivor]
    assert ana.store.stats(tenant).expired == 8
    assert ana.store.sweep(tenant) == 8


@pytest.mark.parametrize(
    "lost", ["meta", "lru", "exp", "new", "ids", "spaces", "users", "state", "v:", "d:", "e:", "u:"]
)
def test_whatever_is_lost_a_repair_makes_the_rest_agree_and_nothing_dangles(
    ana: Desk, handbook: int, client: Any, lost: str
) -> None:
    tenant, store = ana.company.handle, ana.store
    fill(ana, 6, handbook)
    start = prefix(tenant.tenant_id) + lost
    client.delete(next(key for key in keys(client) if key.decode().startswith(start)))
    store.repair(tenant)
    kept = ids_of(store, ana.company)
    assert agrees(store, ana.company)
    assert len(kept) == {"meta": 0, "v:": 0, "e:": 5}.get(lost, 6)
    near = store.nearest(tenant, ana.ask("?").namespace, unit(1.0))
    assert {entry.id for entry, _ in near} <= kept
    assert len(near) == min(5, len(kept))
    assert [key for key in keys(client) if client.ttl(key) <= 0] == []
    # And all of it can be selected, evicted and removed again.
    assert store.invalidate(tenant, Selector(user=ana.principal.user_id)) == len(kept)
    store.repair(tenant)
    assert {key.rpartition(b":")[2] for key in keys(client)} <= {b"state"}
    fill(ana, 2, handbook)
    assert agrees(store, ana.company)


@pytest.mark.parametrize("damage", ["not json", "[]", "null", '{"i":1,"d":[1]}', '{"i":"a","n":"b","u":"c","t":"d"}'])
def test_a_damaged_note_of_an_entry_stops_neither_invalidation_nor_repair(
    ana: Desk, handbook: int, client: Any, damage: str
) -> None:
    tenant, store = ana.company.handle, ana.store
    notes = prefix(tenant.tenant_id) + "meta"
    fill(ana, 4, handbook)
    client.hset(notes, next(iter(client.hkeys(notes))), damage)
    assert store.repair(tenant) > 0
    assert agrees(store, ana.company)
    assert store.stats(tenant).entries == len(ids_of(store, ana.company)) == 3
    # An invalidation may mean what it cannot read, and so removes it too.
    client.hset(notes, next(iter(client.hkeys(notes))), damage)
    assert store.invalidate(tenant, Selector(document=handbook + 1)) == 0
    assert store.invalidate(tenant, Selector(document=handbook)) == 3
    store.repair(tenant)
    assert {key.rpartition(b":")[2] for key in keys(client)} <= {b"state"}


def test_a_body_that_was_changed_or_put_under_another_key_is_a_miss(ana: Desk, handbook: int, client: Any) -> None:
    ana.open()
    fill(ana, 2, handbook)
    first, second = key_of(ana, "What is rule a0?"), key_of(ana, "What is rule b1?")
    body = client.hget(first, "b")
    client.hset(second, "b", body)
    assert isinstance(ana.exact("What is rule b1?"), Miss)
    assert isinstance(ana.exact("What is rule a0?"), Hit)
    client.hset(first, "b", body[:-1] + bytes([body[-1] ^ 1]))
    assert isinstance(ana.exact("What is rule a0?"), Miss)
    assert isinstance(ana.semantic("What is rule a0?", unit(1.0)), Miss)
    assert ana.store.stats(ana.company.handle).entries == 0
    fill(ana, 1, handbook)
    assert isinstance(ana.exact("What is rule a0?"), Hit)


def test_an_entry_copied_into_another_tenant_s_keys_is_a_miss(
    ana: Desk, globex: Company, handbook: int, client: Any
) -> None:
    ana, gil = two_tenants(ana, globex, handbook)
    stolen = client.hgetall(key_of(ana, "What is rule a0?"))
    client.hset(key_of(gil, "What is rule a0?"), mapping=stolen)
    assert isinstance(gil.exact("What is rule a0?"), Miss)
    assert isinstance(ana.exact("What is rule a0?"), Hit)


def test_keys_of_a_wrong_type_are_a_miss_for_the_asker_and_only_of_their_tenant(
    ana: Desk, globex: Company, handbook: int, client: Any
) -> None:
    ana, gil = two_tenants(ana, globex, handbook)
    ours = prefix(ana.company.handle.tenant_id)
    client.delete(ours + "lru")
    client.set(ours + "lru", "x", ex=60)
    assert getattr(ana.put("Rule?", ana.answer(handbook)), "reason", "") == "cache out of reach"
    with pytest.raises(Corrupt):
        ana.store.invalidate(ana.company.handle, Selector(everything=True))
    key = key_of(ana, "What is rule a0?")
    client.delete(key)
    client.set(key, "x", ex=60)
    missed = ana.exact("What is rule a0?")
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.STORE_AWAY
    assert isinstance(gil.exact("What is rule a0?"), Hit)
    assert isinstance(gil.put("Rule?", gil.answer(1)), Stored)
    assert ana.store.health().available
    # An operator's way out.
    assert ana.store.purge(ana.company.handle) >= 4


def test_a_write_that_was_allowed_before_an_invalidation_is_asked_again(ana: Desk, handbook: int) -> None:
    tenant, store = ana.company.handle, ana.store
    asked, times = ana.ask("Rule?"), []

    def allowed() -> str | None:
        times.append(1)
        if len(times) == 1:
            store.invalidate(tenant, Selector(document=handbook))
            return None
        return "a document moved"

    assert store.put(tenant, entry_of(ana, asked, handbook), allowed=allowed) == "a document moved"
    assert store.get(tenant, asked.namespace, asked.exact) is None
    assert len(times) == 2
    assert store.put(tenant, entry_of(ana, asked, handbook), allowed=lambda: None) is None
    assert store.get(tenant, asked.namespace, asked.exact) is not None


def test_many_namespaces_are_counted_and_empty_ones_leave_no_key(ana: Desk, handbook: int, client: Any) -> None:
    for number in range(30):
        asked = ana.ask("Rule?", filter=f"f{number}")
        assert put(ana, entry_of(ana, asked, handbook)) is None
    assert ana.store.stats(ana.company.handle).namespaces == 30
    assert sum(b":v:" in key for key in keys(client)) == 30
    assert ana.store.invalidate(ana.company.handle, Selector(everything=True)) == 30
    assert {key.rpartition(b":")[2] for key in keys(client)} == {b"state"}
    assert ana.store.stats(ana.company.handle).namespaces == 0


def test_a_large_namespace_is_searched_by_its_graph(
    ana: Desk, handbook: int, store: CacheStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cache.stores.redis.EXHAUSTIVE", 3)
    for number in range(8):
        vector = unit(1.0, number / 10).tobytes()
        assert put(ana, entry_of(ana, ana.ask(f"Rule {number}?"), handbook, vector=vector)) is None
    near = store.nearest(ana.company.handle, ana.ask("?").namespace, unit(1.0))
    assert [entry.question for entry, _ in near] == [f"Rule {number}?" for number in range(5)]
