"""Any filter over any values finds the same documents everywhere, and never one that may not be read.

The oracle reads the request's JSON in plain Python. Columns are what FAISS searches under; Qdrant is its client's
local mode and its own engine in process (`qdrant-edge-py`), both through the compiled filter; for a Milvus server see
`tests/milvus`.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexing.engine import Engine, Point
from indexing.engines.qdrant import QdrantEngine
from indexing.filters import Columns, Sealer, engine_metadata, matches, parse, seal
from indexing.terms import term_postings
from tests.support.filter_trees import FIELDS, documents, oracle, trees
from tests.support.qdrant_edge import edge_engine
from tests.support.shelf import Shelf, fresh_company

KEY = bytes(range(32))
DOCUMENTS = documents(160)
LABELS = (1, 2, 3)
labels = st.sets(st.sampled_from(LABELS), min_size=1).map(frozenset)


def access(document: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Allow and deny of a document: every combination occurs."""
    return tuple(n for n in LABELS if document >> n & 1), tuple(n for n in LABELS if document >> (n + 3) & 1)


def readable(held: frozenset[int]) -> set[int]:
    return {
        number for number in range(len(DOCUMENTS))
        if held & set(access(number)[0]) and not held & set(access(number)[1])
    }  # fmt: skip


def wanted(tree: dict[str, Any]) -> set[int]:
    return {number for number, metadata in enumerate(DOCUMENTS) if oracle(tree, metadata)}


def test_the_corpus_has_readable_and_unreadable_documents_for_every_holder() -> None:
    sizes = {held: len(readable(held)) for held in map(frozenset, ({1}, {2}, {3}, {1, 2, 3}))}
    assert all(10 < size < len(DOCUMENTS) for size in sizes.values())


@pytest.mark.slow
def test_plain_evaluation_and_columns_find_what_the_oracle_finds() -> None:
    seen: Counter[str] = Counter()
    sealer = Sealer(KEY)
    half = len(DOCUMENTS) // 2
    columns = Columns.of([sealer.metadata(metadata) for metadata in DOCUMENTS])
    # The same documents through a merge that turns the halves around and drops every fifth.
    keep = np.arange(len(DOCUMENTS)) % 5 != 0
    first, second = (Columns.of([sealer.metadata(m) for m in part]) for part in (DOCUMENTS[:half], DOCUMENTS[half:]))
    place_second = np.cumsum(keep[half:]) - 1
    place_first = np.cumsum(keep[:half]) - 1 + int(keep[half:].sum())
    merged = Columns.merged([(first, keep[:half], place_first), (second, keep[half:], place_second)], int(keep.sum()))
    order = [n for n in [*range(half, len(DOCUMENTS)), *range(half)] if keep[n]]

    @settings(max_examples=600, deadline=None)
    @given(tree=trees)
    def run(tree: dict[str, Any]) -> None:
        where = parse(tree, FIELDS)
        expected = wanted(tree)
        assert {number for number, metadata in enumerate(DOCUMENTS) if matches(where, metadata)} == expected
        sealed = seal(where, KEY)
        assert set(np.flatnonzero(columns.matching(sealed)).tolist()) == expected
        assert {order[slot] for slot in np.flatnonzero(merged.matching(sealed)).tolist()} == expected & set(order)
        seen["some" if 0 < len(expected) < len(DOCUMENTS) else "none or every one"] += 1

    run()
    assert seen["some"] > 200, seen


@pytest.mark.slow
def test_a_snapshot_finds_in_both_legs_what_the_oracle_finds_among_what_may_be_read() -> None:
    seen: Counter[str] = Counter()
    names = {1: "user:ana", 2: "user:bo", 3: "tenant"}
    with fresh_company() as company:
        shelf = Shelf(company)
        principals = {frozenset({1, 3}): company.principal("ana"), frozenset({2, 3}): company.principal("bo")}
        owner: dict[int, int] = {}
        for number, metadata in enumerate(DOCUMENTS):
            allow, deny = ([names[label] for label in side] for side in access(number))
            found = shelf.put(f"d{number}", *["word"] * (1 + number % 3), allow=allow, deny=deny, metadata=metadata)
            owner |= dict.fromkeys(found, number)
            if number % 50 == 0:
                shelf.scope(next(iter(principals.values())))
        scopes = {held: shelf.scope(principal) for held, principal in principals.items()}
        assert len(scopes[frozenset({1, 3})][1].parts) > 1
        vector, terms = np.ones(4, dtype=np.float32), term_postings("word")

        @settings(max_examples=300, deadline=None)
        @given(tree=trees, held=st.sampled_from(sorted(scopes, key=sorted)))
        def run(tree: dict[str, Any], held: frozenset[int]) -> None:
            where = parse(tree, FIELDS)
            domain, snapshot = scopes[held]
            expected = wanted(tree) & readable(held)
            chunks = {chunk for chunk, number in owner.items() if number in expected}
            for leg in (snapshot.dense(domain, vector, 1000, where), snapshot.lexical(domain, terms, 1000, where)):
                assert {scored.chunk_id for scored in leg} == chunks
                assert len(leg) == len(chunks)
            assert len(snapshot.dense(domain, vector, 3, where)) == min(3, len(chunks))
            seen["some" if 0 < len(expected) < len(readable(held)) else "none or every one"] += 1

        run()
    assert seen["some"] > 100, seen


@pytest.fixture(params=["local", "edge"], scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("edge")
    made = QdrantEngine.local("local") if request.param == "local" else edge_engine("edge", folder)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Local mode")
def test_qdrant_finds_what_the_oracle_finds_among_what_may_be_read(engine: Engine) -> None:
    physical = f"c_{secrets.token_hex(16)}"
    engine.create(physical, 4)
    engine.put(
        physical,
        [
            Point(number + 1, number + 1, np.eye(4, dtype=np.float32)[number % 4], *access(number),
                  engine_metadata(metadata, KEY))
            for number, metadata in enumerate(DOCUMENTS)
        ],
    )  # fmt: skip
    seen: Counter[str] = Counter()

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(tree=trees, held=labels)
    def run(tree: dict[str, Any], held: frozenset[int]) -> None:
        where = seal(parse(tree, FIELDS), KEY)
        vector = np.ones(4, dtype=np.float32)
        hits = engine.nearest(physical, vector, held, where, len(DOCUMENTS), readable=len(DOCUMENTS))
        found = {hit.chunk_id - 1 for hit in hits}
        assert len(found) == len(hits)
        assert found <= readable(held)
        assert found == wanted(tree) & readable(held)
        few = engine.nearest(physical, vector, held, where, 3, readable=len(DOCUMENTS))
        assert len(few) == min(3, len(found))
        seen["some" if 0 < len(found) < len(readable(held)) else "none or every one"] += 1

    run()
    assert seen["some"] > 40, seen
