"""Likeness of sentences: by the embedding model, and only where it knows the question's language."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from indexing.embed import EmbeddingSettings, Vectors, load_embedder
from service.likeness import EmbeddedLikeness

HASHING = load_embedder(EmbeddingSettings(model="hashing:256"))


class Knowing:
    """The hashing model, which says how far it knows a language."""

    def __init__(self, covers: float) -> None:
        self.fingerprint = HASHING.fingerprint
        self.encode_query = HASHING.encode_query
        self.batches: list[int] = []
        self._covers = covers

    def covers(self, text: str) -> float:
        del text
        return self._covers

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(len(texts))
        return HASHING.encode(texts)


def test_cosines_come_in_the_order_of_the_sentences() -> None:
    texts = [f"Sentence {number} about leave." for number in range(40)]
    model = Knowing(0.5)
    found = EmbeddedLikeness(model).of("How long is parental leave?", texts)  # type: ignore[arg-type]
    assert found == pytest.approx(
        (HASHING.encode(texts) @ HASHING.encode_query("How long is parental leave?")).tolist()
    )
    assert model.batches == [40]


def test_a_language_that_the_model_does_not_know_is_not_compared() -> None:
    model = Knowing(0.49)
    assert EmbeddedLikeness(model).of("年假有多少天？", ["员工每年享有15天年假。"]) is None  # type: ignore[arg-type]
    assert not model.batches
    assert HASHING.fingerprint.revision in EmbeddedLikeness(HASHING).revision
