"""What every engine does alike. Unchanged for all of them: `tests.conformance.columns` says which there are.

Vectors are of small integers, so that inner products are exact on every engine and ties are real ties.
"""

from __future__ import annotations

import math
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from indexing.engine import Hit, Point
from indexing.filters import parse
from indexing.remote import catching_up, points
from indexing.remote.mark import put_mark
from retrieval.search import open_scope, search
from tenancy import tenant as tenant_module
from tenancy.domain import permission_domain
from tenancy.errors import InvalidInput, StaleDomain, Unavailable
from tests.conformance.place import EAST, Place
from tests.support.filter_trees import FIELDS, documents, oracle, trees

ROOT = Path(__file__).parents[2]
LABELS = ["tenant", "user:ana", "user:bo", "group:staff", "group:board"]


def fill(place: Place, dice: random.Random, documents: int) -> None:
    """Documents of one to four chunks under random access lists."""
    place.acme.member("staff", "user:ana", "user:bo")
    place.acme.member("board", "user:bo")
    for number in range(documents):
        size = dice.randrange(1, 5)
        place.shelf.put(
            f"d{number}",
            *(f"word{number} text" for _ in range(size)),
            vectors=[[float(dice.randrange(-4, 5)) for _ in range(4)] for _ in range(size)],
            allow=dice.sample(LABELS, dice.randrange(0, 3)),
            deny=dice.sample(LABELS, dice.choice([0, 0, 1])),
        )


# What is found


def test_the_rows_and_their_order_are_those_of_a_plain_evaluation(place: Place) -> None:
    dice = random.Random(5)
    fill(place, dice, 60)
    for _ in range(12):
        vector = [float(dice.randrange(-4, 5)) for _ in range(4)]
        for person in (place.ana, place.bo):
            for k in (1, 3, 10, 200):
                assert place.found(person, vector, k) == place.expected(person, vector, k)


def test_scores_are_inner_products(place: Place) -> None:
    chunk_ids = place.shelf.put("a", "one", "two", vectors=[[3.0, -4, 0, 0], [0, 0, 0, 0]], allow=["tenant"])
    assert place.shelf.dense(place.ana, [2.0, 1, 0, 0]) == [(chunk_ids[0], 2.0), (chunk_ids[1], 0.0)]
    assert place.shelf.dense(place.ana, [-2.0, 0, 0, 0]) == [(chunk_ids[1], 0.0), (chunk_ids[0], -6.0)]


def test_ties_are_in_the_order_of_chunk_ids(place: Place) -> None:
    """Forty equal vectors, of which every third is readable; the first `k` of those come back for each `k`."""
    for number in range(40):
        allow = ["user:ana"] if number % 3 == 0 else ["user:bo"]
        place.shelf.put(f"d{number}", "word", vectors=[EAST], allow=allow)
    place.shelf.put("best", "word", vectors=[[2.0, 0, 0, 0]], allow=["tenant"])
    for k in (1, 2, 5, 13, 14, 15):
        assert place.found(place.ana, EAST, k) == place.expected(place.ana, EAST, k)
    assert len(place.found(place.ana, EAST, 50)) == 15


def test_k_is_filled_from_behind_any_number_of_nearer_unreadable_chunks(place: Place) -> None:
    for number in range(30):
        place.shelf.put(f"near{number}", "word", "word", vectors=[[9.0, 0, 0, 0]] * 2, allow=["user:bo"])
    mine = place.shelf.put(
        "mine", *["word"] * 5, vectors=[[float(number), 0, 0, 0] for number in range(5)], allow=["user:ana"]
    )
    assert place.found(place.ana, EAST, 5) == mine[::-1]
    assert place.found(place.ana, EAST, 3) == mine[:1:-1]


def test_a_k_beyond_what_is_readable_gives_all_that_is(place: Place) -> None:
    place.shelf.put("a", "word", "word", vectors=[EAST, EAST], allow=["user:ana"])
    place.shelf.put("b", "word", vectors=[EAST], allow=["user:bo"])
    assert len(place.found(place.ana, EAST, 1000)) == 2
    assert len(place.found(place.bo, EAST, 1000)) == 1


