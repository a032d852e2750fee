"""Filters: what can be said, what is refused and how, and that a search under one keeps every other promise."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

from indexing.engines.milvus_filter import compile_expression
from indexing.engines.qdrant_filter import compile_filter
from indexing.filters import (
    All,
    Bound,
    Columns,
    Compare,
    Not,
    OneOf,
    Sealer,
    canonical,
    engine_metadata,
    matches,
    parse,
    seal,
)
from indexing.filters.reading import MAX_DEPTH, MAX_LIST, MAX_NODES, MAX_TEXT, MAX_VALUES
from indexing.snapshot import Snapshot
from indexing.terms import term_postings
from tenancy.domain import PermissionDomain
from tenancy.errors import InvalidInput
from tenancy.fields import MAX_INTEGER, FieldType
from tests.support.people import Company
from tests.support.shelf import Shelf

FIELDS: dict[str, FieldType] = {"year": "integer", "price": "number", "dept": "string", "draft": "boolean"}
KEY = bytes(range(32))
GOOD = {"field": "year", "ge": 2020}
EAST = [1.0, 0.0, 0.0, 0.0]


def nested(levels: int) -> dict[str, Any]:
    tree: dict[str, Any] = GOOD
    for _ in range(levels):
        tree = {"not": tree}
    return tree


# What can be said


@pytest.mark.parametrize(
    "tree",
    [
        GOOD,
        {"field": "year", "ge": 2020, "lt": 2025, "ne": 2022},
        {"field": "dept", "in": ["legal", "hr"]},
        {"field": "draft", "eq": False},
        {"field": "price", "lt": 10, "exists": True},
        {"field": "dept", "exists": False},
        {"all": [GOOD, {"any": [GOOD, {"not": GOOD}]}]},
        {"any": [GOOD]},
        nested(MAX_DEPTH),
        {"any": [GOOD] * ((MAX_NODES - 1) // 2)},
        {"field": "year", "in": list(range(MAX_LIST))},
        {"field": "dept", "eq": "x" * MAX_TEXT},
        {"field": "year", "eq": MAX_INTEGER},
        {"field": "year", "eq": -MAX_INTEGER},
        {"field": "price", "eq": 1.7976931348623157e308},
    ],
)
def test_what_can_be_said(tree: dict[str, Any]) -> None:
    where = parse(tree, FIELDS)
    assert parse(json.loads(json.dumps(tree)), FIELDS) == where
    assert hash(seal(where, KEY)) == hash(seal(where, KEY))


@pytest.mark.parametrize(
    ("tree", "item", "reason"),
    [
        (None, "filter", "no object"),
        ([], "filter", "no object"),
        ("year = 1; DROP TABLE chunks", "filter", "no object"),
        ({}, "filter", "neither all"),
        ({"all": []}, "filter.all", "at least one"),
        ({"any": []}, "filter.any", "at least one"),
        ({"all": {"field": "year", "eq": 1}}, "filter.all", "at least one"),
        ({"all": [GOOD], "any": [GOOD]}, "filter", "more than one"),
        ({"all": [GOOD], "note": 1}, "filter", "more than one"),
        ({"not": [GOOD]}, "filter.not", "no object"),
        ({"not": GOOD, **GOOD}, "filter", "operator"),
        ({"and": [GOOD]}, "filter", "neither all"),
        ({"all": [GOOD, {"not": 1}]}, "filter.all[1].not", "no object"),
        ({"field": "year"}, "filter", "no operator"),
        ({"field": "nope", "eq": 1}, "filter.field", "no such field"),
        ({"field": "secret", "exists": True}, "filter.field", "no such field"),
        ({"field": "Year", "eq": 1}, "filter.field", "no such field"),
        ({"field": "", "eq": 1}, "filter.field", "no such field"),
        ({"field": None, "eq": 1}, "filter.field", "no such field"),
        ({"field": ["year"], "eq": 1}, "filter.field", "no such field"),
        ({"eq": 1}, "filter", "neither all"),
        ({"field": "year", "like": "2%"}, "filter", "operator"),
        ({"field": "year", "eq": 1, "like": "2%"}, "filter", "operator"),
        ({"field": "dept", "lt": "m"}, "filter", "operator"),
        ({"field": "draft", "ge": False}, "filter", "operator"),
        ({"field": "year", "eq": "2024"}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": 2024.0}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": True}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": None}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": MAX_INTEGER + 1}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": -MAX_INTEGER - 1}, "filter.eq", "not an integer"),
        ({"field": "year", "eq": [2024]}, "filter.eq", "not an integer"),
        ({"field": "price", "eq": MAX_INTEGER + 1}, "filter.eq", "not a finite number"),
        ({"field": "price", "eq": math.nan}, "filter.eq", "not a finite number"),
        ({"field": "price", "lt": math.inf}, "filter.lt", "not a finite number"),
        ({"field": "price", "eq": 10**400}, "filter.eq", "not a finite number"),
        ({"field": "price", "eq": False}, "filter.eq", "not a finite number"),
        ({"field": "draft", "eq": 1}, "filter.eq", "not true or false"),
        ({"field": "draft", "eq": "true"}, "filter.eq", "not true or false"),
        ({"field": "dept", "eq": 1}, "filter.eq", "not text"),
        ({"field": "dept", "eq": "\ud800"}, "filter.eq", "surrogate"),
        ({"field": "dept", "eq": "x" * (MAX_TEXT + 1)}, "filter.eq", "over 1000"),
        ({"field": "dept", "in": "legal"}, "filter.in", "no list"),
        ({"field": "dept", "in": []}, "filter.in", "no list"),
        ({"field": "dept", "in": ["legal", 1]}, "filter.in[1]", "not text"),
        ({"field": "year", "in": list(range(MAX_LIST + 1))}, "filter.in", "no list of 1 to 200"),
        ({"field": "dept", "exists": 1}, "filter.exists", "neither true nor false"),
        (nested(MAX_DEPTH + 1), "filter" + ".not" * MAX_DEPTH, "nested over 8"),
        ({"any": [GOOD] * 50}, "filter.any[49].ge", "more than 100 parts"),
        ({"any": [{"field": "year", "in": list(range(MAX_LIST))}] * 6}, "filter.any[5].in[0]", "more than 1000 values"),
    ],
)  # fmt: skip
def test_what_is_refused(tree: Any, item: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(tree, FIELDS)
    assert caught.value.item == item
    assert reason in caught.value.reason
    assert caught.value.remedy
    # Nothing of what was asked with comes back: it may be somebody's name.
    for own in ("nope", "secret", "DROP", "2%", "xxxx"):
        assert own not in str(caught.value)


def test_ten_thousand_levels_do_not_reach_the_recursion_limit() -> None:
    tree: Any = GOOD
    for _ in range(10_000):
        tree = {"all": [tree]}
    with pytest.raises(InvalidInput, match="nested"):
        parse(tree, FIELDS)


def test_without_declared_fields_every_filter_is_refused_with_the_remedy() -> None:
    for tree in (GOOD, {"all": []}, None, {"field": "nope", "eq": 1}):
        with pytest.raises(InvalidInput, match="declares no metadata fields") as caught:
            parse(tree, {})
        assert "contract" in (caught.value.remedy or "")
    assert parse(GOOD, FIELDS) == Compare("year", "integer", "ge", 2020)


def test_the_limits_are_where_they_say() -> None:
    with pytest.raises(InvalidInput):
        parse({"any": [{"field": "year", "in": list(range(200))}] * 5 + [GOOD]}, FIELDS)
    assert MAX_VALUES == 1000
    parse({"any": [{"field": "year", "in": list(range(200))}] * 5}, FIELDS)


# What it means


@pytest.mark.parametrize(
    ("tree", "yes", "no"),
    [
        ({"field": "year", "eq": 2024}, [2024], [2023, "2024", 2024.0, True, None, 2**53]),
        ({"field": "year", "ne": 2024}, [2023], [2024, "2023", 2023.0, None]),
        ({"not": {"field": "year", "eq": 2024}}, [2023, "2024", 2024.0, None, 2**60], [2024]),
        ({"field": "year", "lt": 1}, [0, -5], [1, 2, "0", False, None]),
        ({"field": "year", "exists": False}, [None, "2024", 2**53, True], [0, 2024]),
        ({"field": "year", "in": [1, 2]}, [1, 2], [3, True, 1.0, None]),
        ({"field": "price", "eq": 0}, [0, 0.0, -0.0], [False, "0", 5e-324, None]),
        ({"field": "price", "gt": 0.1}, [0.2, 1, 10**20, 1e300], [0.1, 0, 10**400, math.inf, math.nan, "1"]),
        ({"field": "dept", "eq": "é"}, ["é", "e\u0301"], ["e", "É", "é ", None, 1]),
        ({"field": "dept", "ne": "legal"}, ["hr", ""], ["legal", None, 1]),
        ({"field": "draft", "eq": True}, [True], [False, 1, "true", None]),
    ],
)
def test_what_it_means(tree: dict[str, Any], yes: list[Any], no: list[Any]) -> None:
    where = parse(tree, FIELDS)
    name = json.loads(json.dumps(tree)).get("not", tree)["field"]
    rows = [{} if value is None else {name: value} for value in (*yes, *no)]
    expected = [True] * len(yes) + [False] * len(no)
    assert [matches(where, row) for row in rows] == expected
    sealer = Sealer(KEY)
    assert Columns.of([sealer.metadata(row) for row in rows]).matching(seal(where, KEY)).tolist() == expected


def test_columns_that_every_document_has_survive_a_merge_that_interleaves_them() -> None:
    sealer = Sealer(KEY)
    even, odd = (Columns.of([sealer.metadata({"year": year}) for year in range(2000 + n, 2010, 2)]) for n in (0, 1))
    keep = np.ones(5, dtype=np.bool_)
    merged = Columns.merged([(odd, keep, np.arange(1, 10, 2)), (even, keep, np.arange(0, 10, 2))], 10)
    for year in range(2000, 2010):
        found = merged.matching(seal(parse({"field": "year", "eq": year}, FIELDS), KEY))
        assert np.flatnonzero(found).tolist() == [year - 2000]


def test_the_canonical_text_tells_filters_apart_and_spellings_of_one_not() -> None:
    def text(tree: dict[str, Any], fields: dict[str, FieldType] = FIELDS) -> str:
        return canonical(parse(tree, fields))

    assert text({"field": "year", "in": [2, 1, 2]}) == text({"in": [1, 2], "field": "year"})
    assert text({"field": "dept", "eq": "é"}) == text({"field": "dept", "eq": "e\u0301"})
    assert text({"field": "price", "eq": -0.0}) == text({"field": "price", "eq": 0})
    different: list[dict[str, Any]] = [
        GOOD, {"not": GOOD}, {"all": [GOOD]}, {"any": [GOOD]},
        {"field": "year", "gt": 2020}, {"field": "year", "ge": 2021}, {"field": "price", "ge": 2020},
        {"field": "dept", "eq": "2020"}, {"field": "dept", "eq": 'a","b'}, {"field": "dept", "in": ["a", "b"]},
        {"field": "dept", "in": ["a,b"]}, {"field": "dept", "exists": True}, {"field": "dept", "exists": False},
    ]  # fmt: skip
    assert len({text(tree) for tree in different}) == len(different)
    assert text(GOOD, {"year": "number"}) != text(GOOD)
    assert text({"field": "dept", "eq": "北京"}).isascii()


# What engines see


def test_nothing_that_a_user_chose_reaches_an_engine() -> None:
    metadata = {"dept": "Maria's payroll", "year": 2024, "price": 9.5, "draft": True, "huge": 10**400}
    stored = engine_metadata(metadata, KEY)
    assert all(re.fullmatch("m[0-9a-f]{16}", key) and type(value) is int for key, value in stored.items())
    assert engine_metadata({"huge": 10**400, "none": None, "list": [1]}, KEY) == {}
    tree = {"all": [{"field": "dept", "in": ["Maria's payroll", '"] or true']}, {"field": "price", "ge": 9.5}]}
    where = seal(parse(tree, FIELDS), KEY)
    for compiled in (compile_expression(where), compile_filter(where).model_dump_json(), json.dumps(stored)):
        assert not re.search("maria|payroll|dept|price|true", compiled, re.IGNORECASE)
    assert re.fullmatch(r'[a-z0-9 ()\[\]<>=,"-]+', compile_expression(where))


def test_keys_differ_by_tenant_field_and_type() -> None:
    mine, theirs = (engine_metadata({"dept": "legal", "title": "legal", "year": 1}, key) for key in (KEY, bytes(32)))
    assert not set(mine) & set(theirs)
    # Texts are numbers that no other field and tenant has, the integer is itself, and its float is two halves.
    assert len(mine) == 2 + 1 + 2
    assert set(mine.values()) & set(theirs.values()) == {1, 0x3FF0_0000, 0}
    assert len(set(mine.values())) == 5
    assert engine_metadata({"dept": "legal"}, KEY).items() <= mine.items()


@pytest.mark.parametrize(
    "leaf",
    [
        OneOf('m0"] or true or metadata["', (1,)),
        OneOf("dept", (1,)),
        OneOf("m0123456789abcdef", ("1",)),  # type: ignore[arg-type]
        OneOf("m0123456789abcdef", (True,)),
        OneOf("m0123456789abcdef", (2**63,)),
        Bound("m0123456789abcdef", "ge", 1.5),  # type: ignore[arg-type]
        Bound("m0123456789abcdef\n", "ge", 1),
    ],
)
def test_an_expression_takes_nothing_but_our_keys_and_whole_numbers(leaf: Any) -> None:
    assert compile_expression(OneOf("m0123456789abcdef", (1,))) == '(metadata["m0123456789abcdef"] in [1])'
    with pytest.raises(ValueError, match="an expression takes"):
        compile_expression(All((Not(leaf),)))


# Under a filter, a search keeps its promises


@pytest.fixture
def shelf(acme: Company) -> Shelf:
    return Shelf(acme)


def both(shelf: Shelf, user: str, tree: dict[str, Any] | None, k: int = 10) -> tuple[list[Any], list[Any]]:
    """Dense and lexical results of one user for "word"."""
    domain, snapshot = shelf.scope(shelf.company.principal(user))
    return legs(domain, snapshot, tree, k)


def legs(
    domain: PermissionDomain, snapshot: Snapshot, tree: dict[str, Any] | None, k: int
) -> tuple[list[Any], list[Any]]:
    where = None if tree is None else parse(tree, FIELDS)
    vector = np.array(EAST, dtype=np.float32)
    return snapshot.dense(domain, vector, k, where), snapshot.lexical(domain, term_postings("word"), k, where)


def ids(results: tuple[list[Any], list[Any]]) -> tuple[set[int], set[int]]:
    dense, lexical = results
    return {scored.chunk_id for scored in dense}, {scored.chunk_id for scored in lexical}


def test_a_filter_narrows_both_legs_and_never_widens_them(shelf: Shelf) -> None:
    new = shelf.put("new", "word a", "word b", allow=["tenant"], metadata={"year": 2024})
    old = shelf.put("old", "word c", allow=["tenant"], metadata={"year": 2019})
    secret = shelf.put("secret", "word d", allow=["user:bo"], metadata={"year": 2024})
    denied = shelf.put("denied", "word e", allow=["tenant"], deny=["user:ana"], metadata={"year": 2024})
    assert ids(both(shelf, "ana", GOOD)) == ({*new}, {*new})
    assert ids(both(shelf, "ana", {"not": GOOD})) == ({*old}, {*old})
    assert ids(both(shelf, "bo", GOOD)) == ({*new, *secret, *denied},) * 2
    assert ids(both(shelf, "ana", None)) == ({*new, *old},) * 2
    assert ids(both(shelf, "ana", {"field": "year", "gt": 2024})) == (set(), set())
    assert ids(both(shelf, "cy", {"any": [GOOD, {"not": GOOD}]})) == ({*new, *old, *denied},) * 2


def test_k_matching_chunks_come_back_however_few_are_near(shelf: Shelf) -> None:
    shelf.put("near", *["word"] * 50, vectors=[EAST] * 50, allow=["tenant"], metadata={"year": 2019})
    far = shelf.put(
        "far", *["word " * 9] * 7, vectors=[[-1.0, 0.0, 0.0, 0.0]] * 7, allow=["tenant"], metadata={"year": 2024}
    )
    dense, lexical = both(shelf, "ana", GOOD, k=5)
    assert [scored.chunk_id for scored in dense] == [scored.chunk_id for scored in lexical] == far[:5]
    assert all(len(leg) == 7 for leg in both(shelf, "ana", GOOD, k=50))


def test_a_filter_moves_no_score(shelf: Shelf) -> None:
    """A row scores under every filter as without one: the statistics are those of what may be read."""
    shelf.put("one", "word", "word plain", allow=["tenant"], metadata={"year": 2024})
    shelf.put("two", "plain text", "word word", allow=["tenant"], metadata={"year": 2019})
    shelf.put("hidden", "word word word", allow=["user:bo"], metadata={"year": 2024})
    everything = [dict(leg) for leg in both(shelf, "ana", None)]
    for tree in (GOOD, {"not": GOOD}):
        for leg, whole in zip(both(shelf, "ana", tree), everything, strict=True):
            assert leg
            assert dict(leg).items() <= whole.items()


def test_metadata_survives_merges_updates_and_deletions(shelf: Shelf) -> None:
    company = shelf.company
    expected: dict[str, list[int]] = {}
    for number in range(30):
        name = f"d{number % 12}"
        year = 2010 + number
        metadata: dict[str, Any] = {"year": year} if number % 3 else {"year": str(year)}
        found = shelf.put(name, *["word"] * (1 + number % 3), allow=["tenant"], metadata=metadata)
        expected[name] = found if number % 3 and year >= 2020 else []
        if number % 7 == 6:
            shelf.remove(name)
            expected[name] = []
        wanted = {chunk for chunks in expected.values() for chunk in chunks}
        assert ids(both(shelf, "ana", GOOD, k=100)) == (wanted, wanted)
    _, snapshot = shelf.scope(company.principal("ana"))
    assert len(snapshot.parts) < 6
    assert len(wanted) > 5
    assert ids(both(Shelf(company), "ana", GOOD, k=100)) == (wanted, wanted)
    assert sum(part.segment.metadata.nbytes for part in snapshot.parts) < 5_000
