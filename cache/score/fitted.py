"""The score as it was fitted: small trees over the numbers of `features`, then one logistic curve.

Its coefficients are data (`data/score.json`, written by `benchmarks/fit_score.py`); they hold no text. Gradient-boosted
trees after Friedman (2001), calibrated after Platt (1999); never falling in the similarity, by construction.

English only is fitted. Chinese has no labelled pairs here: it passes by rule, where the guards passed and the same
characters stand in the same order. For every other language, and for a similarity that is no cosine, it is 0: a miss.
"""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cache.guards import Language, Text
from cache.guards.thesaurus import PATH as THESAURUS
from cache.guards.thesaurus import thesaurus
from cache.guards.words import common_language
from cache.score.features import NAMES, features
from tenancy.errors import Corrupt

PATH: Final = Path(__file__).parent / "data" / "score.json"
FORMAT: Final = 1
CODE: Final = "features-2"
"""Raised by hand when the code of the features or of the rules here decides differently."""
MAX_NODES: Final = 20_000
CHINESE: Final = 0.99
"""Not fitted: same characters, same order, guards passed; what differs are particles and politeness."""
# Rounding takes the cosine of a vector with itself past 1.
_LONGEST: Final = 1.001


class Coefficients(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was fitted.

    Node n of a tree goes to `left[n]` where feature `feature[n]` is at most `threshold[n]`, else to `right[n]`; a leaf
    leads to itself. `roots` are the trees' first nodes, `depth` the most steps. The sum of the leaves' `value` and
    `baseline`, times `slope` plus `intercept`, is the logarithm of the odds. `serve` is the least probability served
    by default. `embedder` names the model whose cosines were seen; `fitted_on` counts pairs, and is for people.
    """

    format: int
    revision: int
    embedder: str
    features: tuple[str, ...]
    roots: list[int]
    depth: int
    feature: list[int]
    threshold: list[float]
    left: list[int]
    right: list[int]
    value: list[float]
    baseline: float
    slope: float
    intercept: float
    serve: float
    fitted_on: dict[str, int]


class _Revision(msgspec.Struct, frozen=True):
    """What is read of an embedding model's fingerprint."""

    revision: str


class FittedScore:
    """The port `cache.ladder.Score`. Holds arrays only; safe to use from several threads."""

    def __init__(self, raw: bytes) -> None:
        """Raises `Corrupt` where the coefficients are damaged or belong to other features."""
        self._data = data = _checked(raw)
        digest = hashlib.sha256(raw + hashlib.sha256(THESAURUS.read_bytes()).digest() + CODE.encode())
        self.revision: Final = f"score-{data.revision}-{digest.hexdigest()[:12]}"
        self.threshold: Final = data.serve
        self._roots = np.array(data.roots, dtype=np.intp)
        self._feature = np.array(data.feature, dtype=np.intp)
        self._cut = np.array(data.threshold)
        self._next = np.array([data.right, data.left], dtype=np.intp)
        self._value = np.array(data.value)

    @property
    def embedder(self) -> str:
        """The model whose cosines were seen while fitting: name and revision."""
        return self._data.embedder

    def fits(self, embedder: str) -> bool:
        """Whether the fingerprint names the model of `embedder`, by the digest of its files; its name may differ."""
        try:
            revision = msgspec.json.decode(embedder, type=_Revision).revision
        except (msgspec.MsgspecError, UnicodeError):
            return False
        return revision == self._data.embedder.rpartition("@")[2]

    def probability(self, question: Text, cached: Text, similarity: float, near_misses: tuple[str, ...]) -> float:
        """Between 0 and 1; 0 where there is nothing to go by."""
        if not (math.isfinite(similarity) and abs(similarity) <= _LONGEST):
            return 0.0
        language = common_language(question, cached)
        if language is Language.CHINESE:
            return CHINESE if question.content == cached.content else 0.0
        if language is not Language.ENGLISH:
            return 0.0
        return self.of(features(question, cached, similarity, near_misses, thesaurus()))

    def of(self, row: list[float]) -> float:
        """The probability for the numbers of one pair, in the order of `features.NAMES`."""
        values = np.array(row)
        nodes = self._roots
        for _ in range(self._data.depth):
            left = (values[self._feature[nodes]] <= self._cut[nodes]).astype(np.intp)
            nodes = self._next[left, nodes]
        odds = self._data.slope * (self._data.baseline + float(self._value[nodes].sum())) + self._data.intercept
        return 1.0 / (1.0 + math.exp(-odds)) if math.isfinite(odds) and odds > -700 else 0.0


@cache
def default_score() -> FittedScore:
    """The score that the product is shipped with, read once a process."""
    return FittedScore(PATH.read_bytes())


def _checked(raw: bytes) -> Coefficients:
    remedy = "install the package again, or fit with `python -m benchmarks.fit_score`"
    try:
        data = msgspec.json.decode(raw, type=Coefficients)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"the coefficients of the score do not parse: {error}", item=PATH.name, remedy=remedy) from None
    count = len(data.feature)
    columns = (data.threshold, data.left, data.right, data.value)
    numbers = (data.baseline, data.slope, data.intercept, data.serve, *data.value)
    if data.format != FORMAT or data.features != NAMES:
        reason = "they belong to other features than this program's"
    elif not 0 < count <= MAX_NODES or any(len(column) != count for column in columns):
        reason = "their columns are not of one length"
    elif not all(0 <= node < count for column in (data.roots, data.left, data.right) for node in column):
        reason = "a node does not exist"
    elif not all(0 <= number < len(NAMES) for number in data.feature) or not 0 < data.depth <= 20:
        reason = "a feature does not exist, or the trees are too deep"
    elif not all(map(math.isfinite, numbers)) or data.slope <= 0 or not 0 < data.serve <= 1:
        reason = "a number is not finite, the curve falls, or the threshold is no probability"
    else:
        return data
    raise Corrupt(f"the coefficients of the score cannot be used: {reason}", item=PATH.name, remedy=remedy)
