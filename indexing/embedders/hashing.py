"""Feature hashing of words (Weinberger et al. 2009): a deterministic embedder that needs no model.

For deployments without a model and for tests. Similarity is word overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from indexing.embedders.port import EmbeddingSettings, Fingerprint, Vectors, require_unicode, unit_rows
from indexing.terms import TERMS_REVISION, count_terms, term_count, tokenize
from tenancy.errors import InvalidInput

PREFIX: Final = "hashing:"
DEFAULT_WINDOW: Final = 512
_DIMENSIONS: Final = range(16, 65_537)


class HashingEmbedder:
    """Each term adds its sign, times the square root of its count, to the component that its hash names.

    A text without any term has the zero vector: similar to nothing. Vectors are float32 whatever the dtype
    in the settings, and the fingerprint says so.
    """

    def __init__(self, settings: EmbeddingSettings) -> None:
        dimension = _dimension(settings.model)
        self.spec: Final = settings.model
        self.fingerprint: Final = Fingerprint(
            name=settings.model,
            revision=TERMS_REVISION,
            dtype="float32",
            dimension=dimension,
            normalised=True,
            window=settings.window or DEFAULT_WINDOW,
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        require_unicode(texts)
        vectors = np.zeros((len(texts), self.fingerprint.dimension), dtype=np.float64)
        for row, text in zip(vectors, texts, strict=True):
            terms = count_terms(tokenize(text)[: self.fingerprint.window])
            signs = np.where(terms.hashes >> np.uint64(63), 1.0, -1.0)
            components = (terms.hashes % np.uint64(self.fingerprint.dimension)).astype(np.intp)
            np.add.at(row, components, signs * np.sqrt(terms.counts))
        return unit_rows(vectors)

    def encode_query(self, text: str) -> Vectors:
        vector: Vectors = self.encode([text])[0]
        return vector

    def token_count(self, text: str) -> int:
        return term_count(text)

    def token_starts(self, text: str) -> None:
        """None: it reads words, and any number of them."""

    def question_length(self, text: str) -> int:
        return self.token_count(text)

    def covers(self, text: str) -> float:  # noqa: ARG002 - the port's signature
        """Always 0: there is no vocabulary, and the lexical leg weighs the same words better."""
        return 0.0


def _dimension(model: str) -> int:
    text = model.removeprefix(PREFIX)
    if not (text.isascii() and text.isdigit() and int(text) in _DIMENSIONS):
        raise InvalidInput(
            "the hashing embedder needs a dimension from 16 to 65,536",
            item=model,
            remedy=f"write for example {PREFIX}512",
        )
    return int(text)
