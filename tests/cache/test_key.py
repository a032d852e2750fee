"""The composite identity: every part separates, the question does not, and no two tuples collide."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache.key import CompositeIdentity, Namespace, RetrievalIdentity, exact_key, namespace, normalise_question
from tenancy.errors import InvalidInput
from tests.cache.desk import Desk, identity
from tests.support.people import Company

CHANGES: dict[str, Any] = {
    "model_revision": "extractive-2",
    "tokenizer_revision": "words-2",
    "template_revision": "default@2",
    "adapter_revision": "legal@1",
    "embedder": "other/8",
    "generation": "temperature=0;max_tokens=257",
    "filter": '{"field":"year","ge":2024}',
    "conversation": "9f",
    "response_contract": "json",
}
RETRIEVAL_CHANGES: dict[str, Any] = {
    "top_k": 9, "mode": "dense", "fusion": "mean", "reranker": "cross@1", "chunker": "chunker-2",
}  # fmt: skip


def test_every_part_is_covered_by_a_case() -> None:
    bound_to_the_caller = {"tenant_id", "domain", "user_id", "retrieval"}
    assert set(CHANGES) | bound_to_the_caller == {field.name for field in fields(CompositeIdentity)}
    assert set(RETRIEVAL_CHANGES) == {field.name for field in fields(RetrievalIdentity)}


def test_the_parts_stand_in_their_order_and_none_is_left_out(ana: Desk) -> None:
    """Written out a second time, so that a part that another layer would make good cannot go unnoticed."""
    whole = replace(
        identity(ana.company.domain(ana.principal)),
        **CHANGES,
        user_id="u_1",
        retrieval=RetrievalIdentity(9, "dense", "mean", "cross@1", "chunker-2"),
    )
    assert whole.parts() == (
        whole.tenant_id, whole.domain, "extractive-2", "words-2", "default@2", "legal@1", "other/8",
        "temperature=0;max_tokens=257", "user", "u_1", '{"field":"year","ge":2024}', "9f", "json", "9", "dense", "mean",
        "cross@1", "chunker-2",
    )  # fmt: skip
    assert replace(whole, user_id=None).parts()[8:10] == ("domain", None)


def test_each_part_changes_the_namespace_and_the_question_does_not(ana: Desk) -> None:
    tenant, domain = ana.company.handle, ana.company.domain(ana.principal)
    whole = identity(domain)
    spaces = {"": namespace(tenant, domain, whole).value}
    for name, value in CHANGES.items():
        spaces[name] = namespace(tenant, domain, replace(whole, **{name: value})).value
    for name, value in RETRIEVAL_CHANGES.items():
        changed = replace(whole, retrieval=replace(whole.retrieval, **{name: value}))
        spaces[f"retrieval.{name}"] = namespace(tenant, domain, changed).value
    spaces["user_id"] = namespace(tenant, domain, replace(whole, user_id=domain.user_id)).value
    assert len(set(spaces.values())) == len(spaces)
    assert ana.ask("How long is the leave?").namespace == ana.ask("Who pays?").namespace
    assert ana.ask("How long is the leave?").exact != ana.ask("Who pays?").exact


def test_absent_and_empty_differ(ana: Desk) -> None:
    tenant, domain = ana.company.handle, ana.company.domain(ana.principal)
    whole = identity(domain)
    for name in ("adapter_revision", "filter", "conversation", "response_contract"):
        empty = namespace(tenant, domain, replace(whole, **{name: ""}))
        assert empty != namespace(tenant, domain, replace(whole, **{name: None}))


def test_equal_domains_share_and_different_domains_and_tenants_do_not(
    ana: Desk, bo: Desk, globex: Company, desk_of: Any
) -> None:
    ana.company.document("secret", allow=["group:board"])
    ana.company.member("board", "user:cy")
    ana.company.member("staff", "user:cy")
    cy = desk_of("cy")
    question = "How long is the leave?"
    assert ana.ask(question).exact == bo.ask(question).exact
    assert ana.ask(question).exact != cy.ask(question).exact
    globex.document("handbook", allow=["tenant"])
    other = Desk(globex, globex.principal("ana"), ana.store)
    assert ana.ask(question).exact != other.ask(question).exact


def test_an_identity_of_somebody_else_is_refused(ana: Desk, bo: Desk, globex: Company) -> None:
    tenant, domain = ana.company.handle, ana.company.domain(ana.principal)
    whole = identity(domain)
    for wrong in ({"tenant_id": "t_other"}, {"domain": "pd_other"}, {"user_id": bo.principal.user_id}):
        with pytest.raises(InvalidInput, match="another"):
            namespace(tenant, domain, replace(whole, **wrong))
    with pytest.raises(InvalidInput, match="another tenant"):
        namespace(globex.handle, domain, whole)
    with pytest.raises(InvalidInput, match="another tenant"):
        exact_key(globex.handle, namespace(tenant, domain, whole), "Who pays?")


def test_a_namespace_has_one_producer() -> None:
    with pytest.raises(TypeError, match=r"cache\.key\.namespace"):
        Namespace(b"n" * 32, "t_1", "pd_1", None, object())


def test_questions_are_normalised_but_keep_their_case() -> None:
    assert normalise_question("  How\u00a0 long\n is it? ") == "How long is it?"
    assert normalise_question("Cafe\u0301") == "Café"
    assert normalise_question("how") != normalise_question("How")


part = st.one_of(st.none(), st.text(alphabet="ab\x00 é", max_size=3))
PARTS = ("adapter_revision", "filter", "conversation", "response_contract")
tuples = st.tuples(part, part, part, part)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(one=tuples, two=tuples)
def test_different_tuples_never_collide(ana: Desk, one: tuple[str | None, ...], two: tuple[str | None, ...]) -> None:
    tenant, domain = ana.company.handle, ana.company.domain(ana.principal)
    first, second = (
        namespace(tenant, domain, replace(identity(domain), **dict(zip(PARTS, values, strict=True))))
        for values in (one, two)
    )
    assert (first == second) == (one == two)


@pytest.mark.parametrize(
    ("one", "two"),
    [(("a", "bc"), ("ab", "c")), (("", "a"), ("a", "")), ((None, ""), ("", None)), (("a\x00", "b"), ("a", "\x00b"))],
)
def test_shifted_borders_do_not_collide(ana: Desk, one: tuple[Any, Any], two: tuple[Any, Any]) -> None:
    tenant, domain = ana.company.handle, ana.company.domain(ana.principal)
    first, second = (
        namespace(tenant, domain, replace(identity(domain), filter=values[0], conversation=values[1]))
        for values in (one, two)
    )
    assert first != second
