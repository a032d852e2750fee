"""Whether a tenant gets worse by a change: two runs of one set, paired by question.

Of each question the difference of two scores in [0, 1] is taken. Three findings are possible, and the middle one is no
polite word for the first:

    worse        an exact or sampled sign-flip test (Fisher 1935) of the mean difference, one-sided, at 5 %
    not worse    the lower 95 % limit of the mean difference, by a paired bootstrap (Efron 1979), is above -margin
    cannot tell  neither: the set is too small, or too mixed, to say

A bootstrap knows only what it has seen: of 20 questions without any difference it would be sure. So one imagined
question that lost everything is added before the limit is taken, as in Laplace's rule of succession: with no
difference at all, some 60 questions are needed for a margin of 0.05, which is what the rule of three says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tenancy.errors import InvalidInput

MARGIN: Final = 0.05
"""How much of the mean score may be lost, where the caller names no margin."""

LEVEL: Final = 0.05
LEAST_PAIRS: Final = 5
"""Fewer cannot reach 5 %: of four questions that all lost, a fair coin says so in one of 16 cases."""

_SAMPLES: Final = 10_000
_EXACT: Final = 12

Verdict = Literal["worse", "not worse", "cannot tell"]
Differences = npt.NDArray[np.float64]


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """`before` and `after` are mean scores over the `pairs` questions of both runs, `lower` and `upper` the limits of
    the difference (95 % each, one-sided). `lost` and `gained` count questions. `p` is the chance of such a loss, or
    more, where nothing changed.
    """

    verdict: Verdict
    pairs: int
    before: float
    after: float
    difference: float
    lower: float
    upper: float
    p: float
    lost: int
    gained: int
    margin: float


def compare(before: Mapping[bytes, float], after: Mapping[bytes, float], margin: float = MARGIN) -> Gate:
    """Compare the scores of two runs by question. The same scores give the same verdict. Raises `InvalidInput`."""
    if not 0 < margin <= 1:
        raise InvalidInput("a margin is above 0 and at most 1", item="margin")
    shared = sorted(before.keys() & after.keys())
    if not shared:
        raise InvalidInput("the runs have no question in common", item="set", remedy="run the same set twice")
    old = np.array([before[key] for key in shared], dtype=np.float64)
    new = np.array([after[key] for key in shared], dtype=np.float64)
    differences = new - old
    dice = np.random.default_rng(_seed(differences))
    lower, upper = _limits(differences, dice)
    p = _p_of_a_loss(differences, dice)
    mean = float(differences.mean())
    verdict: Verdict = "cannot tell"
    if len(shared) >= LEAST_PAIRS and mean < 0 and p <= LEVEL:
        verdict = "worse"
    elif lower > -margin:
        verdict = "not worse"
    return Gate(
        verdict=verdict,
        pairs=len(shared),
        before=round(float(old.mean()), 6),
        after=round(float(new.mean()), 6),
        difference=round(mean, 6),
        lower=round(lower, 6),
        upper=round(upper, 6),
        p=round(p, 6),
        lost=int((differences < 0).sum()),
        gained=int((differences > 0).sum()),
        margin=margin,
    )


def _limits(differences: Differences, dice: np.random.Generator) -> tuple[float, float]:
    """The 95 % limits of the mean difference, each with an imagined question that lost, or gained, everything."""
    lower = np.quantile(_means(np.append(differences, -1.0), dice), LEVEL)
    upper = np.quantile(_means(np.append(differences, 1.0), dice), 1 - LEVEL)
    return float(lower), float(upper)


def _means(values: Differences, dice: np.random.Generator) -> Differences:
    """Means of `_SAMPLES` resamples, in portions of bounded memory."""
    count = len(values)
    portion = max(1, 2_000_000 // count)
    means = [
        values[dice.integers(0, count, (min(portion, _SAMPLES - begun), count))].mean(axis=1)
        for begun in range(0, _SAMPLES, portion)
    ]
    return np.concatenate(means)


def _p_of_a_loss(differences: Differences, dice: np.random.Generator) -> float:
    """The share of all sign flips whose sum is at most the observed one: each question's difference may be of either
    sign where nothing changed. Exact for few differences, sampled (with the observed one counted) for many.
    """
    moved = np.abs(differences[differences != 0])
    observed = float(differences.sum()) + 1e-9
    if not len(moved):
        return 1.0
    if len(moved) <= _EXACT:
        signs = 1 - 2 * ((np.arange(1 << len(moved))[:, None] >> np.arange(len(moved))) & 1)
        return float((signs @ moved <= observed).mean())
    hits, portion = 0, max(1, 2_000_000 // len(moved))
    for begun in range(0, _SAMPLES, portion):
        rows = min(portion, _SAMPLES - begun)
        signs = 1 - 2 * dice.integers(0, 2, (rows, len(moved)))
        hits += int((signs @ moved <= observed).sum())
    return (hits + 1) / (_SAMPLES + 1)


def _seed(differences: Sequence[float] | Differences) -> int:
    data = np.asarray(differences, dtype="<f8").tobytes()
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
