from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.fusion import DENSE_SHARE, dense_weight_for, fuse

cosines = st.dictionaries(st.integers(0, 30), st.floats(-1, 1), max_size=12)
bm25 = st.dictionaries(st.integers(0, 30), st.floats(0, 40), max_size=12)
weights = st.floats(0, 1)


def test_a_mean_of_both_legs_by_hand() -> None:
    dense = [(1, 0.9), (2, 0.5), (3, 0.1)]
    lexical = [(3, 8.0), (2, 6.0), (4, 4.0)]
    assert fuse(dense, lexical, 0.6) == [
        (1, pytest.approx(0.6)),
        (2, pytest.approx(0.6 * 0.5 + 0.4 * 0.5)),
        (3, pytest.approx(0.4)),
        (4, pytest.approx(0.0)),
    ]


def test_the_weakest_of_all_rows_that_share_a_term_keeps_its_share() -> None:
    dense = [(1, 0.9), (2, 0.5), (3, 0.1)]
    assert fuse(dense, [(3, 8.0), (2, 6.0)], 0.5) == [
        (2, pytest.approx(0.5 * 0.5 + 0.5 * 0.75)),
        (1, pytest.approx(0.5)),
        (3, pytest.approx(0.5)),
    ]


def test_one_leg_alone_keeps_its_order_at_any_weight() -> None:
    leg = [(7, 3.0), (2, 1.0), (9, 0.5)]
    for weight in (0.0, 0.3, 1.0):
        assert [candidate for candidate, _ in fuse([], leg, weight)] == [7, 2, 9]
        assert [candidate for candidate, _ in fuse(leg, [], weight)] == [7, 2, 9]
    assert fuse([], [], 0.5) == []


def test_a_dense_leg_of_no_weight_orders_only_what_has_no_word_in_common() -> None:
    fused = fuse([(1, 0.2), (2, 0.9), (3, 0.5)], [(3, 4.0)], 0.0)
    assert fused == [(3, 1.0), (2, 0.0), (1, 0.0)]


def test_ties_go_to_the_lower_id() -> None:
    assert [candidate for candidate, _ in fuse([(5, 0.4), (3, 0.4)], [(5, 2.0), (3, 2.0)], 0.5)] == [3, 5]


def test_a_single_weak_candidate_is_still_a_candidate() -> None:
    assert fuse([(1, -0.2)], [], 0.5) == [(1, 0.5)]
    assert fuse([], [(1, 0.0)], 0.5) == [(1, 0.5)]


@given(cosines, bm25, weights)
def test_every_candidate_comes_back_once_with_a_score_in_range(
    dense: dict[int, float], lexical: dict[int, float], weight: float
) -> None:
    fused = fuse(list(dense.items()), list(lexical.items()), weight)
    assert sorted(candidate for candidate, _ in fused) == sorted(dense.keys() | lexical.keys())
    assert all(0 <= score <= 1 for _, score in fused)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@given(cosines, bm25, weights, st.randoms())
def test_the_order_in_which_candidates_arrive_does_not_matter(
    dense: dict[int, float], lexical: dict[int, float], weight: float, random: object
) -> None:
    shuffled_dense, shuffled_lexical = list(dense.items()), list(lexical.items())
    random.shuffle(shuffled_dense)  # type: ignore[attr-defined]
    random.shuffle(shuffled_lexical)  # type: ignore[attr-defined]
    assert fuse(shuffled_dense, shuffled_lexical, weight) == fuse(list(dense.items()), list(lexical.items()), weight)


@given(cosines, bm25, weights)
def test_a_candidate_that_beats_another_in_both_legs_is_ranked_above_it(
    dense: dict[int, float], lexical: dict[int, float], weight: float
) -> None:
    ranks = {candidate: rank for rank, (candidate, _) in enumerate(fuse([*dense.items()], [*lexical.items()], weight))}
    both = sorted(dense.keys() & lexical.keys())
    for better in both:
        for worse in both:
            if dense[better] > dense[worse] + 1e-6 and lexical[better] > lexical[worse] + 1e-6:
                assert ranks[better] < ranks[worse]


def test_the_dense_weight_follows_coverage_within_its_bounds() -> None:
    assert dense_weight_for(0) == 0
    assert 0 < dense_weight_for(0.5) < dense_weight_for(1) == DENSE_SHARE
    assert (dense_weight_for(-1), dense_weight_for(2)) == (0, DENSE_SHARE)


def test_input_that_no_search_gives_is_refused() -> None:
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="weight of the dense leg"):
            fuse([(1, 0.5)], [], weight)
    with pytest.raises(ValueError, match="twice"):
        fuse([(1, 0.5), (1, 0.4)], [], 0.5)
