"""Documents that come in beside questions: parsed and embedded a few chunks at a time, each in a turn of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, embed, ingest, prepare
from indexing.stepwise import STEP
from tests.support.people import Company

TEXT = "\n\n".join(f"Clause {number} holds for {'very ' * (number % 7)}many contracts." * 3 for number in range(60))


class Counted:
    """The embedder, with how many texts each call had, and whether a turn was held in it."""

    def __init__(self) -> None:
        self.inner = load_embedder(EmbeddingSettings(model="hashing:64"))
        self.calls: list[tuple[int, bool]] = []
        self.held = False
        self.turns = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        assert not self.held
        self.held, self.turns = True, self.turns + 1
        try:
            yield
        finally:
            self.held = False

    def encode(self, texts: list[str]) -> np.ndarray:
        self.calls.append((len(texts), self.held))
        return self.inner.encode(texts)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_each_step_is_a_turn_and_the_vectors_are_the_same(acme: Company, counted: Counted) -> None:
    alone = Pipeline(counted)  # type: ignore[arg-type]
    together = replace(alone, turn=counted.turn)
    prepared = prepare(acme.handle, alone, Source("notes.txt", TEXT.encode()))
    (whole,) = embed(alone, prepared)
    counted.calls.clear()
    (stepwise,) = embed(together, prepared)
    chunks = len(prepared[0].chunks)  # type: ignore[union-attr]
    assert chunks > STEP
    assert sum(count for count, _ in counted.calls) == chunks
    assert max(count for count, _ in counted.calls) <= STEP
    assert all(held for _, held in counted.calls)
    assert np.array_equal(whole.vectors, stepwise.vectors)  # type: ignore[union-attr]
    assert whole.tokens == stepwise.tokens  # type: ignore[union-attr]


def test_parsing_is_a_turn_and_writing_is_none(acme: Company, counted: Counted) -> None:
    pipeline = Pipeline(counted, turn=counted.turn)  # type: ignore[arg-type]
    (outcome,) = ingest(acme.handle, pipeline, Source("notes.txt", TEXT.encode()))
    assert outcome.chunks > STEP
    assert counted.turns == 1 + -(-outcome.chunks // STEP)
    assert not counted.held
