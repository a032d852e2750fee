"""Token counts: by a tokenizer file, without its own limits, and the estimate that errs upwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from generation.tokens import ESTIMATE, estimate, load_counter
from tenancy.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    words = {"[UNK]": 0, "leave": 1, "is": 2, "long": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(max_length=2)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_a_tokenizer_counts_without_truncation_or_padding(folder: Path) -> None:
    counter = load_counter(folder)
    assert counter.count("leave is long is long") == 5
    assert counter.count("leave") == 1
    assert counter.name == load_counter(folder / "tokenizer.json").name
    assert counter.name.startswith("sha256:")


def test_without_a_tokenizer_it_is_an_estimate() -> None:
    assert load_counter(None).name == ESTIMATE


@pytest.mark.parametrize("content", [None, "{}", "not json"])
def test_an_unreadable_tokenizer_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(InvalidInput, match="tokenizer"):
        load_counter(tmp_path)


@pytest.mark.parametrize(
    ("text", "at_least"), [("", 0), ("leave", 1), ("a b c", 3), ("12345", 5), ("年假政策", 4), ("😀", 2), ("\ud800", 0)]
)
def test_the_estimate_is_not_below_a_usual_tokenizer(text: str, at_least: int) -> None:
    assert estimate(text) >= at_least
