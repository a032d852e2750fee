"""Do two samples of times differ? Mann-Whitney's AUC with a bound, the one-sided Kolmogorov-Smirnov test, and how many
times as slow the slow ones are.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

Z_99: Final = 2.3263
"""Of a one-sided bound at 99 %."""

_RESAMPLED: Final = 2_000
_SEED: Final = 7

Times = npt.NDArray[np.float64]


class Compared(msgspec.Struct, frozen=True):
    """`auc` is the chance that a time of the first sample is shorter than one of the second, ties counting half, with
    its one-sided 99 % bounds. `ks` is the largest by which the first sample's distribution lies above the second's, and
    `p` how likely that much is if it does not.
    """

    auc: float
    lower: float
    upper: float
    ks: float
    p: float


def compare(first: Times, second: Times) -> Compared:
    """`first` (n,) against `second` (m,).

    The variance of the AUC is DeLong's (DeLong et al., Biometrics 44, 1988); the one-sided KS probability is
    exp(-2 d^2 nm/(n+m)) (Smirnov 1944, asymptotic).
    """
    n, m = len(first), len(second)
    ordered_first, ordered_second = np.sort(first), np.sort(second)
    # For each time of one sample, the share of the other that it beats.
    slower = (np.searchsorted(ordered_first, second, "left") + np.searchsorted(ordered_first, second, "right")) / 2
    faster = (np.searchsorted(ordered_second, first, "left") + np.searchsorted(ordered_second, first, "right")) / 2
    of_second, of_first = slower / n, 1 - faster / m
    auc = float(of_second.mean())
    error = float(np.sqrt(of_second.var(ddof=1) / m + of_first.var(ddof=1) / n))
    every = np.concatenate([first, second])
    above = np.searchsorted(ordered_first, every, "right") / n - np.searchsorted(ordered_second, every, "right") / m
    distance = max(0.0, float(above.max()))
    p = float(np.exp(-2 * distance**2 * n * m / (n + m)))
    return Compared(auc, auc - Z_99 * error, auc + Z_99 * error, distance, p)


class Ratio(msgspec.Struct, frozen=True):
    """One quantile over another, with its one-sided 99 % bounds."""

    ratio: float
    lower: float
    upper: float


def ratio(first: Times, second: Times, quantile: float) -> Ratio:
    """The `quantile` of `first` (n,) over that of `second` (m,); bounds by the bootstrap (percentiles of 2,000 draws;
    Efron and Tibshirani 1993, chapter 13). With few times above the quantile the bounds are too narrow.
    """
    draw = np.random.default_rng(_SEED)
    drawn = [np.quantile(draw.choice(times, (_RESAMPLED, len(times))), quantile, axis=1) for times in (first, second)]
    lower, upper = np.quantile(drawn[0] / drawn[1], (0.01, 0.99))
    return Ratio(float(np.quantile(first, quantile) / np.quantile(second, quantile)), float(lower), float(upper))
