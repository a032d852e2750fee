"""Score: the calibrated probability that both questions have one answer, against the threshold."""

from __future__ import annotations

import logging
from typing import Final

from cache.decision import Asked, Reason
from cache.guards import Text
from cache.ladder import Ladder
from cache.rungs.guards import CONTRASTED
from cache.verdict import Verdict, passed, veto

NAME: Final = "score"
UNSURE: Final = "not served without the verifier"
_logger = logging.getLogger(__name__)


def check(
    ladder: Ladder, asked: Asked, cached: Text | None, similarity: float, near_misses: tuple[str, ...]
) -> Verdict:
    """`value` is the probability. Anything but a number at or above the threshold is refused, and so is a failure.

    Where a verifier can decide, its own, lower threshold holds: `near` then says that the score alone refuses.

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
    if CONTRASTED not in near_misses and ladder.score_threshold(asked) <= probability <= 1.0:
        return passed(NAME, value=probability)
    worth = ladder.worth_verifying(asked)
    if worth is None or not worth <= probability <= 1.0:
        return veto(NAME, Reason.LOW_SCORE, value=probability)
    return passed(NAME, value=probability, near=(UNSURE,))
