"""Boosts: an order by metadata among what was found, and never a row more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.ingest import Pipeline, Source, ingest
from retrieval.boosts import boosted, identity
from retrieval.passage import Passage
from tenancy.acl import AccessList
from tenancy.contract import Boost, Contract, RetrievalTerms, check_contract
from tenancy.errors import InvalidInput
from tenancy.fields import FieldType
from tests.support.path import Path, open_path
from tests.support.people import Company

FIELDS: dict[str, FieldType] = {"year": "integer", "dept": "string", "price": "number", "draft": "boolean"}
ASKED = "What is the notice period for employees?"
NEWER = Boost(field="year", newer=0.3)


def passage(number: int, score: float) -> Passage:
    return Passage(f"d{number}", number, "t", "v", "c", number, 0, 1, "x", score)


def order(boosts: list[Boost], *rows: tuple[float, dict[str, Any]]) -> list[int]:
    passages = [passage(number, score) for number, (score, _) in enumerate(rows)]
    return [one.document_id for one in boosted(passages, [metadata for _, metadata in rows], boosts, FIELDS)]


def test_a_boost_is_a_share_of_the_best_score() -> None:
    rows = ((1.0, {"dept": "it"}), (0.85, {"dept": "hr"}), (0.5, {"dept": "hr"}))
    assert order([Boost(field="dept", equals="hr", by=0.2)], *rows) == [1, 0, 2]
    assert order([Boost(field="dept", equals="hr", by=0.1)], *rows) == [0, 1, 2]
    assert order([Boost(field="dept", equals="it", by=-0.6)], *rows) == [1, 2, 0]
    many = [(score * 1000, metadata) for score, metadata in rows]
    assert order([Boost(field="dept", equals="hr", by=0.2)], *many) == [1, 0, 2]


def test_what_is_newer_is_preferred_by_how_much_newer_it_is() -> None:
    rows: list[tuple[float, dict[str, Any]]] = [(1.0, {"year": 2000}), (0.9, {"year": 2020}), (0.9, {"year": 2010})]
    rows += [(0.8, {}), (0.8, {"year": "2024"})]
    assert order([NEWER], *rows) == [1, 2, 0, 3, 4]
    assert order([NEWER], (1.0, {"year": 2000}), (0.9, {"year": 2000})) == [0, 1]


def test_values_of_another_type_do_not_count() -> None:
    yes = Boost(field="draft", equals=True, by=0.5)
    assert order([yes], (1.0, {}), (0.9, {"draft": 1}), (0.8, {"draft": "true"})) == [0, 1, 2]
    assert order([yes], (1.0, {}), (0.9, {"draft": True})) == [1, 0]
    assert order([NEWER], (1.0, {"year": 1}), (0.9, {"year": True}), (0.9, {"year": 10**400})) == [0, 1, 2]


METADATA = st.dictionaries(
    st.sampled_from(sorted(FIELDS)), st.integers() | st.floats() | st.text(max_size=3) | st.booleans()
)
BOOSTS = st.lists(
    st.builds(Boost, field=st.sampled_from(["year", "price"]), newer=st.floats(0, 1))
    | st.builds(Boost, field=st.just("dept"), equals=st.text(max_size=3), by=st.floats(-1, 1)),
    max_size=4,
)
ROWS = st.lists(st.tuples(st.floats(-1, 50), METADATA), max_size=12).map(
    lambda rows: sorted(rows, key=lambda row: -row[0])
)


@given(ROWS, BOOSTS)
def test_boosts_change_the_order_and_nothing_else(
    rows: list[tuple[float, dict[str, Any]]], boosts: list[Boost]
) -> None:
    found = order(boosts, *rows)
    assert sorted(found) == list(range(len(rows)))
    assert found == order(boosts, *rows)


@given(ROWS, st.sampled_from(["year", "price"]), st.text(max_size=3))
def test_a_boost_of_nothing_leaves_the_order(rows: list[tuple[float, dict[str, Any]]], field: str, text: str) -> None:
    nothing = [Boost(field=field, newer=0.0), Boost(field="dept", equals=text, by=0.0)]
    assert order(nothing, *rows) == list(range(len(rows)))


def put(path: Path, company: Company, name: str, text: str, *allow: str, **metadata: Any) -> None:
    source = Source(name, text.encode(), AccessList.of(allow), media_type="text/plain", metadata=metadata)
    (outcome,) = ingest(company.handle, Pipeline(path.embedder), source)
    assert outcome.error is None, outcome


def agree(company: Company, *boosts: Boost) -> None:
    terms = Contract(metadata=FIELDS, retrieval=RetrievalTerms(boosts=list(boosts)))
    company.tenants.set_contract("acme", terms)


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    agree(acme)
    with open_path(acme.tenants) as opened:
        put(opened, acme, "old.txt", "The notice period for employees is six weeks.", "tenant", year=2015)
        put(opened, acme, "new.txt", "The notice period for all our employees is three months.", "tenant", year=2024)
        # Behind both, so that neither is the last, whose score is 0 in a fused ranking.
        put(opened, acme, "far.txt", "Employees park their bicycles behind the building.", "tenant")
        put(opened, acme, "board.txt", "The notice period for employees is a year.", "group:board", year=2099)
        yield opened


def found(path: Path, company: Company, **options: Any) -> list[str]:
    return [one.document for one in path.retrieve(company.principal("bo"), ASKED, **options).passages]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_the_contract_decides_over_the_whole_path(path: Path, acme: Company, mode: str) -> None:
    assert found(path, acme, mode=mode) == ["old.txt", "new.txt", "far.txt"]
    agree(acme, Boost(field="year", newer=1.0))
    assert found(path, acme, mode=mode) == ["new.txt", "old.txt", "far.txt"]
    assert found(path, acme, mode=mode, filter={"field": "year", "lt": 2020}) == ["old.txt"]
    assert found(path, acme, mode=mode, top_k=1) == ["new.txt"]


def test_what_others_may_read_is_not_felt(path: Path, acme: Company) -> None:
    agree(acme, NEWER)
    before = path.retrieve(acme.principal("bo"), ASKED).passages
    put(path, acme, "secret.txt", "The notice period for employees is a day.", "group:board", year=9000)
    after = path.retrieve(acme.principal("bo"), ASKED).passages
    assert [(one.document, one.score) for one in before] == [(one.document, one.score) for one in after]


def test_answers_under_other_boosts_are_not_shared(path: Path, acme: Company) -> None:
    bo = acme.principal("bo")
    assert path.ask(bo, ASKED).cache.status != "hit"
    assert path.ask(bo, ASKED).cache.status == "hit"
    agree(acme, NEWER)
    assert path.ask(bo, ASKED).cache.status != "hit"
    other = Boost(field="year", newer=0.31)
    assert identity([NEWER], FIELDS) != identity([other], FIELDS) != identity([], FIELDS) == ""


def test_no_two_settings_have_one_identity() -> None:
    years: dict[str, FieldType] = {"a": "string", "a='1':0.1:None/b": "string", "b": "string"}
    settings: list[tuple[list[Boost], dict[str, FieldType]]] = [
        ([Boost(field="a", equals="1", by=0.1)], years),
        ([Boost(field="a", equals="1", by=0.1 + 1e-9)], years),
        ([Boost(field="a", equals="1", by=0.1), Boost(field="b", equals="2", by=0.1)], years),
        ([Boost(field="a='1':0.1:None/b", equals="2", by=0.1)], years),
        ([Boost(field="a", equals=1, by=0.1)], {"a": "integer"}),
        ([Boost(field="a", equals=1, by=0.1)], {"a": "number"}),
        ([Boost(field="a", newer=0.1)], {"a": "integer"}),
        ([Boost(field="a", newer=0.1)], {"a": "number"}),
    ]
    assert len({identity(*one) for one in settings}) == len(settings)
    assert identity(*settings[0]) == identity([Boost(field="a", equals="1", by=0.1)], {"a": "string", "z": "integer"})


def test_numbers_as_far_apart_as_can_be_are_newer_and_older() -> None:
    dear = Boost(field="price", newer=0.3)
    assert order([dear], (1.0, {"price": -1.7e308}), (0.9, {"price": 1.7e308}), (0.8, {"price": 0.0})) == [1, 0, 2]


@pytest.mark.parametrize(
    "boost",
    [
        {"field": "pages", "newer": 0.1},
        {"field": "year"},
        {"field": "year", "equals": 2024, "by": 0.1, "newer": 0.1},
        {"field": "year", "by": 0.1, "newer": 0.1},
        {"field": "dept", "newer": 0.1},
        {"field": "dept", "equals": 3, "by": 0.1},
        {"field": "year", "equals": True, "by": 0.1},
        {"field": "year", "newer": 1.5},
        {"field": "dept", "equals": "hr", "by": -2},
        {"field": "dept", "equals": "hr", "by": 0.1, "bye": 1},
    ],
)
def test_a_boost_that_says_nothing_or_too_much_is_refused(boost: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        check_contract({"metadata": FIELDS, "retrieval": {"boosts": [boost]}})


def test_boosts_that_fit_are_taken() -> None:
    fit = [{"field": "year", "newer": 0.1}, {"field": "dept", "equals": "hr", "by": -0.2}]
    fit += [{"field": "draft", "equals": False, "by": 0.1}, {"field": "price", "equals": 3, "by": 0.1}]
    assert len(check_contract({"metadata": FIELDS, "retrieval": {"boosts": fit}}).retrieval.boosts) == 4
