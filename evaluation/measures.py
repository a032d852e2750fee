"""Measures of a ranking against the documents that are expected, all in [0, 1]; each document counts once."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Iterable, Sequence


def ndcg(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """nDCG@k with gains 0 and 1 (Jarvelin and Kekalainen 2002, TOIS 20(4)). `relevant` is not empty."""
    gains = sum(1 / math.log2(place + 2) for place, name in enumerate(ranked[:k]) if name in relevant)
    return gains / sum(1 / math.log2(place + 2) for place in range(min(len(relevant), k)))


def recall(ranked: Sequence[str], relevant: Collection[str], k: int) -> float:
    """The share of `relevant` among the first `k`."""
    return len(set(ranked[:k]).intersection(relevant)) / len(relevant)


def reciprocal_rank(ranked: Sequence[str], relevant: Collection[str]) -> float:
    """One by the place of the first that is relevant; 0 where none is."""
    return next((1 / place for place, name in enumerate(ranked, 1) if name in relevant), 0.0)


def precision(cited: Sequence[str], relevant: Collection[str]) -> float:
    """The share of citations that are of a relevant document; without any, 0."""
    return sum(name in relevant for name in cited) / len(cited) if cited else 0.0


def facts_held(answer: str, facts: Collection[str]) -> float:
    """The share of `facts` that stand in `answer`, letter case, width and white space aside."""
    text = _plain(answer)
    return sum(_holds(text, _plain(fact)) for fact in facts) / len(facts)


def first_places(names: Iterable[str]) -> list[str]:
    """Documents in the order of their best passages."""
    return list(dict.fromkeys(names))


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _holds(text: str, fact: str) -> bool:
    """Whether `fact` stands in `text`, and not as a part of a longer number: "30" is not in "300"."""
    at = text.find(fact)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(fact) : at + len(fact) + 1]
        split = (before.isdigit() and fact[:1].isdigit()) or (after.isdigit() and fact[-1:].isdigit())
        if not split:
            return True
        at = text.find(fact, at + 1)
    return False
