"""Documents beside questions: parsed and embedded in turns with them, a few chunks at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.embed import Embedder

STEP: Final = 4
"""Chunks that are embedded in one turn, which is what a question waits for: a fraction of a second on two cores."""

TakeTurn = Callable[[], AbstractContextManager[None]]
"""Waits for this work's turn, which lasts as long as the block."""


def in_turn(turn: TakeTurn | None) -> AbstractContextManager[None]:
    """A turn where turns are taken."""
    return nullcontext() if turn is None else turn()


def encoded(embedder: Embedder, texts: Sequence[str], turn: TakeTurn | None) -> npt.NDArray[np.float32]:
    """The vectors of `texts` (count, dimension), a few in a turn where turns are taken: those of like length together,
    since a model pads them to one.
    """
    if turn is None or not texts:
        return embedder.encode(texts)
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    parts = []
    for start in range(0, len(order), STEP):
        with turn():
            parts.append(embedder.encode([texts[index] for index in order[start : start + STEP]]))
    together = np.concatenate(parts)
    vectors = np.empty_like(together)
    vectors[order] = together
    return vectors
