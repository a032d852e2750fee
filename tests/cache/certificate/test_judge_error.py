"""The measurement of the judge: its pairs are what their labels say, and both kinds of error are counted."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from benchmarks import judge_error
from benchmarks.judge_error import Fact, made, measure
from cache.certificate.judge import SAME, Judgement

TEXTS = (
    "In 1998, the museum was opened by Margaret in the old harbour.",
    "The museum is visited by 12,500 people each year.",
    "Its tower was not built before the great fire, as Edward wrote.",
    "The museum was sold to Rhys by a banker who had come from Cardiff.",
)
FACTS = {
    name: [Fact(name, text.replace("museum", what), 100 * place) for place, text in enumerate(TEXTS)]
    for name, what in (("p0", "museum"), ("p1", "library"))
}


def test_pairs_are_made_of_every_kind_and_judged() -> None:
    found = measure(made(FACTS, "en", random.Random(1)))
    assert {
        "the same sentence",
        "with its neighbour",
        "numbers written otherwise",
        "contractions",
        "a phrase moved",
    } <= set(found["same"])
    assert {
        "another sentence of the passage",
        "a number moved",
        "a year moved",
        "a name exchanged",
        "two names exchanged",
        "denied",
    } <= set(found["different"])
    assert found["alarmed"]["pairs"] + found["missed"]["pairs"] == len(list(made(FACTS, "en", random.Random(1))))
    assert found["different"]["another sentence of the passage"]["errors"] == 0
    assert found["same"]["the same sentence"]["errors"] == 0


def test_both_errors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = list(made(FACTS, "en", random.Random(1)))
    for verdict, error, none in ((SAME, "missed", "alarmed"), (Judgement(True, "x"), "alarmed", "missed")):
        monkeypatch.setattr(judge_error, "judge", lambda *_, verdict=verdict: verdict)
        found = measure(iter(pairs))
        assert found[error]["errors"] == found[error]["pairs"] > 0
        assert found[none]["errors"] == 0


def test_every_second_pair_of_paws_is_judged(tmp_path: Path) -> None:
    rows = [
        {"a": f"Ana trained Bo in {year}.", "b": f"In {year} Bo was trained by Ana.", "same": True} for year in (1, 2)
    ]
    with gzip.open(tmp_path / "paws.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    (pair,) = judge_error.paws(tmp_path / "paws.gz")
    assert (pair[0], pair[1], pair[2].text) == ("PAWS", True, rows[1]["a"])