def test_an_empty_set_of_labels_reads_nothing(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["user:bo"])
    place.settle()
    asked = [len(engine.filters) for engine in place.engines.values()]
    assert place.domain_of(place.ana).is_empty
    assert place.found(place.ana) == []
    assert [len(engine.filters) for engine in place.engines.values()] == asked
    assert len(place.found(place.bo)) == 1


def test_a_tenant_without_documents_and_one_without_any_left_find_nothing(place: Place) -> None:
    assert place.found(place.ana) == []
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    assert len(place.found(place.ana)) == 1
    place.shelf.remove("a")
    assert place.found(place.ana) == []


def test_the_words_of_readable_chunks_alone_are_counted(place: Place) -> None:
    place.shelf.put("a", "apple pear", vectors=[EAST], allow=["user:ana"])
    place.shelf.put("b", "apple apple", vectors=[EAST], allow=["user:ana"])
    before = place.shelf.lexical(place.ana, "apple")
    assert len(before) == 2
    for number in range(5):
        place.shelf.put(f"other{number}", "apple", vectors=[EAST], allow=["user:bo"])
    assert place.shelf.lexical(place.ana, "apple") == before


def test_a_vector_of_another_shape_or_without_numbers_is_refused(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    for vector in ([1.0, 0, 0], [float("nan"), 0, 0, 0]):
        with pytest.raises(InvalidInput):
            place.shelf.dense(place.ana, vector)


# What a filter describes


def test_filters_describe_the_same_documents_as_a_plain_evaluation(place: Place) -> None:
    """Any tree over any values, some of the wrong type, and documents that the asker may not read among the rest."""
    metadata = {f"d{number}": kept(found) for number, found in enumerate(documents(40))}
    for number, (name, found) in enumerate(metadata.items()):
        allow = ["user:bo"] if number % 4 == 0 else ["tenant"]
        place.shelf.put(name, "word", vectors=[[float(number), 0, 0, 0]], allow=allow, metadata=found)
    mine = {name for number, name in enumerate(metadata) if number % 4}

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(trees)
    def holds(tree: dict[str, Any]) -> None:
        described = {name for name, found in metadata.items() if oracle(tree, found)}
        where = parse(tree, FIELDS)
        found = place.search(place.ana, k=100, where=where).items
        assert {passage.document for passage in found} == described & mine
        assert len(place.search(place.ana, k=3, where=where).items) == min(3, len(described & mine))

    holds()


def kept(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without what no database of documents can hold: NaN and infinities are no JSON."""
    return {name: value for name, value in metadata.items() if not isinstance(value, float) or math.isfinite(value)}


def test_a_changed_metadata_field_is_found_under_its_new_value(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"], metadata={"year": 2023})
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"], metadata={"year": "2024"})
    old, new = (parse({"field": "year", "eq": year}, FIELDS) for year in (2023, 2024))
    assert [passage.document for passage in place.search(place.ana, where=old).items] == ["a"]
    assert place.search(place.ana, where=new).items == ()
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"], metadata={"year": 2024})
    assert place.search(place.ana, where=old).items == ()
    assert [passage.document for passage in place.search(place.ana, where=new).items] == ["a"]


# Who may read


def test_deny_wins(place: Place) -> None:
    place.acme.member("staff", "user:ana", "user:bo")
    place.shelf.put("a", "word", vectors=[[5.0, 0, 0, 0]], allow=["tenant", "user:ana"], deny=["user:ana"])
    place.shelf.put("b", "word", vectors=[[4.0, 0, 0, 0]], allow=["group:staff"], deny=["group:staff"])
    kept = place.shelf.put("c", "word", vectors=[EAST], allow=["group:staff"], deny=["group:board"])
    assert place.found(place.ana, k=1) == kept
    assert len(place.found(place.bo)) == 2


def test_several_labels_are_any_of_them(place: Place) -> None:
    place.acme.member("staff", "user:ana")
    place.acme.member("board", "user:ana")
    lists = {"a": ["user:ana"], "b": ["group:staff"], "c": ["group:board", "user:bo"], "d": ["tenant"]}
    chunk_ids = [place.shelf.put(name, "word", vectors=[EAST], allow=allow)[0] for name, allow in lists.items()]
    place.shelf.put("e", "word", vectors=[EAST], allow=["group:none"])
    assert place.found(place.ana) == chunk_ids
    assert place.found(place.bo) == chunk_ids[2:]


def test_membership_of_nested_groups_holds_at_once_and_touches_no_engine(place: Place) -> None:
    secret = place.shelf.put("a", "word", vectors=[EAST], allow=["group:all"])
    place.shelf.put("b", "word", vectors=[EAST], allow=["user:ana"])
    place.acme.member("team", "user:ana")
    assert len(place.found(place.ana)) == 1
    written = [engine.calls.count("put") for engine in place.engines.values()]
    place.acme.member("all", "group:team")
    assert secret[0] in place.found(place.ana)
    place.acme.leave("team", "user:ana")
    assert secret[0] not in place.found(place.ana)
    assert [engine.calls.count("put") for engine in place.engines.values()] == written


def test_a_changed_access_list_holds_for_the_next_question(place: Place) -> None:
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    secret = place.shelf.put("a", "word", vectors=[[3.0, 0, 0, 0]], allow=["user:bo"])
    for allow, deny, reads in (
        (["user:bo", "user:ana"], [], True),
        (["tenant"], ["user:ana"], False),
        (["tenant"], [], True),
        ([], [], False),
    ):
        place.acme.access("a", allow=allow, deny=deny)
        assert (secret[0] in place.found(place.ana)) is reads
        assert place.found(place.ana) == place.expected(place.ana)


def test_a_domain_of_another_tenant_or_another_state_is_refused(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    place.neighbour.put("a", "word", vectors=[EAST], allow=["tenant"])
    foreign, _ = place.neighbour.scope(place.globex.principal("ana"))
    old, _ = place.shelf.scope(place.ana)
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    _, snapshot = place.shelf.scope(place.ana)
    for domain in (foreign, old):
        with pytest.raises(StaleDomain):
            snapshot.dense(domain, np.array(EAST, dtype=np.float32), 5)


def test_two_tenants_with_the_same_documents_never_see_each_others(place: Place) -> None:
    """Document, chunk and label ids are equal in both, so that only the collection tells them apart."""
    other = place.globex.principal("ana")
    for number in range(6):
        allow = ["tenant"] if number % 2 else ["user:ana"]
        place.shelf.put(f"d{number}", "acme", vectors=[[float(number), 0, 0, 0]], allow=allow)
        place.neighbour.put(f"d{number}", "globex", vectors=[[float(-number), 0, 0, 0]], allow=allow)
    askers = ((place.ana, place.shelf, "acme", 1), (other, place.neighbour, "globex", -1))
    for person, shelf, word, order in askers * 2:
        passages = place.search(person, shelf=shelf).items
        assert {passage.text for passage in passages} == {word}
        assert [passage.document for passage in passages] == [f"d{number}" for number in range(6)][::-order]
    place.shelf.remove("d1")
    assert len(place.found(place.ana)) == 5
    assert len(place.search(other, shelf=place.neighbour).items) == 6


# What changes


def test_a_new_version_takes_the_old_ones_place(place: Place) -> None:
    before = place.shelf.put("a", "old", "old", vectors=[[5.0, 0, 0, 0]] * 2, allow=["tenant"])
    assert place.found(place.ana) == before
    after = place.shelf.put("a", "new", vectors=[[1.0, 0, 0, 0]], allow=["tenant"])
    assert place.found(place.ana) == after
    assert place.search(place.ana).items[0].text == "new"


def test_a_deleted_document_is_found_no_more(place: Place) -> None:
    place.shelf.put("a", "word", "word", vectors=[[5.0, 0, 0, 0]] * 2, allow=["tenant"])
    kept = place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    assert len(place.found(place.ana)) == 3
    place.shelf.remove("a")
    assert place.found(place.ana, k=1) == kept


def test_another_process_finds_the_same(place: Place) -> None:
    fill(place, random.Random(8), 20)
    before = place.found(place.bo)
    place.connect()
    assert place.found(place.bo) == before == place.expected(place.bo)
    place.shelf.put("new", "word", vectors=[[50.0, 0, 0, 0]], allow=["tenant"])
    place.connect()
    assert place.found(place.bo) == place.expected(place.bo)


def test_any_sequence_of_changes_ends_in_the_same_rows(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """More documents change than are written in one piece, some several times, before the engine hears of it."""
    monkeypatch.setattr(catching_up, "DOCUMENTS_A_PIECE", 8)
    monkeypatch.setattr(points, "PIECE_BYTES", 16 * 5)
    dice = random.Random(3)
    fill(place, dice, 25)
    place.found(place.ana)
    for _ in range(50):
        name = f"d{dice.randrange(25)}"
        if dice.random() < 0.5:
            vectors = [[float(dice.randrange(-4, 5)) for _ in range(4)] for _ in range(dice.randrange(1, 4))]
            place.shelf.put(name, *["word"] * len(vectors), vectors=vectors, allow=dice.sample(LABELS, 2))
        elif place.shelf.chunk_ids(name):
            place.acme.access(name, allow=dice.sample(LABELS, 2), deny=dice.sample(LABELS, 1))
            if dice.random() < 0.3:
                place.shelf.remove(name)
    for person in (place.ana, place.bo):
        assert place.found(person, k=100) == place.expected(person, k=100)
    assert [place.held() for _ in place.engines] == [place.stored() for _ in place.engines]


def test_a_list_of_changes_that_does_not_reach_back_means_building_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_module, "CHANGES_KEPT", 3)
    for number in range(4):
        place.shelf.put(f"old{number}", "word", vectors=[EAST], allow=["tenant"])
    assert len(place.found(place.ana)) == 4
    place.shelf.remove("old0")
    for number in range(5):
        place.shelf.put(f"new{number}", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    assert [place.held() for _ in place.engines] == [place.stored() for _ in place.engines]
    assert place.found(place.ana) == place.expected(place.ana)
    assert len(place.found(place.ana)) == 8


@pytest.mark.slow
def test_readers_beside_a_writer_find_what_they_may_read(place: Place) -> None:
    """Whatever the writer does, the three fixed documents fill k, and nothing that was never ana's comes back."""
    fixed = {f"fixed{number}" for number in range(3)}
    for name in fixed:
        place.shelf.put(name, "word", vectors=[EAST], allow=["user:ana"])
    place.shelf.put("never", "word", vectors=[[99.0, 0, 0, 0]], allow=["user:bo"])
    done = threading.Event()

    def write() -> None:
        dice = random.Random(11)
        names: set[str] = set()
        for _ in range(60):
            name = f"d{dice.randrange(6)}"
            action = dice.random()
            if action < 0.5 or name not in names:
                vectors = [[float(dice.randrange(2, 9)), 0, 0, 0]] * dice.randrange(1, 4)
                place.shelf.put(name, *["word"] * len(vectors), vectors=vectors, allow=["tenant"])
                names.add(name)
            elif action < 0.8:
                place.acme.access(name, allow=["tenant"] if dice.random() < 0.5 else ["user:bo"])
            else:
                place.shelf.remove(name)
                names.discard(name)
            place.settle()

    def read() -> int:
        looks = 0
        while not done.is_set():
            passages = place.search(place.ana, k=100).items
            assert fixed <= {passage.document for passage in passages}
            assert "never" not in {passage.document for passage in passages}
            assert len({passage.chunk_id for passage in passages}) == len(passages)
            looks += 1
        return looks

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        try:
            pool.submit(write).result()
        finally:
            done.set()
        assert all(reader.result() > 3 for reader in readers)
    assert place.found(place.ana, k=100) == place.expected(place.ana, k=100)


@pytest.mark.slow
def test_a_kill_between_any_two_writes_loses_nothing(place: Place) -> None:
    """The n-th run changes four documents and dies at its n-th write, before it or behind it; then we look."""
    for name in "abc":
        place.shelf.put(name, "word", "word", vectors=[EAST, EAST], allow=["tenant"])
    place.settle()
    with victim(place) as dies_at:
        for event in range(1, 60):
            place.disconnect()
            ended = dies_at(event)
            place.connect()
            for person in (place.ana, place.bo):
                assert place.found(person, k=100) == place.expected(person, k=100)
            assert [place.held() for _ in place.engines] == [place.stored() for _ in place.engines]
            if ended == 0:
                break
            assert ended == -9
    assert event > 8


@contextmanager
def victim(place: Place) -> Iterator[Callable[[int], int]]:
    """Runs processes over the place's folder: from the number of the write to die at, to how the process ended."""
    command = [sys.executable, "-m", "tests.conformance.victim", place.column.name, str(place.folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None

        def dies_at(event: int) -> int:
            print(event, file=parent.stdin, flush=True)
            return int(parent.stdout.readline())

        yield dies_at


# What an engine is told, and what it may do wrong


@pytest.mark.server
def test_an_engine_is_told_numbers_alone(place: Place) -> None:
    place.acme.member("board", "user:ana")
    place.shelf.put(
        "secret name", "secret text", vectors=[EAST], allow=["group:board"], deny=["user:bo"],
        metadata={"secret field": "secret value", "year": 2024, "open": True, "price": 1.5},
    )  # fmt: skip
    place.found(place.ana)
    assert place.engine.points
    for point in place.engine.points:
        assert set(Point.__slots__) == {"chunk_id", "document_id", "vector", "allow", "deny", "metadata"}
        assert all(type(number) is int for number in (point.chunk_id, point.document_id, *point.allow, *point.deny))
        assert all(isinstance(value, int | float) for value in point.metadata.values())
        assert all(re.fullmatch(r"m[0-9a-f]{16}", key) for key in point.metadata)
        assert len(point.metadata) >= 4
    assert all(type(label) is int for labels, _ in place.engine.filters for label in labels)


@pytest.mark.server
def test_physical_names_say_nothing_and_belong_to_one_tenant(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    place.neighbour.put("a", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    place.neighbour.collections.settle(place.globex.handle)
    names = {place.collection().physical, place.collection(place.globex).physical}
    assert len(names) == 2
    assert all(re.fullmatch(r"c_[0-9a-f]{32}", name) for name in names)
    assert names <= set(place.engine.collections())
    for name, company in ((name, company) for name in names for company in (place.acme, place.globex)):
        assert company.handle.tenant_id.rpartition("_")[2] not in name


@pytest.mark.server
def test_the_labels_act_inside_the_search(place: Place) -> None:
    """The engine itself returns readable chunks alone: nothing that it sends is left for the check to drop."""
    fill(place, random.Random(21), 40)
    seen: list[set[int]] = []
    place.engine.answer = lambda hits: seen.append({hit.chunk_id for hit in hits}) or hits
    for person in (place.ana, place.bo):
        everything = set(place.expected(person, k=1000))
        for k in (3, 30):
            place.found(person, [1.0, 2.0, -1.0, 0.0], k)
            assert seen.pop() <= everything
            seen.clear()
    assert place.engine.filters[-1][0] == permission_labels(place)


@pytest.mark.server
def test_an_unreadable_chunk_never_leaves_though_the_engine_sends_it(place: Place) -> None:
    secret = place.shelf.put("a", "secret", vectors=[[9.0, 0, 0, 0]], allow=["user:bo"])
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    place.engine.answer = lambda hits: [Hit(secret[0], 9.0), *hits[1:]]
    domain, snapshot = place.shelf.scope(place.ana)
    with pytest.raises(StaleDomain):
        snapshot.dense(domain, np.array(EAST, dtype=np.float32), 5)
    with pytest.raises(Unavailable) as caught:
        place.found(place.ana)
    assert caught.value.remedy


@pytest.mark.server
def test_a_label_that_an_engine_forgot_is_written_again(place: Place) -> None:
    """The engine believes that everybody may read what was taken from ana, and that bo may not read his."""
    chunk_ids = [place.shelf.put(name, "word", vectors=[EAST], allow=["user:bo"])[0] for name in "ab"]
    place.shelf.put("c", "word", vectors=[EAST], allow=["user:ana"])
    place.settle()
    vector = np.array(EAST, dtype=np.float32)
    everybody = tuple(sorted(permission_labels(place) | {1, 2, 3}))
    place.engine.inner.put(place.collection().physical, [Point(chunk_ids[0], 1, vector, everybody, ())])
    assert place.found(place.ana) == place.expected(place.ana)
    assert place.found(place.bo) == place.expected(place.bo) == chunk_ids


@pytest.mark.server
def test_a_chunk_that_an_engine_lost_is_written_again(place: Place) -> None:
    chunk_ids = place.shelf.put("a", "word", "word", "word", vectors=[EAST] * 3, allow=["tenant"])
    assert place.found(place.ana) == chunk_ids
    place.engine.inner.remove(place.collection().physical, chunk_ids[1:2])
    assert place.found(place.ana) == chunk_ids
    assert place.held() == place.stored()


@pytest.mark.server
def test_a_chunk_that_came_back_from_the_dead_is_removed_again(place: Place) -> None:
    gone = place.shelf.put("a", "secret", vectors=[[9.0, 0, 0, 0]], allow=["tenant"])
    place.found(place.ana)
    old = place.engine.points[-1]
    place.shelf.remove("a")
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    place.engine.inner.put(place.collection().physical, [old])
    assert gone[0] in place.held()
    assert place.found(place.ana) == place.expected(place.ana)
    assert place.held() == place.stored()


@pytest.mark.server
def test_a_collection_that_the_engine_lost_is_built_again(place: Place) -> None:
    fill(place, random.Random(4), 10)
    place.found(place.bo)
    place.engine.inner.drop(place.collection().physical)
    assert place.found(place.bo) == place.expected(place.bo)
    place.connect()
    place.engine.inner.drop(place.collection().physical)
    place.shelf.put("new", "word", vectors=[[20.0, 0, 0, 0]], allow=["tenant"])
    assert place.found(place.bo) == place.expected(place.bo)
    assert place.held() == place.stored()


@pytest.mark.server
@pytest.mark.parametrize("noticed_by", ["question", "writer"])
def test_an_older_state_that_an_engine_was_put_back_to_is_noticed(place: Place, noticed_by: str) -> None:
    """So many rows that a search is full without those that are missing."""
    place.shelf.put("a", *["word"] * 150, vectors=[[float(n), 0, 0, 0] for n in range(150)], allow=["tenant"])
    place.settle()
    older = place.collection().applied
    lost = place.shelf.put("b", "word", vectors=[[999.0, 0, 0, 0]], allow=["tenant"])
    place.settle()
    assert place.found(place.ana, EAST, 1) == lost
    place.engine.remove(place.collection().physical, lost)
    put_mark(place.engine, place.collection().physical, place.shelf.fingerprint.dimension, older)
    if noticed_by == "question":
        place.connect()
    else:
        place.shelf.put("c", "word", vectors=[[0.0, 1, 0, 0]], allow=["tenant"])
        place.settle()
    assert place.found(place.ana, EAST, 1) == lost
    assert place.held() == place.stored()


@pytest.mark.server
def test_a_collection_is_compared_with_the_database(place: Place) -> None:
    kept = place.shelf.put("a", "word", "word", vectors=[EAST, EAST], allow=["tenant"])
    gone = place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    assert place.compared().agrees
    place.shelf.remove("b")
    behind = place.compared()
    assert (behind.behind, behind.surplus.tolist(), behind.agrees) == (1, gone, False)
    place.settle()
    place.engine.inner.remove(place.collection().physical, kept[:1])
    differs = place.compared()
    assert (differs.stored, differs.held, differs.behind, differs.missing.tolist()) == (2, 1, 0, kept[:1])
    place.engine.inner.drop(place.collection().physical)
    assert place.compared().lost


@pytest.mark.server
def test_an_engine_that_is_away_fails_questions_and_loses_nothing(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    assert len(place.found(place.ana)) == 1
    place.engine.away()
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            place.found(place.ana)
        assert caught.value.remedy
    place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    place.shelf.remove("a")
    with pytest.raises(Unavailable):
        place.settle()
    place.engine.back()
    assert place.found(place.ana) == place.expected(place.ana) == place.shelf.chunk_ids("b")
    assert place.held() == place.stored()


@pytest.mark.server
def test_an_engine_that_leaves_between_any_two_writes_is_caught_up(place: Place) -> None:
    for round_number in range(1, 12):
        for name in "ab":
            allow = ["tenant"] if round_number % 2 else ["user:bo"]
            place.shelf.put(name, "word", vectors=[[float(round_number), 0, 0, 0]], allow=allow)
        calls = iter(range(1, 1000))

        def refuse(_: str, calls: object = calls, last: int = round_number) -> None:
            if next(calls) >= last:  # type: ignore[call-overload]
                raise Unavailable("the vector engine cannot be reached", item="vectors", remedy="start it")

        place.engine.before = refuse
        try:
            place.settle()
        except Unavailable:
            place.engine.back()
        else:
            place.engine.back()
            break
        assert place.found(place.ana) == place.expected(place.ana)
        assert place.held() == place.stored()
    else:
        pytest.fail("no settling came to its end")


@pytest.mark.server
def test_who_settles_waits_for_the_engine(place: Place) -> None:
    chunk_ids = place.shelf.put("a", "word", vectors=[EAST], allow=["user:bo"])
    place.settle()
    assert place.held() == chunk_ids
    written = len(place.engine.points)
    place.settle()
    assert len(place.engine.points) == written
    place.acme.access("a", allow=["tenant"])
    place.settle()
    assert place.engine.points[-1].allow == tuple(permission_labels(place))
    place.shelf.remove("a")
    place.settle()
    assert place.held() == []


@pytest.mark.server
def test_a_dropped_collection_is_gone_and_its_neighbour_is_not(place: Place) -> None:
    place.shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    place.neighbour.put("a", "word", vectors=[EAST], allow=["tenant"])
    place.settle()
    place.neighbour.collections.settle(place.globex.handle)
    mine, other = place.collection().physical, place.collection(place.globex).physical
    place.engine.drop(mine)
    place.engine.drop(mine)
    assert mine not in place.engine.collections()
    assert other in place.engine.collections()
    assert len(place.search(place.globex.principal("ana"), shelf=place.neighbour).items) == 1


def permission_labels(place: Place) -> frozenset[int]:
    """The labels of the last question: bo's, or ana's where bo has not been asked."""
    return place.engine.filters[-1][0] if place.engine.filters else place.domain_of(place.ana).labels


def test_a_scope_is_opened_again_where_the_engine_is_ahead(place: Place) -> None:
    """A question that opened its scope before a change ends under a later one, with whole rows."""
    place.shelf.put("a", "word", vectors=[[5.0, 0, 0, 0]], allow=["tenant"])
    kept = place.shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    tenant = place.acme.handle
    scope = open_scope(place.ana, tenant, place.shelf.collections)
    place.shelf.remove("a")
    place.settle()
    model, vector = place.shelf.fingerprint, np.array(EAST, dtype=np.float32)
    found = search(tenant, place.ana, scope, "", vector, 5, "dense", model=model, covers=1.0)
    assert [passage.chunk_id for passage in found.items] == kept
    with tenant.reading() as view:
        assert found.domain == permission_domain(place.ana, view)
