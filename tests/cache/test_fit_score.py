"""Fitting: parts that share no question whatever is sampled, and a threshold that stops where a risk is too high."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.fit_score import AMONG_HITS, OF_DIFFERENT, Sets, choose
from benchmarks.score_data import FILES, Pair, Table, read_parts
from cache.score import FittedScore


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"a": f"Question {n}?", "b": f"Question {n + 1}?", "same": n % 2} for n in range(0, 600, 3)]
    rows += [{"a": f"Question {n + 1}?", "b": f"Another {n}?", "same": 0} for n in range(0, 600, 3)]
    (tmp_path / FILES["answer_equality"]).write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_questions_that_are_tied_fall_into_one_part_however_few_are_taken(folder: Path) -> None:
    pairs, parts = read_parts(folder, "answer_equality", 0, 7)
    assert set(parts) == {"fit", "calibrate", "report"}
    part_of: dict[str, str] = {}
    for pair, part in zip(pairs, parts, strict=True):
        assert part_of.setdefault(pair.a, part) == part_of.setdefault(pair.b, part) == part
    few, their_parts = read_parts(folder, "answer_equality", 50, 7)
    assert len(few) == 50
    assert [part_of[pair.a] for pair in few] == their_parts.tolist()


class ByFirst:
    """The first number of a pair is its probability."""

    def of(self, row: list[float]) -> float:
        return row[0]


def table(values: list[tuple[float, bool]]) -> Table:
    rows = np.array([[value] for value, _ in values])
    same = np.array([same for _, same in values])
    passed = np.full(len(values), True)
    return Table([Pair("a", "b", same) for _, same in values], rows, rows[:, 0], same, passed, [""] * len(values))


def chosen(**tables: list[tuple[float, bool]]) -> tuple[float, list[dict[str, Any]]]:
    sound = {name: [(0.95, True)] * 200 + [(0.0, False)] * 400 for name in (*AMONG_HITS, *OF_DIFFERENT)}
    made = {name: table(rows) for name, rows in (sound | tables).items()}
    parts = {name: np.full(len(made[name].same), "calibrate") for name in made}
    return choose(cast(FittedScore, ByFirst()), Sets(made, parts))


def test_the_threshold_goes_down_while_every_risk_is_within_its_target() -> None:
    assert chosen()[0] == 0.5
    at, tests = chosen(answer_equality=[(0.95, True)] * 200 + [(0.705, False)] * 20 + [(0.0, False)] * 400)
    assert at == 0.71
    assert tests[-1]["answer_equality"][:2] == [20, 420]
    # Of QQP the share among what is served counts: the first refused step ends it, whatever comes below.
    noisy = [(0.95, True)] * 200 + [(0.805, False)] * 100 + [(0.6, True)] * 5_000
    assert chosen(qqp=noisy)[0] == 0.81
