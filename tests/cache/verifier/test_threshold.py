"""The choice of the verifier's threshold: from the top down, until a set's target does not hold."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from benchmarks import verifier_threshold
from benchmarks.verifier_threshold import UNCHOSEN, choose, pairs, served, stands

Rows = list[tuple[bool, float]]


def _chosen(monkeypatch: pytest.MonkeyPatch, **sets: Rows) -> float:
    monkeypatch.setattr(verifier_threshold, "pairs", lambda _data: {})
    monkeypatch.setattr(verifier_threshold, "values", lambda *_: sets)
    return choose(Path("data"), Path("folder"))[0]


def test_it_goes_down_until_the_first_set_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    fine: Rows = [(True, 0.9)] * 100 + [(False, 0.0)] * 100
    assert _chosen(monkeypatch, answer_equality=fine) == 0.25
    one_of_a_hundred: Rows = [*fine[:-1], (False, 0.62)]
    assert _chosen(monkeypatch, answer_equality=one_of_a_hundred) == 0.25
    two: Rows = [*fine[:-2], (False, 0.62), (False, 0.4)]
    assert _chosen(monkeypatch, answer_equality=two) == 0.5
    assert _chosen(monkeypatch, answer_equality=two, checklist=fine) == 0.5
    # What is worse further down does not come into view again where more is served there.
    dip: Rows = [(True, 0.9)] * 20 + [(False, 0.7)] * 30 + [(True, 0.3)] * 1_000
    assert _chosen(monkeypatch, qqp=dip) == 0.8
    assert _chosen(monkeypatch, qqp=[(False, 1.0)] * 9) == 0.95, "no lower than the first"


def test_without_pairs_nothing_is_chosen(tmp_path: Path) -> None:
    assert choose(tmp_path, tmp_path) == (UNCHOSEN, [])


def test_targets() -> None:
    assert served([(True, 0.5), (True, 0.4), (False, 0.5), (False, 1.0)], 0.5) == (1, 2, 2, 2)
    assert stands("answer_equality", 0, 150, 1, 150)
    assert not stands("answer_equality", 150, 150, 2, 150)
    assert stands("qqp", 3, 10, 0, 10), "what serves nothing wrong holds"
    assert stands("qqp", 750, 1_000, 250, 1_000)
    assert not stands("qqp", 7, 10, 3, 10), "too few to say"


def test_no_pair_is_taken_that_the_verifier_or_the_score_was_fitted_on(tmp_path: Path) -> None:
    from benchmarks.verifier_data import plain, read_pairs, split

    rows = [{"a": f"Question {n} of all?", "b": f"Another {n} of all?", "same": n % 2 == 0} for n in range(900)]
    file = tmp_path / "qqp_dev.jsonl.gz"
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    chosen = pairs(tmp_path)["qqp"]
    parts, fitted = split(read_pairs(file, "qqp")), verifier_threshold.fitted_on(file)
    trained = {plain(text) for part in (parts.train, parts.held_out) for pair in part for text in (pair.a, pair.b)}
    assert chosen
    assert len(fitted) > 100
    assert len(parts.calibration) > len(chosen)
    for pair in chosen:
        assert {plain(pair.a), plain(pair.b)}.isdisjoint(trained)
        assert {pair.a, pair.b}.isdisjoint(fitted)
