"""Which semantic hits are answered afresh and compared, in place of being served.

A hit is one that every rung let pass. While nothing is served (no certificate, no opening) each is drawn, since it is
answered afresh anyway; while hits are served, each is drawn with the policy's fixed probability. What is drawn depends
on nothing that is known of the question or the entry, so the drawn ones are like the served ones; and the probability
changes only with what earlier labels said, which the limits of `cache.certificate.bound` allow.

The first hits of a new entry are always compared (probation), drawn or not. Those of them that were drawn are labels
like any other: the certificate speaks of all hits that the rungs let pass, of which those that are served are a part.
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


def purpose(standing: Standing, policy: TemplatePolicy, confirmed: int, random: Callable[[], float]) -> Purpose:
    """Why to compare, or `none`. `confirmed` counts the entry's checks so far; `random` draws from [0, 1)."""
    if random() < probability(standing, policy):
        return "uniform"
    return "probation" if confirmed < policy.probation else "none"
