"""Score: the calibrated probability that both questions have one answer, against the threshold."""

from __future__ import annotations

import logging
from typing import Final

from cache.decision import Asked, Reason
from cache.guards import Text
from cache.ladder import Ladder
from cache.verdict import Verdict, passed, veto

NAME: Final = "score"
_logger = logging.getLogger(__name__)


def check(
    ladder: Ladder, asked: Asked, cached: Text | None, similarity: float, near_misses: tuple[str, ...]
) -> Verdict:
    """`value` is the probability. Anything but a number at or above the threshold is refused, and so is a failure.

    Models spread their cosines differently, so that a score knows those of its own model alone.
    """
    if cached is None:
        return veto(NAME, Reason.LOW_SCORE)
    try:
        if not ladder.score.fits(asked.identity.embedder):
            return veto(NAME, Reason.OTHER_MODEL)
        probability = ladder.score.probability(asked.text, cached, similarity, near_misses)
    except Exception as error:  # noqa: BLE001 - a pair that the score did not foresee must not fail the question
        _logger.warning("the score failed (%s): answered afresh", type(error).__name__)
        return veto(NAME, Reason.LOW_SCORE)
    if not ladder.score_threshold(asked) <= probability <= 1.0:
        return veto(NAME, Reason.LOW_SCORE, value=probability)
    return passed(NAME, value=probability)
