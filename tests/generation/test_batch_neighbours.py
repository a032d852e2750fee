"""Whoever shares an engine's batch changes nothing in one's answer; the benchmark of this name does it 500 times."""

from __future__ import annotations

import pytest

from benchmarks.batch_neighbours import KINDS, mcnemar, measure
from tests.support.sglang_server import RunningServer


def test_the_exact_test_is_two_sided() -> None:
    assert mcnemar(0, 0) == 1
    assert mcnemar(3, 3) == 1
    assert mcnemar(6, 0) == mcnemar(0, 6) == pytest.approx(2 / 2**6)
    assert mcnemar(9, 1) == pytest.approx(22 / 2**10)


@pytest.mark.load
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_answer_is_the_same_beside_another_tenants_canary(sglang: RunningServer) -> None:
    report = measure(sglang, 20)
    print(report.figures())
    assert report.trials == 20
    assert report.batched >= 15, "the neighbours ended before the answer"
    assert report.changed[KINDS[-1]] >= 15, "an answer that a canary does reach is not seen to change"
    assert report.leaked == 0
    assert report.changed["foreign"] <= 1 or report.p > 0.01
