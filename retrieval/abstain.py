"""Whether the passages that were found can answer the question, or "not in the documents that you may read".

Strength is a logistic model of two measures: `cover`, the weighted share of the question's words in the best passage,
and `similarity`, the highest cosine of the question to a passage by an embedding model for which the model was
fitted. Where the embedding model does not know the question's language, or was not fitted, cover decides alone.
Fitted on the even questions of XQuAD and measured on the odd ones: `benchmarks/abstention.py`. Cover weighs half of
what that fit gives it: XQuAD asks in the words of its passages, which people who have not read them do not
(docs/operations/retrieval.md). Where the settings name a model that judges, it decides instead (`judged`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import regex

from generation.evidence import cover
from retrieval.passage import Passage

THRESHOLD = 0.15

_PASSAGES = 5
_NEAREST = 3
_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")


@dataclass(frozen=True, slots=True)
class _Weights:
    similarity: float
    cover: float
    bias: float


_BY_MODEL = {"all-MiniLM-L6-v2": _Weights(18.2, 4.0, -10.1)}
_COVER_ALONE = _Weights(0.0, 13.0, -5.0)
_COVER_ALONE_UNSPACED = _Weights(0.0, 20.1, -5.2)

_SENTENCE = {
    "en": "This is not in the documents that you may read.",
    "zh": "您可查阅的文档中没有相关内容。",
}
_NEAREST_TITLES = {"en": " The nearest are: {}.", "zh": "最接近的文档：{}。"}
_SEPARATOR = {"en": "; ", "zh": "；"}


@dataclass(frozen=True, slots=True)
class Evidence:
    """`strength` in [0, 1] estimates the chance that the passages hold the answer.

    `nearest` are the titles of the nearest documents, at most three, all of them readable by the caller.
    """

    strength: float
    cover: float
    similarity: float | None
    sufficient: bool
    nearest: tuple[str, ...]


def weigh(
    question: str,
    passages: Sequence[Passage],
    *,
    similarity: float | None = None,
    model: str | None = None,
    threshold: float = THRESHOLD,
) -> Evidence:
    """Weigh the best passages of a search.

    `similarity` is the highest cosine of the question to any passage found; give `None` where the embedding model
    `model` (its fingerprint's name) does not cover the question's language. No passage is no evidence.
    """
    nearest = tuple(dict.fromkeys(passage.title or passage.document for passage in passages))[:_NEAREST]
    if not passages:
        return Evidence(0.0, 0.0, similarity, False, nearest)
    best = passages[:_PASSAGES]
    covered = cover(question, [passage.text for passage in best], [passage.title for passage in best])
    fitted = next((weights for name, weights in _BY_MODEL.items() if model and model.endswith(name)), None)
    if similarity is not None and fitted is not None:
        weights, cosine = fitted, similarity
    else:
        weights, cosine = (_COVER_ALONE_UNSPACED if _UNSPACED.search(question) else _COVER_ALONE), 0.0
    strength = 1 / (1 + math.exp(-(weights.similarity * cosine + weights.cover * covered + weights.bias)))
    return Evidence(strength, covered, similarity, strength >= threshold, nearest)


def judged(evidence: Evidence, scores: Sequence[float], threshold: float) -> Evidence:
    """`evidence` as a model tells it that read the passages: `scores` in [0, 1], how well each answers the question."""
    strength = max(scores, default=0.0)
    return replace(evidence, strength=strength, sufficient=strength >= threshold)


def not_found(question: str, evidence: Evidence) -> str:
    """What the asker reads instead of an answer."""
    language = "zh" if regex.search(r"\p{Han}", question) else "en"
    text = _SENTENCE[language]
    if evidence.nearest:
        titles = _SEPARATOR[language].join(evidence.nearest)
        text += _NEAREST_TITLES[language].format(titles)
    return text
