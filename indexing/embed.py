"""Embedding: the port, its settings, and the one place that picks an implementation."""

from __future__ import annotations

from indexing.embedders.hashing import PREFIX as HASHING
from indexing.embedders.hashing import HashingEmbedder
from indexing.embedders.port import DEFAULT_MODEL, Dtype, Embedder, EmbeddingSettings, Fingerprint, Vectors
from tenancy.errors import InvalidInput

__all__ = [
    "DEFAULT_MODEL",
    "Dtype",
    "Embedder",
    "EmbeddingSettings",
    "Fingerprint",
    "Vectors",
    "load_embedder",
]


def load_embedder(settings: EmbeddingSettings) -> Embedder:
    """Load the model of `settings`, weights included.

    Raises `InvalidInput` for settings that name no usable model, `Corrupt` where the packaged weights are
    not those that were released, and `Unavailable` where a hub model cannot be fetched.
    """
    if settings.batch_size < 1:
        raise InvalidInput("batch_size must be at least 1", item="embedding.batch_size")
    if settings.window is not None and settings.window < 8:
        raise InvalidInput("window must be at least 8 tokens", item="embedding.window")
    if settings.model.startswith(HASHING):
        return HashingEmbedder(settings)
    # Importing torch takes seconds and hundreds of megabytes: only those who use it pay.
    from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder

    return SentenceTransformerEmbedder(settings)
