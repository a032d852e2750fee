"""Likeness: by the tokens that the embedding model reads, and only where it knows the question's language."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from generation.prompt import PromptSource
from generation.sentences import sentences
from indexing.embed import EmbeddingSettings, TokenVectors, load_embedder
from service.likeness import EmbeddedLikeness

HASHING = load_embedder(EmbeddingSettings(model="hashing:256"))
KNOWN = ("leave", "parental", "days", "handbook")
LEAVE = PromptSource("S1", "a.md", "", "days of leave. Of parental leave.", context="Rules > handbook")


class Knowing:
    """Reads word by word, and knows four of them: each is an axis, all others are another one."""

    fingerprint = HASHING.fingerprint

    def __init__(self, covers: float) -> None:
        self.batches: list[list[str]] = []
        self._covers = covers

    def covers(self, text: str) -> float:
        del text
        return self._covers

    def read(self, texts: Sequence[str], *, question: bool = False) -> list[TokenVectors]:
        del question
        self.batches.append(list(texts))
        return [self._tokens(text) for text in texts]

    def _tokens(self, text: str) -> TokenVectors:
        found, at = [], 0
        for word in text.split():
            at = text.index(word, at)
            axis = KNOWN.index(word.strip(".")) if word.strip(".") in KNOWN else len(KNOWN)
            found.append((at, at + len(word), axis))
            at += len(word)
        rows = np.array(found, dtype=np.int64).reshape(-1, 3)
        return TokenVectors(rows[:, :2], np.eye(len(KNOWN) + 1, dtype=np.float32)[rows[:, 2]])


def test_each_token_of_the_question_looks_for_its_nearest() -> None:
    model = Knowing(0.5)
    asked = [(LEAVE, sentences(LEAVE.text))]
    found = EmbeddedLikeness(model).of("parental leave days handbook", asked)  # type: ignore[arg-type]
    assert found is not None
    # The heading counts for each sentence; what stands in the other sentence does not.
    assert found[0].passage == pytest.approx(1.0)
    assert found[0].sentences == pytest.approx((0.75, 0.75))
    first = EmbeddedLikeness(model).of("days", asked)  # type: ignore[arg-type]
    assert first is not None
    assert first[0].sentences == pytest.approx((1.0, 0.0))
    assert [len(batch) for batch in model.batches] == [1, 1, 1, 1]
    assert model.batches[1] == ["handbook\ndays of leave. Of parental leave."]


def test_a_sentence_behind_the_window_is_near_to_nothing() -> None:
    class Short(Knowing):
        def _tokens(self, text: str) -> TokenVectors:
            read = super()._tokens(text)
            return TokenVectors(read.spans[:3], read.vectors[:3])

    asked = [(LEAVE, sentences(LEAVE.text))]
    found = EmbeddedLikeness(Short(1.0)).of("parental", asked)  # type: ignore[arg-type]
    assert found is not None
    assert found[0].sentences[1] == 0.0


def test_a_language_that_the_model_does_not_know_is_not_compared() -> None:
    model = Knowing(0.49)
    assert EmbeddedLikeness(model).of("年假有多少天？", [(LEAVE, sentences(LEAVE.text))]) is None  # type: ignore[arg-type]
    assert not model.batches


def test_a_model_that_cannot_be_read_by_tokens_is_not_compared() -> None:
    assert EmbeddedLikeness(HASHING).of("How long is leave?", [(LEAVE, sentences(LEAVE.text))]) is None
    assert HASHING.fingerprint.revision in EmbeddedLikeness(HASHING).revision
