"""How large, and how small, may the true share of wrong hits be, after n labels of which k are wrong.

The beta-binomial confidence sequence: for the mixture over rates drawn from Beta(a, b),

    M_n(x) = B(k + a, n - k + b) / (B(a, b) x^k (1 - x)^(n - k))

is a non-negative martingale with mean 1 if every label is wrong with probability x, whatever was known before it. By
Ville's inequality it ever reaches 1/level with probability at most `level`; so the x with M_n(x) < 1/level hold the
true share at all n at once, with probability 1 - level. The limits may therefore be looked at after each label, and
one may stop, or go on, for whatever reason.

Sources: J. Ville, Etude critique de la notion de collectif (1939); H. Robbins, Statistical methods related to the law
of the iterated logarithm, Ann. Math. Statist. 41 (1970), for the mixture; I. Waudby-Smith and A. Ramdas, Confidence
sequences for sampling without replacement (NeurIPS 2020), for the beta-binomial ("prior-posterior-ratio") form.

The limits are about the share of labels that are wrong, all with the same share. A share that changes is the business
of `cache.certificate.drift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, lgamma, log, log1p
from typing import Final

LEVEL: Final = 0.05
"""One minus the confidence."""

_STEPS: Final = 60
"""Halvings of an interval of length 1: below the distance of two neighbouring numbers near any limit of interest."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Beta(a, b), fixed before the first label. Under the default (mean 0.5 %) 410 labels, none wrong, certify 1 %;
    under Beta(1, 1) it takes 984.
    """

    a: float = 1.0
    b: float = 199.0


PRIOR: Final = Prior()

SUSPICION: Final = Prior(1.0, 19.0)
"""The prior of the lower limit. Each limit may have its own, fixed beforehand, and holds with its own confidence: under
this one three times the target is noticed after half as many labels.
"""


def log_martingale(n: int, k: int, x: float, prior: Prior = PRIOR) -> float:
    """Logarithm of M_n(x), for 0 <= k <= n; infinite where x cannot have given these labels."""
    a, b = prior.a, prior.b
    value = lgamma(k + a) + lgamma(n - k + b) - lgamma(n + a + b) - (lgamma(a) + lgamma(b) - lgamma(a + b))
    if k:
        if x <= 0:
            return inf
        value -= k * log(x)
    if n - k:
        if x >= 1:
            return inf
        value -= (n - k) * log1p(-x)
    return value


def excludes(n: int, k: int, x: float, prior: Prior = PRIOR, level: float = LEVEL) -> bool:
    """Whether the labels rule out that the share is x."""
    return log_martingale(n, k, x, prior) >= -log(level)


def below(n: int, k: int, x: float, prior: Prior = PRIOR, level: float = LEVEL) -> bool:
    """Whether the upper limit is at most x, without finding it."""
    return n > 0 and k < x * n and excludes(n, k, x, prior, level)


def above(n: int, k: int, x: float, prior: Prior = SUSPICION, level: float = LEVEL) -> bool:
    """Whether the lower limit is greater than x, without finding it."""
    return k > x * n and excludes(n, k, x, prior, level)


def upper(n: int, k: int, prior: Prior = PRIOR, level: float = LEVEL) -> float:
    """The largest share that `k` wrong of `n` leave possible; 1 without labels. Rounded up, never down."""
    if k >= n:
        return 1.0
    inside, outside = k / n, 1.0
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        if excludes(n, k, middle, prior, level):
            outside = middle
        else:
            inside = middle
    return outside


def lower(n: int, k: int, prior: Prior = SUSPICION, level: float = LEVEL) -> float:
    """The smallest share that `k` wrong of `n` leave possible; 0 without a wrong one. Rounded down, never up."""
    if k <= 0:
        return 0.0
    outside, inside = 0.0, k / n
    for _ in range(_STEPS):
        middle = (inside + outside) / 2
        if excludes(n, k, middle, prior, level):
            outside = middle
        else:
            inside = middle
    return outside
