"""Verifier: a learned second opinion, where one is configured. One that fails or takes too long refuses."""

from __future__ import annotations

import logging
from typing import Final

from cache.decision import Asked, Reason
from cache.entry import Entry
from cache.ladder import Ladder
from cache.verdict import Verdict, passed, veto

NAME: Final = "verifier"
_logger = logging.getLogger(__name__)


def check(ladder: Ladder, asked: Asked, entry: Entry) -> Verdict:
    """`value` is the probability, None without a verifier."""
    verifier, threshold = ladder.verifier, ladder.verifier_threshold(asked)
    if verifier is None or threshold is None:
        return passed(NAME)
    try:
        probability = verifier.probability(asked.question, entry.question)
    except Exception as error:  # noqa: BLE001 - whatever a model does, the question is answered afresh
        _logger.warning("the verifier failed (%s): answered afresh", type(error).__name__)
        return veto(NAME, Reason.VERIFIER_AWAY)
    if not threshold <= probability <= 1.0:
        return veto(NAME, Reason.UNVERIFIED, value=probability)
    return passed(NAME, value=probability)
