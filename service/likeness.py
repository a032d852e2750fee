"""The embedding model as the extractive generator sees it: how near sentences are to a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from indexing.embed import Embedder

_COVERED: Final = 0.5
_AT_ONCE: Final = 16
"""Sentences a batch, so that others' questions wait for no more of them."""


@dataclass(frozen=True, slots=True)
class EmbeddedLikeness:
    """By the deployment's default model, whichever a tenant's collection has: only texts of one question meet."""

    embedder: Embedder

    @property
    def revision(self) -> str:
        fingerprint = self.embedder.fingerprint
        return f"{fingerprint.name}@{fingerprint.revision}"

    def of(self, question: str, texts: Sequence[str]) -> Sequence[float] | None:
        if self.embedder.covers(question) < _COVERED:
            return None
        batches = [self.embedder.encode(texts[at : at + _AT_ONCE]) for at in range(0, len(texts), _AT_ONCE)]
        found: list[float] = (np.concatenate(batches) @ self.embedder.encode_query(question)).tolist()
        return found
