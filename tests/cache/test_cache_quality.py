"""The measure of the cache decides as the ladder does, without and with a verifier."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cache_quality import decide, fingerprint, question
from benchmarks.score_data import Pair
from cache.ladder import Ladder
from cache.score import default_score
from tests.cache.test_ladder import Fixed, Second

ASKED = "How long is the parental leave for new parents?"
PAIRS = [
    Pair(ASKED, "How long is parental leave for new parents please?", same=True),
    Pair(ASKED, "How long is the parental leave for adoptive parents?", same=False),
    Pair(ASKED, "How long is the parental leave for 3 new parents?", same=False),
]
VECTORS = {text: np.ones(1, dtype=np.float32) for pair in PAIRS for text in (pair.a, pair.b)}


@pytest.mark.parametrize(
    ("score", "verified", "ours", "both"),
    [
        (0.7, 0.0, [True, False, False], [True, False, False]),
        (0.5, 0.7, [False, False, False], [True, True, False]),
        (0.5, 0.6, [False, False, False], [False, False, False]),
        (0.05, 0.9, [False, False, False], [False, False, False]),
    ],
)
def test_it_serves_what_the_ladder_serves(score: float, verified: float, ours: list[bool], both: list[bool]) -> None:
    ladder = Ladder(score=Fixed(score), verifier=Second((verified,)))
    served = decide(PAIRS, VECTORS, ladder, "any").served
    assert served["ours"].tolist() == ours
    assert served["verified"].tolist() == both
    alone = decide(PAIRS, VECTORS, Ladder(score=Fixed(score)), "any").served
    assert alone["ours"].tolist() == ours
    assert "verified" not in alone


@pytest.mark.slow
def test_the_packaged_model_is_the_one_that_the_score_was_fitted_with() -> None:
    from indexing.embedders.port import EmbeddingSettings
    from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder

    mark = fingerprint(SentenceTransformerEmbedder(EmbeddingSettings(device="cpu")))
    assert default_score().fits(question(ASKED, mark).identity.embedder)
    assert not default_score().fits("another")
