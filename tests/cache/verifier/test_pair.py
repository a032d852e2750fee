"""The verifier at work: the same in both orders, and a miss for whatever it cannot say in time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from cache.verifier.model import PairModel, batch, encode
from cache.verifier.pair import PairVerifier
from tenancy.errors import InvalidInput, Unavailable
from tests.cache.verifier.small import SHAPE, small_verifier

ONE, OTHER = "How do I close my account?", "How do I open my account?"


@pytest.fixture
def verifier(tmp_path: Path) -> Iterator[PairVerifier]:
    small_verifier(tmp_path)
    made = PairVerifier(tmp_path, timeout_s=30, waiting=2)
    yield made
    made.close()


class _Held:
    """A model that runs until it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.calls = Event(), Event(), 0

    def __call__(self, first: str, second: str) -> float:
        self.calls += 1
        self.begun.set()
        assert self.go_on.wait(30)
        return 1.0


def test_the_probability_is_the_same_in_both_orders_and_tells_pairs_apart(verifier: PairVerifier) -> None:
    there, back = verifier.probability(ONE, OTHER), verifier.probability(OTHER, ONE)
    assert there == back
    assert 0 < there < 1
    assert verifier.probability(ONE, ONE) != there


def test_the_probability_is_the_calibrated_mean_of_both_orders(verifier: PairVerifier, tmp_path: Path) -> None:
    from math import exp

    model, tokenizer = verifier._model, verifier._tokenizer
    with torch.inference_mode():
        logits = [float(model(batch([encode(tokenizer, *pair)]))) for pair in ((ONE, OTHER), (OTHER, ONE))]
    expected = 1 / (1 + exp(-(1.5 * sum(logits) / 2 - 0.25)))
    assert verifier.probability(ONE, OTHER) == pytest.approx(expected, abs=1e-5)


def test_padding_changes_nothing() -> None:
    torch.manual_seed(5)
    model = PairModel(SHAPE).eval()
    from cache.verifier.model import Encoded

    short = Encoded([2, 4, 3, 5, 3], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0])
    long = Encoded([2, 4, 6, 7, 3, 5, 8, 3], [0] * 5 + [1] * 3, [0] * 8)
    with torch.inference_mode():
        alone, beside = model(batch([short])), model(batch([short, long]))
    assert float(alone[0]) == pytest.approx(float(beside[0]), abs=1e-5)


def test_a_token_of_the_other_question_is_marked(verifier: PairVerifier) -> None:
    found = encode(verifier._tokenizer, "close my account", "open my account")
    assert found.shared == [0, 0, 1, 1, 0, 0, 1, 1, 0]
    assert found.segments == [0] * 5 + [1] * 4


def test_late_is_a_refusal_and_what_waits_behind_it_is_never_run(tmp_path: Path) -> None:
    small_verifier(tmp_path)
    verifier = PairVerifier(tmp_path, timeout_s=0.02)
    held = _Held()
    verifier._logit = held  # type: ignore[method-assign]
    for _ in range(3):
        with pytest.raises(Unavailable, match="did not answer within"):
            verifier.probability(ONE, OTHER)
    held.go_on.set()
    verifier.close()
    assert held.calls == 1


def test_after_a_late_one_it_answers_again(verifier: PairVerifier) -> None:
    held, real = _Held(), verifier._logit
    verifier._logit, verifier.timeout_s = held, 0.02  # type: ignore[method-assign, misc]
    with pytest.raises(Unavailable):
        verifier.probability(ONE, OTHER)
    held.go_on.set()
    verifier._logit, verifier.timeout_s = real, 30  # type: ignore[method-assign, misc]
    assert 0 < verifier.probability(ONE, OTHER) < 1


def test_no_more_than_a_bounded_number_waits(verifier: PairVerifier) -> None:
    held = _Held()
    verifier._logit = held  # type: ignore[method-assign]
    waiting = [Thread(target=verifier.probability, args=(ONE, OTHER)) for _ in range(2)]
    waiting[0].start()
    assert held.begun.wait(30)
    waiting[1].start()
    while verifier._thread._work_queue.qsize() < 1:
        waiting[1].join(0.001)
    with pytest.raises(Unavailable, match="too many"):
        verifier.probability(ONE, OTHER)
    held.go_on.set()
    for thread in waiting:
        thread.join()
    assert verifier.probability(ONE, OTHER) > 0


def test_whatever_the_model_raises_comes_out_and_the_next_call_works(verifier: PairVerifier) -> None:
    real = verifier._logit

    def broken(first: str, second: str) -> float:
        raise RuntimeError("out of memory")

    verifier._logit = broken  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        verifier.probability(ONE, OTHER)
    verifier._logit = real  # type: ignore[method-assign]
    assert verifier.probability(ONE, OTHER) > 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_no_number_is_a_refusal(verifier: PairVerifier, value: float) -> None:
    verifier._logit = lambda first, second: value  # type: ignore[method-assign]
    with pytest.raises(Unavailable, match="not finite"):
        verifier.probability(ONE, OTHER)


def test_a_pair_longer_than_the_window_is_refused_and_not_cut(verifier: PairVerifier) -> None:
    fits = "account " * 14
    assert verifier.probability(fits, fits + "card") > 0
    with pytest.raises(InvalidInput, match="longer"):
        verifier.probability(fits, fits + "card card")


def test_other_scripts_are_refused_and_marks_and_accents_are_not(verifier: PairVerifier) -> None:
    assert verifier.probability("What is a café limit? 5 €", ONE) > 0
    for text in ("如何关闭我的账户？", "Как закрыть счёт?", "How do I close my счёт?"):
        with pytest.raises(InvalidInput, match="Latin"):
            verifier.probability(text, ONE)
        with pytest.raises(InvalidInput, match="Latin"):
            verifier.probability(ONE, text)


def test_no_text_stands_in_an_error(verifier: PairVerifier) -> None:
    with pytest.raises(InvalidInput) as caught:
        verifier.probability("Как закрыть секретный счёт?", ONE)
    assert "секретный" not in str(caught.value)


def test_closed_it_refuses(tmp_path: Path) -> None:
    small_verifier(tmp_path)
    verifier = PairVerifier(tmp_path)
    verifier.close()
    with pytest.raises(Unavailable, match="closed"):
        verifier.probability(ONE, OTHER)
