"""Embedding: the port, its settings, and the one place that picks an implementation."""

from __future__ import annotations

from typing import Final

from indexing.embedders.hashing import PREFIX as HASHING
from indexing.embedders.hashing import HashingEmbedder
from indexing.embedders.port import (
    DEFAULT_MODEL,
    Dtype,
    Embedder,
    EmbeddingSettings,
    Fingerprint,
    TokenReader,
    TokenVectors,
    Vectors,
)
from tenancy.errors import InvalidInput

__all__ = [
    "DEFAULT_MODEL",
    "Dtype",
    "Embedder",
    "EmbeddingSettings",
    "Fingerprint",
    "TokenReader",
    "TokenVectors",
    "Vectors",
    "load_embedder",
]

MAX_MODELS: Final = 8
"""Models of one deployment, all of which may be in memory."""


def load_embedder(settings: EmbeddingSettings) -> Embedder:
    """Load the model of `settings`, weights included.

    Raises `InvalidInput` for settings that name no usable model, `Corrupt` where the packaged weights are
    not those that were released, and `Unavailable` where a hub model cannot be fetched.
    """
    if settings.batch_size < 1:
        raise InvalidInput("batch_size must be at least 1", item="embedding.batch_size")
    if settings.window is not None and settings.window < 8:
        raise InvalidInput("window must be at least 8 tokens", item="embedding.window")
    if len(settings.also) >= MAX_MODELS:
        raise InvalidInput(f"a deployment has at most {MAX_MODELS} models", item="embedding.also")
    if settings.model.startswith(HASHING):
        return HashingEmbedder(settings)
    # Importing torch takes seconds and hundreds of megabytes: only those who use it pay.
    from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(settings)
