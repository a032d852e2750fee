"""A snapshot: exact search under a domain, and nothing of what the domain does not cover."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from indexing import loading
from indexing.catalogue import serving
from indexing.segment import Segment
from indexing.terms import term_postings
from tenancy.errors import Corrupt, InvalidInput, StaleDomain
from tests.support.people import Company
from tests.support.shelf import Shelf

pytestmark = pytest.mark.both_storages

EAST = [1.0, 0.0, 0.0, 0.0]


@pytest.fixture
def shelf(acme: Company) -> Shelf:
    return Shelf(acme)


def test_dense_finds_what_is_allowed_and_not_what_is_denied(shelf: Shelf) -> None:
    ana, bo = shelf.company.principal("ana"), shelf.company.principal("bo")
    [shared] = shelf.put("shared", "s", vectors=[EAST], allow=["tenant"])
    [secret] = shelf.put("secret", "x", vectors=[[2.0, 0.0, 0.0, 0.0]], allow=["tenant"], deny=["user:bo"])
    shelf.put("nobody", "n", vectors=[[3.0, 0.0, 0.0, 0.0]])
    assert shelf.dense(ana, EAST) == [(secret, 2.0), (shared, 1.0)]
    assert shelf.dense(bo, EAST) == [(shared, 1.0)]


def test_the_last_row_does_not_stand_in_for_a_missing_result(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    [mine] = shelf.put("mine", "m", vectors=[EAST], allow=["user:ana"])
    shelf.put("last, and not for ana", "l", vectors=[EAST], allow=["user:bo"])
    assert shelf.dense(ana, EAST, k=5) == [(mine, 1.0)]


def test_k_readable_chunks_come_back_however_few_are_near(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("near", *"abcdefgh", vectors=[EAST] * 8, allow=["user:bo"])
    far = shelf.put("far", "i", "j", "k", vectors=[[-1.0, 0.0, 0.0, 0.0]] * 3, allow=["user:ana"])
    assert shelf.dense(ana, EAST, k=3) == [(chunk, -1.0) for chunk in far]


def test_ties_come_by_chunk_id_across_segments(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    first = shelf.put("a", *"abcdefghij" * 3, vectors=[EAST] * 30, allow=["tenant"])
    shelf.dense(ana, EAST)
    second = shelf.put("b", "k", "l", vectors=[EAST] * 2, allow=["tenant"])
    _, snapshot = shelf.scope(ana)
    assert len(snapshot.parts) == 2
    assert [chunk for chunk, _ in shelf.dense(ana, EAST, k=31)] == (first + second)[:31]
    assert [chunk for chunk, _ in shelf.dense(ana, EAST, k=4)] == first[:4]
    assert [chunk for chunk, _ in shelf.lexical(ana, "k", k=2)] == [second[0]]


def test_nobody_and_nothing_are_decided_before_an_index_is_called(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, outsider = shelf.company.principal("ana"), shelf.company.principal("outsider")
    [mine] = shelf.put("mine", "word", vectors=[EAST], allow=["user:ana"])
    assert shelf.dense(ana, EAST) == [(mine, 1.0)]

    def refuse(*_: Any) -> Any:
        raise AssertionError("an index was called")

    monkeypatch.setattr(Segment, "nearest", refuse)
    domain, snapshot = shelf.scope(outsider)
    assert domain.is_empty
    assert snapshot.dense(domain, np.array(EAST, dtype=np.float32), 5) == []
    assert snapshot.lexical(domain, term_postings("word"), 5) == []
    with pytest.raises(AssertionError):
        shelf.dense(ana, EAST)


def test_a_domain_with_labels_but_nothing_readable_gets_nothing(shelf: Shelf) -> None:
    bo = shelf.company.principal("bo")
    shelf.put("denied", "word", vectors=[EAST], allow=["tenant"], deny=["user:bo"])
    domain, _ = shelf.scope(bo)
    assert not domain.is_empty
    assert shelf.dense(bo, EAST) == []
    assert shelf.lexical(bo, "word") == []


def test_a_domain_of_another_state_or_tenant_is_refused(shelf: Shelf, globex: Company) -> None:
    ana, other = shelf.company.principal("ana"), globex.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    globex.document("g", allow=["tenant"])
    old, before = shelf.scope(ana)
    shelf.put("b", "word", vectors=[EAST], allow=["tenant"])
    current, after = shelf.scope(ana)
    vector = np.array(EAST, dtype=np.float32)
    for domain, snapshot in ((old, after), (current, before), (globex.domain(other), after)):
        with pytest.raises(StaleDomain):
            snapshot.dense(domain, vector, 1)
        with pytest.raises(StaleDomain):
            snapshot.lexical(domain, term_postings("word"), 1)
    assert len(before.dense(old, vector, 9)) == 1
    assert len(after.dense(current, vector, 9)) == 2


@pytest.mark.parametrize(
    "vector", [[1.0], [1.0] * 5, [[1.0, 0.0, 0.0, 0.0]], [float("nan"), 0, 0, 0], [float("inf"), 0, 0, 0]]
)
def test_a_vector_that_does_not_fit_is_refused(shelf: Shelf, vector: list[Any]) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    with pytest.raises(InvalidInput, match="vector"):
        shelf.dense(ana, vector)
    with pytest.raises(InvalidInput):
        shelf.dense(ana, EAST, k=0)
    assert len(shelf.dense(ana, EAST)) == 1


def test_a_stored_vector_of_another_size_is_corrupt(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    with shelf.company.handle.reading() as view, pytest.raises(Corrupt, match="16 bytes, not 20"):
        loading.load(view, serving(view), 5)
    assert len(shelf.dense(ana, EAST)) == 1


def test_lexical_counts_only_what_is_readable(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "apple pear", "apple apple", "plum", allow=["user:ana"])
    alone = shelf.lexical(ana, "apple plum")
    assert len(alone) == 3
    shelf.put("b", "apple plum apple", "plum " * 50, allow=["user:bo"])
    assert shelf.lexical(ana, "apple plum") == alone
    shelf.put("b", "apple " * 9, allow=["user:bo"])
    assert shelf.lexical(ana, "apple plum") == alone
    shelf.put("c", "apple", allow=["user:ana"])
    assert [score for _, score in shelf.lexical(ana, "apple plum")] != [score for _, score in alone]


def test_lexical_returns_no_chunk_without_a_common_term(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    [apple, _] = shelf.put("a", "apple", "pear", allow=["tenant"])
    assert [chunk for chunk, _ in shelf.lexical(ana, "apples")] == [apple]
    assert shelf.lexical(ana, "plum") == []
    assert shelf.lexical(ana, "") == []


def test_a_membership_change_keeps_every_segment_and_access_set(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    shelf.put("a", "word", vectors=[EAST], allow=["group:legal"])
    assert shelf.dense(ana, EAST) == []
    _, before = shelf.scope(ana)
    shelf.company.member("legal", "ana")
    assert len(shelf.dense(ana, EAST)) == 1
    _, after = shelf.scope(ana)
    assert after is not before
    assert after.parts is before.parts
    shelf.company.leave("legal", "ana")
    assert shelf.dense(ana, EAST) == []


def test_a_changed_access_list_touches_no_vector(shelf: Shelf) -> None:
    ana, bo = shelf.company.principal("ana"), shelf.company.principal("bo")
    shelf.put("a", "word", vectors=[EAST], allow=["user:ana"])
    _, before = shelf.scope(ana)
    shelf.company.access("a", allow=["user:bo"])
    assert shelf.dense(ana, EAST) == []
    assert len(shelf.dense(bo, EAST)) == 1
    _, after = shelf.scope(bo)
    assert after.parts[0].segment is before.parts[0].segment


def test_a_running_search_keeps_its_state(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    [old] = shelf.put("a", "word", vectors=[EAST], allow=["tenant"])
    domain, snapshot = shelf.scope(ana)
    [new] = shelf.put("a", "other", vectors=[[0.5, 0.0, 0.0, 0.0]], allow=["tenant"])
    assert shelf.dense(ana, EAST) == [(new, 0.5)]
    shelf.collections.close(shelf.company.handle.tenant_id)
    assert [tuple(found) for found in snapshot.dense(domain, np.array(EAST, dtype=np.float32), 5)] == [(old, 1.0)]


def test_deleted_rows_are_packed_away(shelf: Shelf) -> None:
    ana = shelf.company.principal("ana")
    for number in range(40):
        shelf.put(f"d{number}", f"word{number}", vectors=[[float(number), 0, 0, 0]], allow=["tenant"])
        shelf.scope(ana)
    for number in range(0, 40, 2):
        shelf.remove(f"d{number}")
        _, snapshot = shelf.scope(ana)
        rows = sum(part.segment.rows for part in snapshot.parts)
        assert sum(part.live_rows for part in snapshot.parts) >= (1 - loading.DELETED_SHARE) * rows
        assert len(snapshot.parts) <= 4
    assert [score for _, score in shelf.dense(ana, EAST, k=30)] == [float(n) for n in range(39, 0, -2)]
    for number in range(1, 40, 2):
        shelf.remove(f"d{number}")
    assert shelf.dense(ana, EAST) == []
    _, snapshot = shelf.scope(ana)
    assert snapshot.parts == ()
