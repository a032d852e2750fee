"""The gate against scipy, and how often it errs where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evaluation.gate import LEVEL, Gate, compare
from tenancy.errors import InvalidInput


def gate(differences: list[float] | np.ndarray, margin: float = 0.05) -> Gate:
    before = {number.to_bytes(4, "big"): 0.5 for number in range(len(differences))}
    after = {key: 0.5 + float(change) for key, change in zip(before, differences, strict=True)}
    return compare(before, after, margin)


@pytest.mark.parametrize("count", [6, 9, 12])
def test_few_differences_are_judged_exactly_as_scipy_does(count: int) -> None:
    differences = np.random.default_rng(count).normal(-0.1, 0.2, count).clip(-0.5, 0.5)
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="less", n_resamples=np.inf
    )
    assert gate(differences).p == pytest.approx(theirs.pvalue, abs=1e-6)


def test_many_differences_are_judged_as_scipy_does_within_the_sampling() -> None:
    differences = np.random.default_rng(5).normal(-0.02, 0.2, 80).clip(-0.5, 0.5)
    theirs = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", alternative="less", n_resamples=20_000,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    assert gate(differences).p == pytest.approx(theirs.pvalue, abs=0.02)


def test_a_tenant_that_gets_worse_is_found() -> None:
    found = gate([-0.5] * 8 + [0.0] * 12)
    assert (found.verdict, found.lost, found.gained, found.pairs) == ("worse", 8, 0, 20)
    assert found.difference == pytest.approx(-0.2)
    assert found.p <= LEVEL


def test_one_question_of_many_that_loses_is_not_worse_and_cannot_be_ruled_out_in_a_small_set() -> None:
    assert gate([-0.5] + [0.0] * 99).verdict == "not worse"
    assert gate([-0.5] + [0.0] * 19).verdict == "cannot tell"


@pytest.mark.parametrize(("count", "verdict"), [(5, "cannot tell"), (30, "cannot tell"), (80, "not worse")])
def test_no_difference_says_as_much_as_the_set_is_large(count: int, verdict: str) -> None:
    assert gate([0.0] * count).verdict == verdict


def test_four_questions_never_condemn() -> None:
    assert gate([-0.5] * 4).verdict == "cannot tell"
    assert gate([-0.5] * 5).verdict == "worse"


def test_better_is_not_worse() -> None:
    found = gate([0.3] * 30 + [0.0] * 30)
    assert (found.verdict, found.gained) == ("not worse", 30)
    assert found.upper > found.difference > found.lower > 0


def test_the_same_runs_give_the_same_figures() -> None:
    differences = list(np.random.default_rng(3).normal(0, 0.1, 50).clip(-0.5, 0.5))
    assert gate(differences) == gate(differences)


def test_only_questions_of_both_runs_count() -> None:
    found = compare({b"a": 1.0, b"b": 0.0}, {b"b": 0.0, b"c": 1.0})
    assert (found.pairs, found.before, found.after) == (1, 0.0, 0.0)
    with pytest.raises(InvalidInput, match="no question in common"):
        compare({b"a": 1.0}, {b"c": 1.0})
    with pytest.raises(InvalidInput, match="margin"):
        compare({b"a": 1.0}, {b"a": 1.0}, 0)


def _questions(dice: np.random.Generator, count: int, mean: float) -> np.ndarray:
    """Most questions stay as they are; the others lose or gain much: so scores of answers do change."""
    moved = dice.random(count) < 0.2
    direction = np.where(dice.random(count) < 0.5 - mean / 0.2, -0.5, 0.5)
    return np.where(moved, direction, 0.0)


@pytest.mark.slow
def test_how_often_the_gate_errs() -> None:
    """Nothing changed: "worse" in 5 % at most. A loss of the whole margin: "not worse" in 5 %, and sampling on top."""
    count, dice, trials = 40, np.random.default_rng(40), 60
    unchanged = [gate(_questions(dice, count, 0.0)).verdict for _ in range(trials)]
    assert unchanged.count("worse") / trials <= 2 * LEVEL
    lost = [gate(_questions(dice, count, -0.05)).verdict for _ in range(trials)]
    assert lost.count("not worse") / trials <= 2 * LEVEL
