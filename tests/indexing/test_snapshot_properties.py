"""Snapshots against an oracle of a few lines that shares no code with them, over random histories of a tenant."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.identity import Principal
from tests.support.people import Company
from tests.support.shelf import FINGERPRINT, Shelf, fresh_company

WORDS = ("apple", "pear", "plum", "fig")
LABELS = ("tenant", "user:ana", "user:bo", "group:legal")
NAMES = ("d1", "d2", "d3", "d4", "d5")

labels = st.sets(st.sampled_from(LABELS), max_size=2)
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join), min_size=1, max_size=4)
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.just("put"), names, texts, labels, labels),
    st.tuples(st.just("remove"), names),
    st.tuples(st.just("access"), names, labels, labels),
    st.tuples(st.just("member"), st.booleans()),
)
# Small integers: every inner product is exact, so that scores are compared as they are.
directions = st.lists(st.integers(-2, 2).map(float), min_size=4, max_size=4)


@dataclass
class Oracle:
    documents: dict[str, tuple[list[tuple[int, str]], set[str], set[str]]] = field(default_factory=dict)
    legal: set[str] = field(default_factory=set)

    def readable(self, user: str) -> list[tuple[int, str]]:
        held = {"tenant", f"user:{user}"} | ({"group:legal"} if user in self.legal else set())
        return [
            chunk for chunks, allow, deny in self.documents.values() if held & allow and not held & deny
            for chunk in chunks
        ]  # fmt: skip

    def dense(self, user: str, vector: list[float], k: int) -> list[tuple[int, float]]:
        scored = [(chunk, float(np.dot(vector_of(text), vector))) for chunk, text in self.readable(user)]
        return sorted(scored, key=lambda item: (-item[1], item[0]))[:k]

    def lexical(self, user: str, query: str, k: int) -> list[tuple[int, float]]:
        bags = {chunk: Counter(text.split()) for chunk, text in self.readable(user)}
        mean = sum(bag.total() for bag in bags.values()) / max(len(bags), 1)
        scored = []
        for chunk, bag in bags.items():
            score = 0.0
            for word in query.split():
                having = sum(word in other for other in bags.values())
                idf = math.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
                score += idf * 2.2 * bag[word] / (bag[word] + 1.2 * (0.25 + 0.75 * bag.total() / mean))
            scored.append((chunk, score))
        return sorted(((c, s) for c, s in scored if s > 0), key=lambda item: (-round(item[1], 9), item[0]))[:k]


def vector_of(text: str) -> list[float]:
    return [float(text.split().count(word)) for word in WORDS]


def perform(shelf: Shelf, oracle: Oracle, step: Any) -> None:
    match step:
        case ("put", name, chunks, allow, deny):
            ids = shelf.put(name, *chunks, vectors=[vector_of(text) for text in chunks], allow=allow, deny=deny)
            oracle.documents[name] = (list(zip(ids, chunks, strict=True)), allow, deny)
        case ("remove", name) if name in oracle.documents:
            shelf.remove(name)
            del oracle.documents[name]
        case ("access", name, allow, deny) if name in oracle.documents:
            shelf.company.access(name, allow=allow, deny=deny)
            oracle.documents[name] = (oracle.documents[name][0], allow, deny)
        case ("member", True):
            shelf.company.member("legal", "ana")
            oracle.legal.add("ana")
        case ("member", False) if "ana" in oracle.legal:
            shelf.company.leave("legal", "ana")
            oracle.legal.clear()


def compare(shelf: Shelf, oracle: Oracle, principal: Principal, vector: list[float], k: int) -> None:
    user = principal.user
    assert shelf.dense(principal, vector, k) == oracle.dense(user, vector, k)
    query = "apple plum apple"
    found, expected = shelf.lexical(principal, query, k), oracle.lexical(user, query, k)
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], rel=1e-12)
    assert [chunk for chunk, _ in found] == [chunk for chunk, _ in expected]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(st.tuples(steps, st.booleans()), max_size=12), vector=directions, k=st.integers(1, 12))
def test_any_history_gives_what_the_oracle_gives(history: list[tuple[Any, bool]], vector: list[float], k: int) -> None:
    with fresh_company() as company:
        shelf, oracle = Shelf(company), Oracle()
        people = [company.principal("ana"), company.principal("bo")]
        for step, look in history:
            perform(shelf, oracle, step)
            if look:
                compare(shelf, oracle, people[0], vector, k)
        for principal in people:
            compare(shelf, oracle, principal, vector, k)
            advanced = shelf.dense(principal, vector, k), shelf.lexical(principal, "fig pear", k)
            reopened = Shelf(company)
            assert (reopened.dense(principal, vector, k), reopened.lexical(principal, "fig pear", k)) == advanced


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    mine=texts,
    foreign=st.lists(st.one_of(st.tuples(names, texts), st.tuples(names)), min_size=1, max_size=6),
    vectors=st.randoms(use_true_random=False),
)
def test_what_ana_may_not_read_moves_no_score_order_or_count(
    mine: list[str], foreign: list[tuple[Any, ...]], vectors: Any
) -> None:
    def some(count: int) -> list[list[float]]:
        return [[vectors.uniform(-1, 1) for _ in range(4)] for _ in range(count)]

    with fresh_company() as company:
        shelf = Shelf(company)
        ana = company.principal("ana")
        shelf.put("mine", *mine, vectors=some(len(mine)), allow=["user:ana"])
        question = some(1)[0]
        alone = shelf.dense(ana, question), shelf.lexical(ana, "apple pear plum fig")
        assert len(alone[0]) == len(alone[1]) == len(mine)
        present: set[str] = set()
        for name, *chunks in foreign:
            if chunks:
                shelf.put(name, *chunks[0], vectors=some(len(chunks[0])), allow=["tenant"], deny=["user:ana"])
                present.add(name)
            elif name in present:
                shelf.remove(name)
                present.discard(name)
            # Equal to the last bit.
            assert (shelf.dense(ana, question), shelf.lexical(ana, "apple pear plum fig")) == alone


def test_a_dense_score_does_not_depend_on_where_its_row_is(acme: Company) -> None:
    """Bit for bit the same in a segment of one, of a thousand, merged, and under any selector."""
    dimension = 384
    shelf = Shelf(acme, msgspec.structs.replace(FINGERPRINT, dimension=dimension))
    ana = acme.principal("ana")
    random = np.random.default_rng(7)
    rows = random.standard_normal((300, dimension)).astype(np.float32)
    question = random.standard_normal(dimension).astype(np.float32).tolist()
    [probe] = shelf.put("probe", "p", vectors=rows[:1].tolist(), allow=["user:ana"])
    alone = shelf.dense(ana, question)
    shelf.put("others", *["o"] * 298, vectors=rows[1:299].tolist(), allow=["user:bo"])
    assert shelf.dense(ana, question) == alone
    shelf.company.access("others", allow=["tenant"])
    among = dict(shelf.dense(ana, question, k=1000))
    assert len(among) == 299
    assert among[probe] == alone[0][1]
    shelf.put("last", "l", vectors=rows[299:].tolist(), allow=["tenant"])
    assert dict(shelf.dense(ana, question, k=1000))[probe] == alone[0][1]
