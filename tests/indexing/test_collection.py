"""Open collections: brought up to date under a lock, bounded in memory, one tenant's never another's."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from sqlalchemy import select, update

from indexing import loading
from indexing.terms import term_postings
from tenancy import tenant as tenant_module
from tenancy.domain import permission_domain, readable_documents
from tenancy.errors import ModelMismatch, StaleDomain
from tenancy.schema import chunks, epochs, models
from tests.support.people import Company
from tests.support.shelf import FINGERPRINT, Shelf

pytestmark = pytest.mark.both_storages

EAST = [1.0, 0.0, 0.0, 0.0]
_OWNERS = select(chunks.c.id, chunks.c.document_id)


@pytest.fixture
def shelf(acme: Company) -> Shelf:
    return Shelf(acme)


def test_an_unchanged_tenant_is_read_once(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    _, first = shelf.scope(ana)
    monkeypatch.setattr(loading, "load", None)
    monkeypatch.setattr(loading, "advance", None)
    _, second = shelf.scope(ana)
    assert second is first


def test_many_threads_build_a_tenant_once(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    built = []
    load: Callable[..., object] = loading.load
    monkeypatch.setattr(loading, "load", lambda *arguments: built.append(1) or load(*arguments))
    with ThreadPoolExecutor(8) as pool:
        snapshots = {id(scope[1]) for scope in pool.map(shelf.scope, [ana] * 16)}
    assert len(snapshots) == len(built) == 1


def test_a_database_that_is_older_than_the_snapshot_is_refused(shelf: Shelf) -> None:
    """Another file was put in its place: what is in memory must not answer for it."""
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    assert len(shelf.dense(ana, EAST)) == 1
    with shelf.company.handle.writing() as view:
        view.execute(update(epochs).values(corpus=0, changes=0))
    with pytest.raises(StaleDomain, match="older"):
        shelf.dense(ana, EAST)
    shelf.collections.close(shelf.company.handle.tenant_id)
    assert len(shelf.dense(ana, EAST)) == 1


def test_a_collection_of_another_model_is_refused_with_the_remedy(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    other = Shelf(shelf.company, msgspec.structs.replace(FINGERPRINT, revision="2"))
    with pytest.raises(ModelMismatch, match="revision '1', not '2'") as caught:
        other.scope(ana)
    assert caught.value.remedy
    with pytest.raises(ModelMismatch):
        other.put("b", "word", vectors=[EAST])
    assert len(shelf.dense(ana, EAST)) == 1
    shelf.remove("a")
    other.put("b", "word", vectors=[EAST], allow=["tenant"])
    assert len(other.dense(ana, EAST)) == 1
    with pytest.raises(ModelMismatch):
        shelf.dense(ana, EAST)


def test_a_collection_that_cannot_tell_its_model_is_refused(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    with shelf.company.handle.writing() as view:
        view.execute(update(models).values(fingerprint={}))
    with pytest.raises(ModelMismatch):
        shelf.scope(ana)


def test_a_pruned_list_of_changes_means_reading_everything(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_module, "CHANGES_KEPT", 3)
    ana = shelf.company.principal("ana")
    for number in range(3):
        shelf.put(f"old{number}", "word", vectors=[EAST], allow=["tenant"])
    _, before = shelf.scope(ana)
    shelf.remove("old0")
    for number in range(4):
        shelf.put(f"new{number}", "word", vectors=[EAST], allow=["tenant"])
    assert len(shelf.dense(ana, EAST)) == 6
    _, after = shelf.scope(ana)
    assert len(after.parts) == 1
    assert after.parts[0].segment is not before.parts[0].segment


@pytest.mark.slow
def test_readers_beside_a_writer_see_whole_documents_that_they_may_read(shelf: Shelf) -> None:
    """Documents have 1 to 6 equal chunks, so that a half one shows; three are always readable."""
    ana = shelf.company.principal("ana")
    for number in range(3):
        shelf.put(f"fixed{number}", "word", vectors=[EAST], allow=["user:ana"])
    done = threading.Event()
    vector = np.array(EAST, dtype=np.float32)

    def write() -> None:
        dice = random.Random(11)
        names: set[str] = set()
        for _ in range(250):
            name = f"d{dice.randrange(6)}"
            action = dice.random()
            if action < 0.5 or name not in names:
                size = dice.randrange(1, 7)
                allow = ["tenant"] if dice.random() < 0.5 else ["user:bo"]
                shelf.put(name, *["word"] * size, vectors=[[float(size), 0, 0, 0]] * size, allow=allow)
                names.add(name)
            elif action < 0.75:
                shelf.company.access(name, allow=["tenant"] if dice.random() < 0.5 else ["user:bo"])
            else:
                shelf.remove(name)
                names.discard(name)

    def read() -> int:
        looks = 0
        while not done.is_set():
            with shelf.collections.opened(shelf.company.handle) as (view, snapshot):
                domain = permission_domain(ana, view)
                owners = {row.id: row.document_id for row in view.execute(_OWNERS)}
                readable = readable_documents(domain, view, set(owners.values()))
                found = snapshot.dense(domain, vector, 100)
                worded = snapshot.lexical(domain, term_postings("word"), 100)
            expected = sorted(chunk for chunk, document in owners.items() if document in readable)
            assert sorted(scored.chunk_id for scored in found) == expected
            assert sorted(scored.chunk_id for scored in worded) == expected
            sizes = [scored.score for scored in found]
            assert all(sizes.count(size) % size == 0 for size in set(sizes))
            assert len(snapshot.dense(domain, vector, 3)) == 3
            looks += 1
        return looks

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            pool.submit(write).result()
        finally:
            done.set()
        assert all(reader.result() > 10 for reader in readers)
