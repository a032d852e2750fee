"""Dense and lexical candidates into one ranking.

A weighted mean of normalised scores (Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
Retrieval", ACM TOIS 2023). The weight of the dense leg follows how far the embedding model knows the language
of the question. What was measured, and against what: docs/decisions/0004-fusion.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FUSION_REVISION: Final = "mean-1"
"""Changes whenever equal candidates would be ranked otherwise; part of a cache namespace."""

CANDIDATES: Final = 100
"""How many candidates each leg gives, at least: the ranking below is steady from 50 on."""

DENSE_SHARE: Final = 0.5
"""Weight of the dense leg for a question whose language the model knows; the lexical leg has the rest."""


def dense_weight_for(covers: float) -> float:
    """The weight of the dense leg, 0 to `DENSE_SHARE`, from `Embedder.covers` of the question."""
    return DENSE_SHARE * min(1.0, max(0.0, covers))


def fuse(
    dense: Sequence[tuple[int, float]], lexical: Sequence[tuple[int, float]], dense_weight: float
) -> list[tuple[int, float]]:
    """Fuse (id, score) candidates of both legs: (id, score in [0, 1]), best first, ties by ascending id.

    Both legs are searched to the same depth. Every candidate of either comes back. Only the candidates given
    here count, and these are readable rows, so that unreadable ones cannot move a score. Raises `ValueError`
    for a weight outside [0, 1] or an id that occurs twice in a leg.

    A leg is scaled so that its best candidate has 1 and a row that it does not name has 0: where the leg was
    cut at its depth, that is also the weakest candidate's. A lexical leg shorter than the dense one was not
    cut: the rows that it does not name share no term with the question, which is BM25's own 0.
    """
    if not 0 <= dense_weight <= 1:
        raise ValueError(f"the weight of the dense leg must be in [0, 1], not {dense_weight}")
    near = _scaled(dense, floor=_weakest(dense))
    worded = _scaled(lexical, floor=0.0 if len(lexical) < len(dense) else _weakest(lexical))
    fused = {
        candidate: dense_weight * near.get(candidate, 0.0) + (1 - dense_weight) * worded.get(candidate, 0.0)
        for candidate in near.keys() | worded.keys()
    }

    def rank(item: tuple[int, float]) -> tuple[float, float, float, int]:
        # A leg of weight 0 still orders what the other leg does not tell apart.
        candidate, score = item
        return -score, -near.get(candidate, 0.0), -worded.get(candidate, 0.0), candidate

    return sorted(fused.items(), key=rank)


def _weakest(leg: Sequence[tuple[int, float]]) -> float:
    return min((score for _, score in leg), default=0.0)


def _scaled(leg: Sequence[tuple[int, float]], *, floor: float) -> dict[int, float]:
    """Scores of one leg on [0, 1]: `floor` and below is 0, the best is 1; all equal to the best are 1."""
    scores = dict(leg)
    if len(scores) != len(leg):
        raise ValueError("a candidate occurs twice in one leg")
    if not scores:
        return {}
    best = max(scores.values())
    if best <= floor:
        return dict.fromkeys(scores, 1.0)
    return {candidate: max(0.0, score - floor) / (best - floor) for candidate, score in scores.items()}
