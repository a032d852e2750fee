"""The embedding model as the extractive generator sees it: how near passages and sentences are to a question.

By `indexing.late_interaction`. A sentence's tokens were read within its passage, and it has those of the heading above
the passage too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from generation.extractive import Nearness
from generation.prompt import PromptSource
from generation.sentences import Sentence
from indexing.chunk import embedded_text
from indexing.embed import Embedder, TokenReader, TokenVectors, Vectors
from indexing.late_interaction import COVERED, late_likeness

_REVISION: Final = "tokens-1"


@dataclass(frozen=True, slots=True)
class EmbeddedLikeness:
    """By the deployment's default model, whichever a tenant's collection has: only texts of one question meet."""

    embedder: Embedder

    @property
    def revision(self) -> str:
        fingerprint = self.embedder.fingerprint
        return f"{_REVISION}/{fingerprint.name}@{fingerprint.revision}"

    def of(
        self, question: str, passages: Sequence[tuple[PromptSource, Sequence[Sentence]]]
    ) -> Sequence[Nearness] | None:
        model = self.embedder
        if not isinstance(model, TokenReader) or model.covers(question) < COVERED:
            return None
        asked = model.read([question], question=True)[0].vectors
        if not len(asked):
            return None
        texts = [embedded_text(source.text, source.context) for source, _ in passages]
        return [
            _nearness(asked, read, len(text) - len(source.text), sentences)
            for (source, sentences), text, read in zip(passages, texts, model.read(texts), strict=True)
        ]


def _nearness(asked: Vectors, read: TokenVectors, above: int, sentences: Sequence[Sentence]) -> Nearness:
    """`above` is how many characters of what was read stand above the passage's text."""
    cosines = asked @ read.vectors.T
    middles = read.spans.sum(axis=1) / 2 - above
    found = []
    for sentence in sentences:
        own = (middles >= sentence.start) & (middles < sentence.end)
        found.append(late_likeness(cosines[:, own | (middles < 0)]) if own.any() else 0.0)
    return Nearness(late_likeness(cosines), tuple(found))
