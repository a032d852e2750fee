"""Verifier: decides what the score alone would not serve, where one is configured. One that fails or is late refuses.

It needs no view, and comes after every rung that does: while it works, no transaction is open.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from time import monotonic
from typing import Final

from cache.decision import Asked, Reason
from cache.entry import Entry
from cache.ladder import Ladder
from cache.rungs import score
from cache.verdict import Verdict, passed, veto
from tenancy.errors import InvalidInput

NAME: Final = "verifier"
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Turns:
    """What one question may still ask: `left` pairs, until `ends` (monotonic, None before the first)."""

    left: int
    ends: float | None = None

    def take(self, timeout_s: float) -> float | None:
        """Seconds for one more pair; None where there are no more."""
        now = monotonic()
        self.ends = now + timeout_s if self.ends is None else self.ends
        if self.left <= 0 or now >= self.ends:
            return None
        self.left -= 1
        return self.ends - now


def check(ladder: Ladder, asked: Asked, entry: Entry, scored: Verdict, turns: Turns) -> Verdict:
    """`value` is the probability, None where nobody had to be asked. `scored` is the score's verdict on the pair."""
    verifier, threshold = ladder.verifier, ladder.verifier_threshold(asked)
    if verifier is None or threshold is None or score.UNSURE not in scored.near:
        return passed(NAME)
    within = turns.take(verifier.timeout_s)
    if within is None:
        return veto(NAME, Reason.UNASKED)
    try:
        probability = verifier.probability(asked.question, entry.question, within_s=within)
    except Exception as error:  # noqa: BLE001 - whatever a model does, the question is answered afresh
        # A pair that it cannot read says nothing about the next one; what else fails would fail again.
        turns.left = turns.left if isinstance(error, InvalidInput) else 0
        _logger.warning("the verifier failed (%s): answered afresh", type(error).__name__)
        return veto(NAME, Reason.VERIFIER_AWAY)
    if not threshold <= probability <= 1.0:
        return veto(NAME, Reason.UNVERIFIED, value=probability)
    return passed(NAME, value=probability)
