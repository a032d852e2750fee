"""Limits of a share: known numbers, order, and how often they are wrong at any time."""

from __future__ import annotations

from math import comb, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.certificate import bound
from cache.certificate.bound import Prior

FLAT = Prior(1.0, 1.0)
counts = st.integers(0, 5_000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
priors = st.sampled_from([Prior(), FLAT, Prior(0.5, 20.0)])


@pytest.mark.parametrize(
    ("prior", "x", "labels"), [(FLAT, 0.01, 984), (Prior(), 0.01, 410), (FLAT, 0.05, 158), (Prior(), 0.05, 64)]
)
def test_labels_without_a_wrong_one_that_certify(prior: Prior, x: float, labels: int) -> None:
    assert bound.upper(labels, 0, prior) <= x
    assert bound.below(labels, 0, x, prior)
    assert bound.upper(labels - 1, 0, prior) > x
    assert not bound.below(labels - 1, 0, x, prior)


def test_nothing_is_known_without_labels() -> None:
    assert (bound.lower(0, 0), bound.upper(0, 0)) == (0.0, 1.0)
    assert not bound.below(0, 0, 0.999)
    assert not bound.above(0, 0, 0.001)


def test_all_wrong_leaves_no_upper_limit_and_none_wrong_no_lower_one() -> None:
    assert bound.upper(50, 50) == 1.0
    assert bound.lower(50, 50) > 0.4
    assert bound.lower(5_000, 0) == 0.0


def test_martingale_is_the_mixture_of_binomial_likelihoods() -> None:
    """An oracle: the mean over Beta(a, b), by the midpoint rule, of the likelihood ratio to x."""
    n, k, x = 40, 3, 0.02
    prior = Prior(2.0, 30.0)
    at = (np.arange(200_000) + 0.5) / 200_000
    density = at ** (prior.a - 1) * (1 - at) ** (prior.b - 1)
    density /= density.sum()
    ratio = (at / x) ** k * ((1 - at) / (1 - x)) ** (n - k)
    assert bound.log_martingale(n, k, x, prior) == pytest.approx(log(float((density * ratio).sum())), abs=1e-6)


def test_martingale_has_mean_one_at_the_true_share() -> None:
    n, x = 30, 0.07
    mean = sum(comb(n, k) * x**k * (1 - x) ** (n - k) * np.exp(bound.log_martingale(n, k, x)) for k in range(n + 1))
    assert mean == pytest.approx(1.0, abs=1e-9)


@given(counts, priors)
def test_limits_hold_the_share_that_was_seen(drawn: tuple[int, int], prior: Prior) -> None:
    n, k = drawn
    low, high = bound.lower(n, k, prior), bound.upper(n, k, prior)
    assert 0.0 <= low <= high <= 1.0
    assert 0.0 <= bound.lower(n, k) <= high
    if n:
        assert low <= k / n <= high


@given(counts, priors)
def test_a_label_moves_the_limits_to_its_side(drawn: tuple[int, int], prior: Prior) -> None:
    n, k = drawn
    tiny = 1e-12
    if k < n:
        assert bound.upper(n, k + 1, prior) >= bound.upper(n, k, prior) - tiny
        assert bound.lower(n, k + 1, prior) >= bound.lower(n, k, prior) - tiny
    assert bound.upper(n + 1, k, prior) <= bound.upper(n, k, prior) + tiny
    assert bound.lower(n + 1, k, prior) <= bound.lower(n, k, prior) + tiny


@given(counts, priors, st.floats(0.0005, 0.5))
def test_the_short_questions_agree_with_the_limits(drawn: tuple[int, int], prior: Prior, x: float) -> None:
    n, k = drawn
    if abs(bound.upper(n, k, prior) - x) > 1e-9:
        assert bound.below(n, k, x, prior) == (n > 0 and bound.upper(n, k, prior) <= x)
    if abs(bound.lower(n, k, prior) - x) > 1e-9:
        assert bound.above(n, k, x, prior) == (bound.lower(n, k, prior) > x)


@given(counts, st.floats(0.001, 0.049))
def test_more_confidence_means_wider_limits(drawn: tuple[int, int], level: float) -> None:
    n, k = drawn
    assert bound.upper(n, k, level=level) >= bound.upper(n, k)
    assert bound.lower(n, k, level=level) <= bound.lower(n, k)


def test_limits_are_safe_at_extreme_counts() -> None:
    assert 0 < bound.upper(10**9, 0) < 1e-6
    assert bound.upper(10**9, 10**7) == pytest.approx(0.01, rel=2e-3)
    assert 0 < bound.lower(10**9, 1) < 1e-9


@pytest.mark.parametrize("share", [0.01, 0.03])
def test_the_true_share_is_left_at_any_time_in_at_most_one_run_of_twenty(share: float) -> None:
    rng = np.random.default_rng(7)
    runs, labels = 400, 1_500
    left = 0
    for _ in range(runs):
        wrong = np.cumsum(rng.random(labels) < share)
        left += any(bound.excludes(n, int(wrong[n - 1]), share) for n in range(1, labels + 1, 5))
    # 5 % of 400 is 20; three standard deviations above.
    assert left <= 33
