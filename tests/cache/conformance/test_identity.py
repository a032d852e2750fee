"""The identity on every store: what differs in one part alone misses, byte for byte the same question included, and
what does not differ hits. The parts are `tests.cache.test_key`'s, which checks that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cache.entry import Vector
from cache.key import RetrievalIdentity
from cache.lookup import Hit, Miss, Mode, Reason, ask
from cache.store import Stored, put
from cache.stores.port import CacheStore
from tenancy.domain import permission_domain
from tests.cache.desk import Desk, identity, unit
from tests.cache.test_key import CHANGES, RETRIEVAL_CHANGES
from tests.support.people import Company

QUESTION = "How long is the parental leave for new parents?"
SAME = "How long is parental leave for new parents please?"
PERSONAL = "Is the account of ana@example.com covered by the policy?"
RETRIEVAL = RetrievalIdentity(8, "hybrid", "rrf", None, "chunker-1")


@pytest.fixture
def handbook(acme: Company) -> int:
    acme.member("staff", "user:ana", "user:bo", "user:cy")
    return acme.document("handbook", allow=["group:staff"])


@pytest.fixture
def desk_of(acme: Company, store: CacheStore, handbook: int) -> Callable[[str], Desk]:
    return lambda user: Desk(acme, acme.principal(user), store)


@pytest.fixture
def ana(desk_of: Callable[[str], Desk]) -> Desk:
    desk = desk_of("ana")
    desk.open(0.9)
    return desk


def kinds(desk: Desk, question: str = QUESTION, alike: str = SAME, **changes: Any) -> list[str]:
    """Which rungs serve: the same bytes again, a paraphrase, and the same bytes by similarity."""
    vector: Vector = unit(1.0)
    found = [desk.exact(question, **changes), desk.semantic(alike, vector, **changes)]
    found.append(desk.semantic(question, vector, **changes))
    return [hit.kind if isinstance(hit, Hit) else "miss" for hit in found]


SERVED = ["exact", "semantic", "semantic"]
MISSED = ["miss", "miss", "miss"]


def test_each_part_that_differs_alone_misses_and_equal_parts_hit(ana: Desk, bo: Desk, handbook: int) -> None:
    assert kinds(ana) == MISSED
    assert isinstance(ana.put(QUESTION, ana.answer(handbook)), Stored)
    assert kinds(ana) == kinds(bo) == SERVED
    for name, value in CHANGES.items():
        assert kinds(ana, **{name: value}) == MISSED, name
    for name, value in RETRIEVAL_CHANGES.items():
        assert kinds(ana, retrieval=replace(RETRIEVAL, **{name: value})) == MISSED, name
    for name in ("adapter_revision", "filter", "conversation", "response_contract"):
        assert kinds(ana, **{name: ""}) == MISSED, name
    assert kinds(ana) == SERVED


def test_what_was_stored_under_each_part_is_served_there_alone(ana: Desk, handbook: int) -> None:
    """A change of model, adapter, template, embedder or settings is another namespace, and the way back finds all."""
    variants = [{}, *({name: value} for name, value in CHANGES.items() if name != "conversation")]
    for number, changes in enumerate(variants):
        asked = ana.ask(QUESTION, **changes)
        assert isinstance(ana.put(asked, ana.answer(handbook, text=f"answer {number}")), Stored)
    for number, changes in enumerate(variants):
        for found in (ana.exact(QUESTION, **changes), ana.semantic(SAME, unit(1.0), **changes)):
            assert isinstance(found, Hit)
            assert f"answer {number}".encode() in found.entry.payload, changes


def test_a_conversation_repeats_exactly_and_only_in_itself(ana: Desk, handbook: int) -> None:
    assert isinstance(ana.put(ana.ask(QUESTION, conversation="9f"), ana.answer(handbook)), Stored)
    assert kinds(ana, conversation="9f") == ["exact", "miss", "miss"]
    assert kinds(ana, conversation="9e") == kinds(ana) == MISSED


def test_another_domain_misses_and_the_same_one_hits(
    acme: Company, ana: Desk, bo: Desk, desk_of: Callable[[str], Desk], handbook: int
) -> None:
    acme.document("secret", allow=["group:board"])
    acme.member("board", "user:cy")
    cy = desk_of("cy")
    assert isinstance(ana.put(QUESTION, ana.answer(handbook)), Stored)
    assert (kinds(bo), kinds(cy)) == (SERVED, MISSED)
    assert isinstance(cy.put(QUESTION, cy.answer(handbook, text="from the board")), Stored)
    assert kinds(cy) == SERVED
    for desk, text in ((bo, b"Twelve weeks."), (cy, b"from the board")):
        found = desk.exact(QUESTION)
        assert isinstance(found, Hit)
        assert text in found.entry.payload


def test_another_tenant_misses_in_the_same_store(ana: Desk, globex: Company, handbook: int, store: CacheStore) -> None:
    globex.member("staff", "user:ana")
    assert globex.document("handbook", allow=["group:staff"]) == handbook
    other = Desk(globex, globex.principal("ana"), store)
    other.open(0.9)
    assert isinstance(ana.put(QUESTION, ana.answer(handbook)), Stored)
    assert (kinds(ana), kinds(other)) == (SERVED, MISSED)
    assert isinstance(other.put(QUESTION, other.answer(handbook, text="globex")), Stored)
    assert kinds(other) == kinds(ana) == SERVED
    found = ana.exact(QUESTION)
    assert isinstance(found, Hit)
    assert b"globex" not in found.entry.payload


def test_a_personal_question_is_its_askers_own(ana: Desk, bo: Desk, handbook: int) -> None:
    assert isinstance(ana.put(PERSONAL, ana.answer(handbook)), Stored)
    assert kinds(ana, PERSONAL, PERSONAL) == ["exact", "miss", "miss"]
    assert kinds(bo, PERSONAL, PERSONAL) == MISSED


NAMES = [
    ("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a\x00", "bc"), ("a", "\x00bc"), ("é", ""), ("e\u0301 ", ""),
    ("x" * 1000, ""), ("x" * 999, "x"), ("x" * 1000 + "y", ""), ("\x1b[31m", ""), ("\u202e", ""), ("ａ", "bc"),
]  # fmt: skip


def test_adversarial_names_never_meet(ana: Desk, handbook: int) -> None:
    """("a", "bc") is not ("ab", "c"); controls, wide letters and 1,000 characters separate as any others do."""

    def changes(pair: tuple[str, str]) -> dict[str, Any]:
        return {"template_revision": f"{pair[0]}@1", "adapter_revision": pair[0], "filter": pair[1]}

    for number, pair in enumerate(NAMES):
        asked = ana.ask(QUESTION, **changes(pair))
        assert isinstance(ana.put(asked, ana.answer(handbook, text=f"answer {number}.")), Stored)
    for number, pair in enumerate(NAMES):
        found = ana.exact(QUESTION, **changes(pair))
        assert isinstance(found, Hit)
        assert f"answer {number}.".encode() in found.entry.payload
    assert kinds(ana, adapter_revision="abc", filter=None) == MISSED


def test_two_spellings_of_one_text_are_one_question_and_one_name(ana: Desk, handbook: int) -> None:
    composed, decomposed = (
        "Wie lang ist die Elternzeit fu\u0308r Va\u0308ter?",
        "Wie lang ist die Elternzeit für Väter?",
    )
    assert isinstance(ana.put(ana.ask(composed, filter="e\u0301"), ana.answer(handbook)), Stored)
    assert isinstance(ana.exact(decomposed, filter="é"), Hit)
    assert isinstance(ana.exact(decomposed, filter="e"), Miss)


def test_a_question_whose_domain_moved_neither_finds_nor_stores(acme: Company, ana: Desk, handbook: int) -> None:
    """The namespace was fixed before; the domain that it was fixed for is not this principal's any more."""
    acme.document("secret", allow=["group:board"])
    assert isinstance(ana.put(QUESTION, ana.answer(handbook)), Stored)
    asked, answer = ana.ask(QUESTION), ana.answer(handbook)
    acme.member("board", "user:ana")
    missed = ana.exact(asked)
    assert isinstance(missed, Miss)
    assert missed.reason is Reason.STALE_DOMAIN
    assert not isinstance(put(acme.handle, ana.principal, ana.store, asked, answer), Stored)
    acme.leave("board", "user:ana")
    assert isinstance(ana.exact(QUESTION), Hit)


def test_a_revocation_between_lookup_and_store_and_growth_alone(acme: Company, ana: Desk, handbook: int) -> None:
    with acme.handle.reading() as view:
        domain = permission_domain(ana.principal, view)
        asked = ask(domain, view, identity(domain), QUESTION, template="default", mode=Mode.DEFAULT, follow_up=False)
    answer = ana.answer(handbook)
    acme.document("more", allow=["group:staff"])
    assert isinstance(ana.put(asked, answer), Stored), "growth of the corpus alone does not prevent storing"
    answer = ana.answer(handbook)
    acme.access("handbook", allow=["group:staff"], deny=["user:dee"])
    assert not isinstance(ana.put(asked, answer), Stored)
