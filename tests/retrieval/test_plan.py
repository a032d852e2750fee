"""What the server derives into the cache's identity: every setting that shapes an answer is in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cache.key import CompositeIdentity
from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from generation.extractive import ExtractiveGenerator
from generation.generator import ModelIdentity
from generation.prompt import Templates, Turn
from generation.routing import OneRoute
from indexing.embed import Embedder
from retrieval.plan import composite_identity, make_plan
from retrieval.question import AnswerPath, PathSettings, Question
from retrieval.remembered import look_up_exact
from tenancy.contract import Contract, GenerationTerms
from tenancy.domain import permission_domain
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

ASKED = "What is the notice period for employees?"


class Other(ExtractiveGenerator):
    def __init__(self, **changes: Any) -> None:
        self._changed = changes

    @property
    def identity(self) -> ModelIdentity:
        return replace(ExtractiveGenerator().identity, **self._changed)


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    with open_path(acme.tenants, also=("hashing:128",)) as opened:
        opened.put(acme.handle, "notice.txt", "The notice period for employees is three months.", "tenant")
        yield opened


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


def derived(
    path: AnswerPath, acme: Company, bo: Principal, *, embedder: Embedder | None = None, **asked: Any
) -> CompositeIdentity:
    with acme.handle.reading() as view:
        domain = permission_domain(bo, view)
        plan = make_plan(path, domain, view, Question(asked.pop("query", ASKED), "0" * 32, **asked))
        return composite_identity(path, embedder or path.embedders.default, domain, plan)


def test_what_a_request_chooses_is_in_the_identity(path: Path, acme: Company, bo: Principal) -> None:
    services = replace(path.path, templates=Templates({"brief": "Be brief."}))
    usual = derived(services, acme, bo)
    choices: list[dict[str, Any]] = [
        {"top_k": 3}, {"mode": "dense"}, {"template": "brief"}, {"max_tokens": 7},
        {"history": (Turn("user", "Is there notice?"),)},
    ]  # fmt: skip
    found = [derived(services, acme, bo, **choice) for choice in choices]
    assert len({identity.parts() for identity in (usual, *found)}) == len(choices) + 1
    assert derived(services, acme, bo, query="Who pays?", cache="refresh") == usual, "the question is no part of it"


class Reading:
    """A reranker by name; no question is asked here."""

    name, revision = "r", "1"

    def __init__(self, depth: int) -> None:
        self.depth = depth


def test_what_decides_order_and_abstention_is_in_the_identity(path: Path, acme: Company, bo: Principal) -> None:
    usual = derived(path.path, acme, bo)
    others: list[Any] = [replace(path.path, settings=PathSettings(threshold=one)) for one in (0.3, 0.3 + 1e-9)]
    others += [replace(path.path, reranker=Reading(depth)) for depth in (10, 20)]
    found = [derived(other, acme, bo) for other in others]
    assert len({identity.parts() for identity in (usual, *found)}) == len(found) + 1


def test_what_the_deployment_runs_is_in_the_identity(path: Path, acme: Company, bo: Principal) -> None:
    usual = derived(path.path, acme, bo)
    others = [
        replace(path.path, routes=OneRoute(Other(**changes)))
        for changes in ({"model": "m"}, {"revision": "r"}, {"tokenizer": "t"}, {"adapter": "a"}, {"temperature": 0.7})
    ]
    others.append(replace(path.path, settings=PathSettings(context_tokens=17)))
    found = [derived(other, acme, bo) for other in others]
    found.append(derived(path.path, acme, bo, embedder=path.embedders.named("hashing:128")))
    assert len({identity.parts() for identity in (usual, *found)}) == len(found) + 1
    assert derived(path.path, acme, bo) == usual


def test_an_answer_of_a_model_that_samples_is_neither_found_nor_kept(acme: Company, bo: Principal) -> None:
    for temperature, status in ((0.7, "miss"), (0.0, "hit")):
        with open_path(acme.tenants, generator=Other(temperature=temperature)) as path:
            path.put(acme.handle, "notice.txt", "The notice period for employees is three months.", "tenant")
            assert path.ask(bo, ASKED).cache.stored is (status == "hit")
            assert path.ask(bo, ASKED).cache.status == status


def test_the_policy_of_the_template_comes_with_the_question(acme: Company, bo: Principal) -> None:
    policy = CachePolicy(templates={"default": TemplatePolicy(semantic=False)})
    with open_path(acme.tenants, cache=LocalStore(policy)) as path:
        with acme.handle.reading() as view:
            plan = make_plan(path.path, permission_domain(bo, view), view, Question(ASKED, "0" * 32))
        asked, _ = look_up_exact(path.path, path.embedder, bo, acme.handle, plan)
        assert (asked.reach.value, asked.policy.semantic) == ("exact", False)


def agreed(acme: Company, **terms: Any) -> None:
    """What the contract of acme says about generation from now on."""
    acme.tenants.set_contract("acme", Contract(generation=GenerationTerms(**terms)))


@pytest.mark.parametrize(
    ("agreement", "asked", "given"),
    [(None, None, 512), (None, 9000, 512), (None, 7, 7), (100, None, 100), (100, 9000, 100), (2000, 900, 900),
     (2000, 9000, 2000), (2000, None, 512)],
)  # fmt: skip
def test_a_contract_says_how_long_an_answer_may_be(
    path: Path, acme: Company, bo: Principal, agreement: int | None, asked: int | None, given: int
) -> None:
    agreed(acme, max_output_tokens=agreement)
    with path.path.tenants.open(bo).reading() as view:
        plan = make_plan(path.path, permission_domain(bo, view), view, Question(ASKED, "0" * 32, max_tokens=asked))
    assert (plan.max_tokens, plan.estimate.output_tokens) == (given, given)
