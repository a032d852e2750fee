"""Score: the calibrated probability that both questions have one answer, against the threshold."""

from __future__ import annotations

from typing import Final

from cache.decision import Asked, Reason
from cache.guards import Text
from cache.ladder import Ladder
from cache.verdict import Verdict, passed, veto

NAME: Final = "score"


def check(ladder: Ladder, asked: Asked, cached: Text, similarity: float, near_misses: tuple[str, ...]) -> Verdict:
    """`value` is the probability. Anything but a number at or above the threshold is refused."""
    probability = ladder.score.probability(asked.text, cached, similarity, near_misses)
    if not ladder.score_threshold(asked) <= probability <= 1.0:
        return veto(NAME, Reason.LOW_SCORE, value=probability)
    return passed(NAME, value=probability)
