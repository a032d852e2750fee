"""The local store: quotas per tenant, the reverse index, invalidation across processes and threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from cache.entry import Entry, new_entry_id, sealed
from cache.lookup import Hit, Miss
from cache.policy import CachePolicy
from cache.store import Stored
from cache.stores import local, rows, tables, uses
from cache.stores.local import LocalStore
from cache.stores.selector import Selector
from cache.stores.vectors import VectorIndex, VectorIndexes
from tenancy.errors import InvalidInput, Unavailable
from tests.cache.desk import Clock, Desk, unit
from tests.support.people import Company

ROOT = Path(__file__).resolve().parents[2]


def fill(desk: Desk, count: int, *documents: int, start: int = 0) -> list[str]:
    ids = []
    for number in range(start, start + count):
        stored = desk.put(f"What is rule {chr(97 + number % 26)}{number}?", desk.answer(*documents))
        assert isinstance(stored, Stored)
        ids.append(stored.entry_id)
    return ids


def totals_agree(company: Company) -> bool:
    with company.handle.database("cache.sqlite", None).reading() as connection:  # type: ignore[arg-type]
        kept = connection.execute(text("SELECT entries, bytes FROM totals")).one()
        counted = connection.execute(text("SELECT count(*), coalesce(sum(bytes), 0) FROM entries")).one()
        dangling = connection.execute(
            text("SELECT count(*) FROM dependencies WHERE seq NOT IN (SELECT seq FROM entries)")
        ).scalar_one()
    return tuple(kept) == tuple(counted) and dangling == 0


def test_expired_entries_go_first_and_by_sweep(ana: Desk, handbook: int, clock: Clock) -> None:
    fill(ana, 3, handbook)
    clock.now += 86_400
    fill(ana, 2, handbook, start=3)
    assert ana.store.stats(ana.company.handle).expired == 3
    assert ana.store.sweep(ana.company.handle) == 3
    assert ana.store.stats(ana.company.handle).entries == 2
    assert totals_agree(ana.company)


def test_a_sweep_removes_what_has_expired_in_steps_and_nothing_else(
    ana: Desk, handbook: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_STEP", 2)
    fill(ana, 5, handbook)
    clock.now += 86_400
    kept = fill(ana, 3, handbook, start=5)
    assert ana.store.sweep(ana.company.handle) == 5
    assert {record.id for record in ana.store.inspect(ana.company.handle)} == set(kept)
    assert ana.store.sweep(ana.company.handle) == 0
    assert totals_agree(ana.company)


@pytest.mark.parametrize("text", ["ce_\x1b[31m", "a\nb", "\ud800", "x" * 201, " "])
def test_what_a_selector_names_may_stand_in_the_audit(text: str) -> None:
    for field in ("entry", "template"):
        with pytest.raises(InvalidInput):
            Selector(**{field: text})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{}, {"everything": True, "entry": "ce_1"}, {"entry": ""}, {"user": ""}, {"older_than": -1.0}, {"template": ""}],
)
def test_an_empty_or_contradictory_selector_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Selector(**wrong)
    Selector(everything=True)


def test_inspect_shows_no_vector_and_no_payload_and_pages(ana: Desk, handbook: int) -> None:
    ids = fill(ana, 5, handbook)
    store, tenant = ana.store, ana.company.handle
    records = store.inspect(tenant, limit=2, offset=1)
    assert [record.id for record in records] == [ids[3], ids[2]]
    assert records[0].dependencies == ((handbook, "sha256:1"),)
    assert not hasattr(records[0], "payload")
    for limit, offset in ((0, 0), (1001, 0), (1, -1)):
        with pytest.raises(InvalidInput):
            store.inspect(tenant, limit=limit, offset=offset)


def test_another_store_object_sees_writes_and_invalidations_at_once(ana: Desk, handbook: int, clock: Clock) -> None:
    """Two stores over one file stand for two processes: nothing is shared in memory."""
    ana.open()
    second = Desk(ana.company, ana.principal, LocalStore(CachePolicy(), clock=clock))
    question, same = "How long is the parental leave?", "How long is the parental leave please?"
    assert isinstance(second.semantic(same, unit(1.0)), Miss)
    ana.put(question, ana.answer(handbook))
    assert isinstance(second.exact(question), Hit)
    assert isinstance(second.semantic(same, unit(1.0)), Hit)
    ana.store.invalidate(ana.company.handle, Selector(document=handbook))
    assert isinstance(second.exact(question), Miss)
    assert isinstance(second.semantic(same, unit(1.0)), Miss)
    ana.put(question, ana.answer(handbook))
    assert isinstance(second.semantic(same, unit(1.0)), Hit)


OTHER_PROCESS = """
import sys
from pathlib import Path
from cache.stores import local, rows, tables
from cache.stores.local import LocalStore
from cache.stores.selector import Selector
from tenancy.control import Tenants
from tenancy.identity import Authenticator
from tenancy.keys import MasterKey
tenants = Tenants(Path(sys.argv[1]), MasterKey(bytes(range(32))))
handle = tenants.open(Authenticator(tenants).operator("acme"))
print(LocalStore().invalidate(handle, Selector(document=int(sys.argv[2]))))
"""


def test_an_invalidation_by_another_process_holds_at_the_next_lookup(ana: Desk, handbook: int, tmp_path: Path) -> None:
    ana.open()
    question, same = "How long is the parental leave?", "How long is the parental leave please?"
    ana.put(question, ana.answer(handbook))
    assert isinstance(ana.semantic(same, unit(1.0)), Hit)
    done = subprocess.run(
        [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "data"), str(handbook)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == "1"
    assert isinstance(ana.exact(question), Miss)
    assert isinstance(ana.semantic(same, unit(1.0)), Miss)
    ana.put(question, ana.answer(handbook))
    assert isinstance(ana.semantic(same, unit(1.0)), Hit)


def test_the_nearest_of_a_namespace_equal_a_plain_computation(ana: Desk, handbook: int) -> None:
    generator = np.random.default_rng(3)
    vectors = {}
    for number in range(40):
        vector = generator.normal(size=8).astype(np.float32)
        vector /= np.linalg.norm(vector)
        stored = ana.put(f"Rule number {number}?", ana.answer(handbook, vector=vector))
        assert isinstance(stored, Stored)
        vectors[stored.entry_id] = vector
    query = unit(1.0, 2.0, 3.0)
    asked = ana.ask("Rule number 3?")
    expected = sorted(vectors, key=lambda entry: -float(vectors[entry] @ query))[:5]
    found = ana.store.nearest(ana.company.handle, asked.namespace, query)
    assert [entry.id for entry, _ in found] == expected
    assert found[0][1] == pytest.approx(float(vectors[expected[0]] @ query), abs=1e-6)
    other = ana.ask("Rule number 3?", filter="x")
    assert ana.store.nearest(ana.company.handle, other.namespace, query) == []


def test_threads_put_look_up_and_invalidate_without_error(ana: Desk, handbook: int) -> None:
    ana.open()
    failures: list[BaseException] = []
    tenant = ana.company.handle
    asked = [ana.ask(f"What is rule {chr(97 + number)}?") for number in range(8)]

    def work(number: int) -> None:
        try:
            for turn in range(6):
                ana.put(asked[(number + turn) % 8], ana.answer(handbook))
                ana.exact(asked[turn])
                ana.semantic(asked[turn], unit(1.0))
                if turn == 3:
                    ana.store.invalidate(tenant, Selector(document=handbook))
        except BaseException as error:  # noqa: BLE001  a failure in a thread has to reach the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert totals_agree(ana.company)
    # What the threads left has the same vector, and would stand before this one or behind it by chance.
    ana.store.invalidate(tenant, Selector(everything=True))
    ana.put(asked[0], ana.answer(handbook))
    assert isinstance(ana.semantic(asked[0], unit(1.0)), Hit)


def test_an_older_snapshot_does_not_lose_a_newer_row(ana: Desk, handbook: int) -> None:
    """A reader whose snapshot is older than the index prunes it; the newer row is read again."""
    fill(ana, 2, handbook)
    asked = ana.ask("What is rule a0?")
    tenant = ana.company.handle
    assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 2
    index = ana.store._indexes.get(tenant.tenant_id, asked.namespace.value, 8)
    index.retain([1], 1)
    assert (len(index), index.high) == (1, 1)
    assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 2


def test_a_row_whose_entry_went_away_leaves_the_index_and_the_next_neighbour_takes_its_place(
    ana: Desk, handbook: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []
    for number in range(12):
        vector = unit(1.0, 0.1 * number)
        stored = ana.put(f"What is rule {chr(97 + number)}?", ana.answer(handbook, vector=vector))
        assert isinstance(stored, Stored)
        ids.append(stored.entry_id)
    asked, tenant = ana.ask("What is rule a?"), ana.company.handle

    def found() -> list[str]:
        return [entry.id for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))]

    assert found() == ids[:5]
    index = ana.store._indexes.get(tenant.tenant_id, asked.namespace.value, 8)
    # Nothing is compared with all that the file has: that takes long where it has much.
    monkeypatch.setattr(index, "retain", lambda live, newest: pytest.fail("all rows were read"))
    ana.store.invalidate(tenant, Selector(entry=ids[0]))
    ana.store.invalidate(tenant, Selector(entry=ids[3]))
    assert found() == [ids[1], ids[2], ids[4], ids[5], ids[6]]
    assert len(index) == 10


def test_expired_neighbours_hide_no_other(ana: Desk, handbook: int, clock: Clock) -> None:
    fill(ana, 30, handbook)
    clock.now += 50_000
    (kept,) = fill(ana, 1, handbook, start=30)
    asked, tenant = ana.ask("What is rule a0?"), ana.company.handle
    assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 5
    clock.now += 50_000
    assert [entry.id for entry, _ in ana.store.nearest(tenant, asked.namespace, unit(1.0))] == [kept]


def test_a_reader_of_an_older_state_takes_no_newer_row_out_of_the_index(ana: Desk, handbook: int) -> None:
    fill(ana, 2, handbook)
    asked, tenant = ana.ask("What is rule a0?"), ana.company.handle
    index = ana.store._indexes.get(tenant.tenant_id, asked.namespace.value, 8)
    with tables.database(tenant).reading() as older:
        before = rows.nearest(older, index, asked.namespace.value, unit(1.0), 5, ana.store.clock())
        fill(ana, 1, handbook, start=2)
        assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 3
        assert rows.nearest(older, index, asked.namespace.value, unit(1.0), 5, ana.store.clock()) == before
    assert len(before) == 2
    assert len(index) == 3
    assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 3


def test_a_namespace_of_another_tenant_is_refused(ana: Desk, globex: Company, handbook: int) -> None:
    asked = ana.ask("What is rule a0?")
    with pytest.raises(InvalidInput, match="another tenant"):
        ana.store.get(globex.handle, asked.namespace, asked.exact)
    with pytest.raises(InvalidInput, match="another tenant"):
        ana.store.nearest(globex.handle, asked.namespace, unit(1.0))
    assert ana.store.get(ana.company.handle, asked.namespace, asked.exact) is None


def test_a_refusal_inside_the_transaction_writes_nothing(ana: Desk, handbook: int) -> None:
    (kept,) = fill(ana, 1, handbook)
    entry = ana.store.get(ana.company.handle, (asked := ana.ask("What is rule a0?")).namespace, asked.exact)
    assert entry is not None
    newer = sealed(ana.company.handle, replace(entry, id=new_entry_id()))
    assert ana.store.put(ana.company.handle, newer, allowed=lambda: "moved") == "moved"
    assert [record.id for record in ana.store.inspect(ana.company.handle)] == [kept]

    def fails() -> str | None:
        raise Unavailable("the tenant's database is busy", item="tenant.sqlite")

    with pytest.raises(Unavailable):
        ana.store.put(ana.company.handle, newer, allowed=fails)
    assert totals_agree(ana.company)
    assert ana.store.put(ana.company.handle, newer, allowed=lambda: None) is None
    assert [record.id for record in ana.store.inspect(ana.company.handle)] == [newer.id]


def test_close_forgets_the_tenant(ana: Desk, handbook: int) -> None:
    fill(ana, 1, handbook)
    asked = ana.ask("What is rule a0?")
    tenant = ana.company.handle
    ana.store.nearest(tenant, asked.namespace, unit(1.0))
    ana.store.close(tenant.tenant_id)
    assert len(ana.store._indexes.get(tenant.tenant_id, asked.namespace.value, 8)) == 0
    assert len(ana.store.nearest(tenant, asked.namespace, unit(1.0))) == 1


def test_indexes_are_bounded_and_apart_by_tenant() -> None:
    indexes = VectorIndexes(budget=VectorIndex(8, lambda _: None).nbytes * 5 // 2)
    first = indexes.get("t_1", b"n", 8)
    second = indexes.get("t_2", b"n", 8)
    assert first is not second
    assert indexes.get("t_1", b"n", 8) is first
    indexes.get("t_3", b"n", 8)
    assert indexes.get("t_1", b"n", 8) is first
    assert indexes.get("t_2", b"n", 8) is not second


def test_an_entry_says_none_for_another_width() -> None:
    entry = Entry(
        id="ce_1", namespace=b"", exact=b"", template="", question="", vector=unit(1.0).tobytes(), payload=b"",
        dependencies=(), acl_epoch=0, corpus_epoch=0, created=0.0, expires=0.0, origin_seq=0, origin_user="",
    )  # fmt: skip
    assert entry.similarity(unit(1.0)) == pytest.approx(1.0)
    assert entry.similarity(np.ones(4, dtype=np.float32)) is None


def test_uses_that_wait_to_be_written_are_bounded_and_one_tenants_flood_costs_another_none(
    acme: Company, globex: Company, handbook: int, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "USES", 3)
    store = LocalStore(CachePolicy(), clock=clock)
    ana = Desk(acme, acme.principal("ana"), store)
    notes = globex.document("notes", allow=["tenant"])
    gil = Desk(globex, globex.principal("gil"), store)
    fill(ana, 8, handbook)
    asked = gil.ask("What is the rule?")
    assert isinstance(gil.put(asked, gil.answer(notes)), Stored)
    entry = store.get(globex.handle, asked.namespace, asked.exact)
    assert entry is not None
    store.touch(globex.handle, entry)
    for record in store.inspect(acme.handle):
        store.touch(acme.handle, replace(entry, id=record.id))
    assert {tenant: len(used) for tenant, used in store._uses._used.items()} == {
        globex.handle.tenant_id: 1, acme.handle.tenant_id: 3,
    }  # fmt: skip
    assert store.tenants == {acme.handle.tenant_id, globex.handle.tenant_id}
    monkeypatch.setattr(uses, "TENANTS", 1)
    store.touch(globex.handle, entry)
    assert store.tenants == {globex.handle.tenant_id}
    store.close(globex.handle.tenant_id)
    assert store.tenants == set()
