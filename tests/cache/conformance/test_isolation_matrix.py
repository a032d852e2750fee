"""Each part of the identity divides, on every store: a pair that differs in it alone misses, one that does not hits.

The question is the same to the byte and its vector is the same to the bit, so that nothing but the part can divide.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from cache.entry import is_intact
from cache.key import CompositeIdentity, RetrievalIdentity
from cache.lookup import Asked, Hit, Miss
from cache.store import Stored
from cache.stores.port import CacheStore
from tests.cache.desk import Desk, unit
from tests.support.people import Company

QUESTION = "How long is the notice period?"
RETRIEVAL = RetrievalIdentity(8, "hybrid", "rrf", None, "chunker-1")
LONG = "n" * 999

# name: (identity of the one who stored, identity of the one who asks), as far as they differ from the usual one.
DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "model_revision": ({}, {"model_revision": "extractive-2"}),
    "tokenizer_revision": ({}, {"tokenizer_revision": "words-2"}),
    "template_revision": ({}, {"template_revision": "default@2"}),
    "adapter_revision": ({}, {"adapter_revision": "lora-7"}),
    "embedder": ({}, {"embedder": "other/8"}),
    "generation": ({}, {"generation": "temperature=0;max_tokens=257"}),
    "user_id": ({}, {"user_id": "own"}),
    "filter": ({}, {"filter": '{"year":2026}'}),
    "response_contract": ({}, {"response_contract": '{"type":"object"}'}),
    "conversation": ({"conversation": "9f"}, {"conversation": "a0"}),
    "retrieval.top_k": ({}, {"retrieval": replace(RETRIEVAL, top_k=9)}),
    "retrieval.mode": ({}, {"retrieval": replace(RETRIEVAL, mode="dense")}),
    "retrieval.fusion": ({}, {"retrieval": replace(RETRIEVAL, fusion="linear")}),
    "retrieval.reranker": ({}, {"retrieval": replace(RETRIEVAL, reranker="cross-1")}),
    "retrieval.chunker": ({}, {"retrieval": replace(RETRIEVAL, chunker="chunker-2")}),
}
# The same parts where somebody tries to make two different ones look alike.
ADVERSARIAL: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a boundary between parts": (
        {"model_revision": "a", "tokenizer_revision": "bc"},
        {"model_revision": "ab", "tokenizer_revision": "c"},
    ),
    "parts that change places": (
        {"model_revision": "a", "tokenizer_revision": "b"},
        {"model_revision": "b", "tokenizer_revision": "a"},
    ),
    "a part that moves on": ({"filter": "x"}, {"response_contract": "x"}),
    "absent and empty": ({"filter": None}, {"filter": ""}),
    "absent and the word for it": ({"adapter_revision": None}, {"adapter_revision": "None"}),
    "a zero byte": ({"filter": "a\x00b"}, {"filter": "a"}),
    "a separator": ({"filter": "a\x1fb"}, {"filter": "a|b"}),
    "a control at the end": ({"filter": "a"}, {"filter": "a\n"}),
    "a length in the text": ({"filter": "\x00\x00\x00\x00\x00\x00\x00\x01a"}, {"filter": "a"}),
    "the last of 1,000 characters": ({"filter": LONG + "a"}, {"filter": LONG + "b"}),
    "case": ({"filter": "Year"}, {"filter": "year"}),
    "a letter of another script": ({"filter": "a"}, {"filter": "\u0430"}),
    "a compatibility form": ({"filter": "\ufb01"}, {"filter": "fi"}),
    "braces of a hash tag": ({"filter": "}{"}, {"filter": "{}"}),
}


def identities(desk: Desk, changes: dict[str, Any]) -> dict[str, Any]:
    """`own` stands for the asker's own id."""
    return changes | ({"user_id": desk.principal.user_id} if changes.get("user_id") == "own" else {})


def asked_of(desk: Desk, changes: dict[str, Any]) -> Asked:
    return desk.ask(QUESTION, **identities(desk, changes))


def found(desk: Desk, asked: Asked) -> set[str]:
    """By which ways something is found: exact, semantic, and the store's own reads."""
    ways, tenant = set(), desk.company.handle
    if isinstance(desk.exact(asked), Hit):
        ways.add("exact")
    if isinstance(desk.semantic(asked, unit(1.0)), Hit):
        ways.add("semantic")
    if desk.store.get(tenant, asked.namespace, asked.exact) is not None:
        ways.add("get")
    if desk.store.nearest(tenant, asked.namespace, unit(1.0)):
        ways.add("nearest")
    return ways


def store_one(desk: Desk, asked: Asked, document: int) -> None:
    assert isinstance(desk.put(asked, desk.answer(document)), Stored)


