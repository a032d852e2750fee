"""Which semantic hits are answered afresh and compared, in place of being served.

A hit is an entry that every rung let pass and that is off probation: the first such candidate, which is what a
certificate or an opening serves. While nothing is served each hit is drawn, since it is answered afresh anyway; while
hits are served, each is drawn with the policy's fixed probability. What is drawn depends on nothing that is known of
the question or the entry, so the drawn ones are like the served ones; and the probability changes only with what
earlier labels said, which the limits of `cache.certificate.bound` allow.

The first `probation` times that a new entry would answer, it is compared and not served, under a certificate too. So
these comparisons are no labels: the certificate speaks of what is served, and of that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from cache.policy import TemplatePolicy
from cache.standing import Standing

Purpose = Literal["uniform", "probation", "none"]


def probability(standing: Standing, policy: TemplatePolicy) -> float:
    """Of being drawn. Zero in the policy means that nothing is, and so that nothing is ever certified."""
    if policy.shadow > 0 and standing.state == "uncertified" and not standing.serves:
        return 1.0
    return policy.shadow


def on_probation(policy: TemplatePolicy, confirmed: int) -> bool:
    """`confirmed` counts the entry's checks so far."""
    return confirmed < policy.probation


def purpose(standing: Standing, policy: TemplatePolicy, confirmed: int, random: Callable[[], float]) -> Purpose:
    """Why to compare, or `none`. `random` draws from [0, 1), and is not asked about an entry on probation."""
    if on_probation(policy, confirmed):
        return "probation"
    return "uniform" if random() < probability(standing, policy) else "none"
