"""The embedding model as the extractive generator sees it: how near sentences are to a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexing.embed import Embedder

_COVERED: Final = 0.5


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
        found: list[float] = (self.embedder.encode(texts) @ self.embedder.encode_query(question)).tolist()
        return found