def everywhere(asked: Asked) -> set[str]:
    """A follow-up is repeated exactly at most, so no vector is kept of it."""
    return {"exact", "get"} if asked.identity.conversation else {"exact", "semantic", "get", "nearest"}


@pytest.mark.parametrize("name", [*DIFFERENT, *ADVERSARIAL])
def test_a_part_that_differs_misses_and_one_that_does_not_hits(ana: Desk, handbook: int, name: str) -> None:
    ana.open()
    first, second = {**DIFFERENT, **ADVERSARIAL}[name]
    for stored, other in ((first, second), (second, first)):
        store_one(ana, asked_of(ana, stored), handbook)
        assert found(ana, asked_of(ana, other)) == set(), name
        asked = asked_of(ana, stored)
        assert found(ana, asked) == everywhere(asked), name
        ana.store.discard(ana.company.handle, kept(ana, asked))


def kept(desk: Desk, asked: Asked) -> Any:
    entry = desk.store.get(desk.company.handle, asked.namespace, asked.exact)
    assert entry is not None
    return entry


def test_every_part_of_the_identity_is_in_the_matrix() -> None:
    """`tenant_id` and `domain` have tests of their own below."""
    parts = {field.name for field in fields(CompositeIdentity)} - {"tenant_id", "domain", "retrieval"}
    parts |= {f"retrieval.{field.name}" for field in fields(RetrievalIdentity)}
    assert parts == set(DIFFERENT)


@pytest.mark.parametrize("text", ["r\u00e9sum\u00e9", "\uac00", "\u1e9b\u0323"])
def test_one_name_in_two_normal_forms_is_one_name(ana: Desk, handbook: int, text: str) -> None:
    ana.open()
    composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert composed != apart
    store_one(ana, ana.ask(QUESTION, filter=composed), handbook)
    assert found(ana, ana.ask(QUESTION, filter=apart)) == {"exact", "semantic", "get", "nearest"}


def test_another_tenant_misses(ana: Desk, globex: Company, handbook: int, store: CacheStore) -> None:
    """Same user name, same group, same document: only the tenant differs."""
    globex.member("staff", "user:ana", "user:bo")
    twin = Desk(globex, globex.principal("ana"), store)
    document = globex.document("handbook", allow=["group:staff"])
    assert document == handbook
    for desk in (ana, twin):
        desk.open()
    store_one(ana, ana.ask(QUESTION), handbook)
    assert found(twin, twin.ask(QUESTION)) == set()
    store_one(twin, twin.ask(QUESTION), document)
    theirs, mine = kept(twin, twin.ask(QUESTION)), kept(ana, ana.ask(QUESTION))
    assert theirs != mine
    assert not is_intact(globex.handle, mine)
    everything = {"exact", "semantic", "get", "nearest"}
    assert found(ana, ana.ask(QUESTION)) == found(twin, twin.ask(QUESTION)) == everything


def test_another_permission_domain_misses_and_an_equal_one_hits(
    acme: Company, ana: Desk, bo: Desk, handbook: int, desk_of: Callable[[str], Desk]
) -> None:
    """All three may read the document; cy may read one more."""
    acme.member("staff", "user:cy")
    acme.member("board", "user:cy")
    acme.document("minutes", allow=["group:board"])
    cy = desk_of("cy")
    ana.open()
    store_one(ana, ana.ask(QUESTION), handbook)
    assert found(cy, cy.ask(QUESTION)) == set()
    assert found(bo, bo.ask(QUESTION)) == {"exact", "semantic", "get", "nearest"}
    # An entry of another domain is none of cy's, also where an index or a key led to it.
    assert isinstance(cy.exact(ana.ask(QUESTION)), Miss)
    assert isinstance(cy.semantic(ana.ask(QUESTION), unit(1.0)), Miss)


def test_a_private_answer_is_its_asker_s_alone(ana: Desk, bo: Desk, handbook: int) -> None:
    ana.open()
    mine = {"user_id": "own"}
    store_one(ana, asked_of(ana, mine), handbook)
    assert found(bo, asked_of(bo, mine)) == set()
    assert found(bo, bo.ask(QUESTION)) == set()
    assert {"exact", "get"} <= found(ana, asked_of(ana, mine))


def test_a_question_is_no_part_of_the_namespace_and_another_one_is_found_by_meaning(ana: Desk, handbook: int) -> None:
    ana.open()
    store_one(ana, ana.ask(QUESTION), handbook)
    other = ana.ask("What is the notice period?")
    assert other.namespace == ana.ask(QUESTION).namespace
    assert found(ana, other) >= {"nearest"}
    assert isinstance(ana.exact(other), Miss)
