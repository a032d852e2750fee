"""Each measure against an independent implementation, or against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from evaluation.measures import facts_held, first_places, ndcg, precision, recall, reciprocal_rank

NAMES = [f"d{number}" for number in range(12)]
RANKINGS = st.permutations(NAMES)
RELEVANT = st.sets(st.sampled_from(NAMES), min_size=1)


@given(RANKINGS, RELEVANT, st.integers(1, 12))
def test_ndcg_is_what_scikit_learn_says(ranked: list[str], relevant: set[str], k: int) -> None:
    gains = np.array([[float(name in relevant) for name in ranked]])
    falling = np.array([[float(len(ranked) - place) for place in range(len(ranked))]])
    assert ndcg(ranked, relevant, k) == pytest.approx(ndcg_score(gains, falling, k=k, ignore_ties=True))


@given(RANKINGS, RELEVANT, st.integers(1, 12))
def test_recall_and_reciprocal_rank_by_their_definitions(ranked: list[str], relevant: set[str], k: int) -> None:
    places = [place for place, name in enumerate(ranked, 1) if name in relevant]
    assert recall(ranked, relevant, k) == sum(place <= k for place in places) / len(relevant)
    assert reciprocal_rank(ranked, relevant) == 1 / places[0]


@given(RANKINGS, RELEVANT, st.integers(1, 11))
def test_a_relevant_document_that_rises_never_lowers_ndcg(ranked: list[str], relevant: set[str], at: int) -> None:
    assume(ranked[at] in relevant)
    risen = list(ranked)
    risen[at - 1], risen[at] = risen[at], risen[at - 1]
    assert ndcg(risen, relevant, 10) >= ndcg(ranked, relevant, 10)


def test_what_is_not_found_counts_against_it() -> None:
    assert ndcg([], {"a"}, 10) == 0
    assert ndcg(["b", "a"], {"a", "c"}, 10) == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))
    assert recall(["b", "a"], {"a", "c"}, 10) == 0.5
    assert reciprocal_rank(["b", "a"], {"a", "c"}) == 0.5
    assert reciprocal_rank(["b"], {"a"}) == 0


def test_citations_and_places() -> None:
    assert precision(["a", "b", "a"], {"a"}) == pytest.approx(2 / 3)
    assert precision([], {"a"}) == 0
    assert first_places(["b", "a", "b", "c"]) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("answer", "fact", "held"),
    [
        ("The notice period is THREE\n months.", "three months", True),
        ("It costs 30 EUR [S1].", "30 eur", True),
        ("It costs ３０ EUR.", "30 EUR", True),
        ("It costs 300 EUR.", "30", False),
        ("It costs 130 EUR, or 30 by card.", "30", True),
        ("It costs 130 EUR.", "30", False),
        ("It takes two months.", "three months", False),
        ("入会费用是 30 元。", "30 元", True),
    ],
)  # fmt: skip
def test_a_fact_stands_in_the_answer_or_not(answer: str, fact: str, held: bool) -> None:
    assert facts_held(answer, [fact]) == float(held)


def test_the_share_of_facts() -> None:
    assert facts_held("one and two", ["one", "two", "three", "four"]) == 0.5
