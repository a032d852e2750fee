"""The embedding model on a CUDA device gives the vectors that a processor gives."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from indexing.embed import load_embedder  # noqa: E402  (needs torch, above)
from indexing.embedders.port import EmbeddingSettings  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: torch.cuda.is_available() is False"),
]

TEXTS = ["The notice period is three months.", "试用期为六个月。", "A hotel may cost at most 120 EUR a night."]


def test_vectors_agree_with_those_of_a_processor() -> None:
    on_gpu = load_embedder(EmbeddingSettings(device="cuda")).encode(TEXTS)
    on_cpu = load_embedder(EmbeddingSettings(device="cpu")).encode(TEXTS)
    assert np.allclose(on_gpu, on_cpu, atol=1e-3)


def test_the_fingerprint_is_the_same_on_both() -> None:
    fingerprints = {load_embedder(EmbeddingSettings(device=device)).fingerprint for device in ("cuda", "cpu")}
    assert len(fingerprints) == 1
