"""The training command from end to end on a few rows, and what must not stand among them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

import pytest

from benchmarks.verifier_data import Budget, plain, prepare, read_pairs, split
from benchmarks.verifier_pairs import Pair, crossed, gerund, swaps, templates
from cache.verifier.pair import PairVerifier

QUESTIONS = [
    "How do I get from Leeds to York by train?",
    "What is the best phone under 300 dollars in 2015?",
    "Should I learn to drive before I move to Boston?",
    "Is it safe to drink tap water in Mexico City?",
]


def _write(folder: Path, rows: int) -> None:
    pairs = [
        {
            "a": f"{QUESTIONS[number % 4][:-1]} {number}?",
            "b": f"Question {number // 2} of all?",
            "same": number % 2 == 0,
        }
        for number in range(rows)
    ]
    text = "\n".join(json.dumps(row) for row in pairs).encode()
    (folder / "qqp_dev.jsonl.gz").write_bytes(gzip.compress(text))
    equal = {"a": QUESTIONS[0], "b": QUESTIONS[1], "same_answer": False}
    (folder / "answer_equality_dev.jsonl").write_text(json.dumps(equal) + "\n")


def test_pairs_that_share_a_question_stand_in_one_part(tmp_path: Path) -> None:
    _write(tmp_path, 400)
    parts = split(read_pairs(tmp_path / "qqp_dev.jsonl.gz", "qqp"))
    texts = [{plain(text) for pair in part for text in (pair.a, pair.b)} for part in (parts.train, parts.held_out)]
    assert min(map(len, texts)) > 0
    assert texts[0].isdisjoint(texts[1])


def test_no_training_pair_holds_a_question_that_is_kept_for_evaluation(tmp_path: Path) -> None:
    _write(tmp_path, 60)
    rows = [{"a": question, "b": question[:-1] + " now?", "same": True} for question in QUESTIONS]
    (tmp_path / "qqp_dev.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    small = Budget(10, 10, 10, 20, 20, 20)
    parts = prepare(tmp_path, ["qqp", "generated"], small, 1)
    kept = {plain(pair.a) for pair in (*parts.train, *parts.calibration, *parts.held_out) if pair.kind != "qqp"}
    assert plain(QUESTIONS[0]) not in kept
    assert plain(QUESTIONS[2]) in kept or plain(QUESTIONS[3]) in kept


def test_a_seed_gives_the_same_pairs_and_both_labels() -> None:
    one, same, other = (list(templates(Random(seed), 200)) for seed in (1, 1, 2))
    assert one == same != other
    assert sum(pair.same for pair in one) == 100
    assert all(pair.a != pair.b for pair in one if not pair.same)
    assert not any("{" in pair.a + pair.b for pair in one)


def test_a_swap_changes_a_question_and_a_dressed_one_stays_the_same() -> None:
    found = list(swaps(Random(3), QUESTIONS * 5, 15))
    assert {pair.same for pair in found} == {True, False}
    assert all(pair.a != pair.b for pair in found)
    made = list(crossed(Random(3), [Pair(QUESTIONS[0], QUESTIONS[1], True, "qqp")] * 3, 2))
    assert [pair.same for pair in made] == [False, False]
    assert all(pair.b != QUESTIONS[1] for pair in made)


def test_pairs_labelled_different_are_never_crossed() -> None:
    assert list(crossed(Random(3), [Pair(QUESTIONS[0], QUESTIONS[1], False, "qqp")] * 3, 2)) == []


@pytest.mark.parametrize(
    ("verb", "expected"), [("close", "closing"), ("set up", "setting up"), ("free", "freeing"), ("dye", "dyeing")]
)
def test_gerunds(verb: str, expected: str) -> None:
    assert gerund(verb) == expected


@pytest.mark.slow
def test_the_command_makes_a_verifier_that_loads(tmp_path: Path) -> None:
    from benchmarks.train_verifier import Course, run

    _write(tmp_path, 60)
    parts = prepare(tmp_path, ["qqp", "generated"], Budget(20, 4, 4, 20, 10, 10), 1)
    figures = run(parts, tmp_path, tmp_path / "made", ["qqp", "generated"], Course(minutes=1, seed=1))
    assert figures["may_be_passed_on"] is False
    on = Course(minutes=1, seed=2, threads=2, start=tmp_path / "made")
    figures = run(parts, tmp_path, tmp_path / "further", ["generated"], on)
    assert figures["sets"] == ["generated", "qqp"]
    assert figures["may_be_passed_on"] is False
    verifier = PairVerifier(tmp_path / "made", timeout_s=30)
    try:
        there = verifier.probability(QUESTIONS[0], QUESTIONS[3])
        assert 0 < there < 1
        assert there == verifier.probability(QUESTIONS[3], QUESTIONS[0])
    finally:
        verifier.close()
