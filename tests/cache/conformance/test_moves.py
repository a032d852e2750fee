"""What moves between a question and its answer, on every store: a change of model, adapter or template leads to another
namespace and back, a change of the domain or of a document on the way to no serve and no store.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cache.lookup import Hit, Miss, Reason
from cache.store import NotStored, Stored
from cache.stores.port import CacheStore
from tests.cache.desk import Desk, unit
from tests.cache.test_key import CHANGES
from tests.support.people import Company

QUESTION = "How long is the parental leave for new parents?"
SAME = "How long is parental leave for new parents please?"


@pytest.fixture
def desk_of(acme: Company, store: CacheStore, handbook: int) -> Callable[[str], Desk]:
    return lambda user: Desk(acme, acme.principal(user), store)


def test_a_change_of_model_template_or_adapter_serves_nothing_old_and_the_way_back_all(
    ana: Desk, handbook: int
) -> None:
    ana.open(0.9)
    variants = [{}, *({name: value} for name, value in CHANGES.items() if name != "conversation")]
    for number, changes in enumerate(variants):
        assert isinstance(ana.exact(QUESTION, **changes), Miss)
        assert isinstance(ana.semantic(SAME, unit(1.0), **changes), Miss)
        stored = ana.put(ana.ask(QUESTION, **changes), ana.answer(handbook, text=f"answer {number}."))
        assert isinstance(stored, Stored)
    for number, changes in enumerate(variants):
        for found in (ana.exact(QUESTION, **changes), ana.semantic(SAME, unit(1.0), **changes)):
            assert isinstance(found, Hit)
            assert f"answer {number}.".encode() in found.entry.payload, changes


def test_a_domain_that_moved_after_the_question_was_read_neither_finds_nor_stores(
    acme: Company, ana: Desk, handbook: int
) -> None:
    acme.document("secret", allow=["group:board"])
    assert isinstance(ana.put(QUESTION, ana.answer(handbook)), Stored)
    asked, answer = ana.ask(QUESTION), ana.answer(handbook)
    acme.member("board", "user:ana")
    missed = ana.exact(asked)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.STALE_DOMAIN
    assert ana.put(asked, answer) == NotStored("access lists moved")
    assert ana.put(asked, ana.answer(handbook)) == NotStored("the permission domain moved")
    acme.leave("board", "user:ana")
    assert isinstance(ana.exact(QUESTION), Hit)


def test_an_answer_in_flight_is_dropped_when_access_moved_and_kept_when_the_corpus_grew(
    acme: Company, ana: Desk, handbook: int
) -> None:
    asked, answer = ana.ask(QUESTION), ana.answer(handbook)
    acme.document("more", allow=["group:staff"])
    assert isinstance(ana.put(asked, answer), Stored)
    answer = ana.answer(handbook)
    acme.access("handbook", allow=["group:staff"], deny=["user:dee"])
    assert isinstance(ana.put(asked, answer), NotStored)
    replaced = acme.document("handbook", allow=["group:staff"])
    assert ana.put(asked, ana.answer(handbook)) == NotStored("a document moved")
    assert isinstance(ana.put(ana.ask(QUESTION), ana.answer(replaced)), Stored)
