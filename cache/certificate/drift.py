"""Has the share of wrong hits risen above its target since the certificate was given? A bet on recent labels.

One CUSUM of likelihood ratios for each of a few shares, against a usual one somewhat below the target: it falls back to
zero while labels are right, and climbs when wrong ones come closely. Each is an e-detector and so is their mean (J.
Shin, A. Ramdas, A. Rinaldo, E-detectors, 2022): while no more than the usual share is wrong, an alarm comes on average
after no fewer than `ALARM` labels. Old labels weigh nothing, so a long good past does not hide a bad present, as it
would in the limits.
"""

from __future__ import annotations

from math import exp, log, log1p
from typing import Final

USUAL: Final = 0.7
"""Of the target. A share near the target itself takes tens of thousands of labels to certify, so little is lost."""

ALARM: Final = 300.0
MULTIPLES: Final = (2.0, 4.0, 8.0)
"""The shares that are bet on, as multiples of the target."""

CALM: Final = (0.0,) * len(MULTIPLES)

Bets = tuple[float, ...]


def after(bets: Bets, *, wrong: bool, alpha: float) -> Bets:
    """The logarithms of the bets after one more label, with `alpha` (between 0 and 1) the target."""
    usual = USUAL * alpha
    moved = []
    for bet, multiple in zip(bets, MULTIPLES, strict=True):
        # For a target so large that a multiple would be certainty or more, halfway to it.
        share = min(multiple * usual, (1 + usual) / 2)
        factor = log(share / usual) if wrong else log1p(-share) - log1p(-usual)
        moved.append(max(bet, 0.0) + factor)
    return tuple(moved)


def alarm(bets: Bets) -> bool:
    return sum(exp(min(bet, 700.0)) for bet in bets) >= ALARM * len(bets)


def doubt(bets: Bets) -> bool:
    """Whether a wrong label is not yet made up for by right ones: one takes about a hundred at a target of 1 %.

    Meanwhile nothing is served and every hit is compared. So what may be a rise is looked into at once rather than at
    the pace of the draws, at the cost of a few hundred hits where there was none.
    """
    return any(bet > 0 for bet in bets)
