"""The measure behind `benchmarks.cache_timing`: right about ties, sure of a difference, and of none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.cache_timing import compare, verdict, within


def test_the_area_is_that_of_all_pairs() -> None:
    draw = np.random.default_rng(1)
    held, fresh = draw.integers(0, 9, 40).astype(float), draw.integers(2, 12, 30).astype(float)
    pairs = [1.0 if slow > fast else 0.5 if slow == fast else 0.0 for fast, slow in itertools.product(held, fresh)]
    found = compare(held, fresh)
    assert found.auc == pytest.approx(np.mean(pairs), abs=1e-4)
    turned = compare(fresh, held)
    assert (turned.auc, turned.low, turned.high) == pytest.approx(
        (1 - found.auc, 1 - found.high, 1 - found.low), abs=2e-4
    )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(2)
    inside = 0
    for _ in range(400):
        found = compare(draw.normal(size=150), draw.normal(size=150))
        inside += found.low <= 0.5 <= found.high
    assert 388 <= inside <= 400


def test_a_difference_fails_and_a_control_without_one_says_nothing() -> None:
    draw = np.random.default_rng(3)
    base = draw.lognormal(size=1_100)
    same = compare(base, draw.lognormal(size=1_100))
    slower, faster = compare(base, base * 1.3 + 0.1), compare(base * 1.3 + 0.1, base)
    clear = compare(base, base + 10)
    assert within(same)
    assert not within(slower)
    assert not within(faster)
    assert verdict({"own": clear, "tenant": same}) == "PASS"
    assert verdict({"own": clear, "tenant": slower}) == "FAIL"
    assert verdict({"own": clear, "tenant": faster}) == "FAIL"
    assert verdict({"own": same, "tenant": same}) == "INCONCLUSIVE"
    few = compare(base[:30], base[30:60])
    assert (within(few), verdict({"own": clear, "tenant": few})) == (False, "INCONCLUSIVE")
    assert verdict({"own": clear, "tenant": few, "domain": slower}) == "FAIL"
    assert clear.auc > 0.98
