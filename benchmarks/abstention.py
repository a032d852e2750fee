"""Abstention: how many answerable questions are answered and how many unanswerable ones refused, by threshold.

    python -m benchmarks.abstention --data DIR --cache FOLDER

Each XQuAD question is asked twice: against all passages, and against all but those of its own article, where nothing
answers it although much is near. `fit` prints a fresh logistic fit on the even questions; everything else is measured
on the odd ones with the weights of `retrieval/abstain.py`. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.retrieval_sets import RetrievalSet, StoredVectors, read_set
from generation.extractive import choose
from generation.prompt import PromptSource
from indexing.embed import DEFAULT_MODEL, EmbeddingSettings, load_embedder
from indexing.terms import tokenize
from retrieval.abstain import THRESHOLD, weigh
from retrieval.fusion import dense_weight_for, fuse
from retrieval.passage import Passage

SETS = ("xquad-en", "xquad-de", "xquad-zh")
ARTICLE = 5  # XQuAD holds the first five paragraphs of each of its 48 articles, in order
TOP = 5
COVERED = 0.5  # the service hands on no similarity below this coverage of the question's language
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Asked:
    """One question against one set of passages."""

    even: bool
    answerable: bool
    strength: float
    cover: float
    similarity: float | None
    answered: bool


class Bm25:
    """BM25 over whole passages, by the product's terms."""

    def __init__(self, texts: list[str]) -> None:
        self._counts = [Counter(tokenize(text)) for text in texts]
        self._lengths = np.array([max(1, sum(counts.values())) for counts in self._counts], dtype=float)
        self._frequency = Counter(term for counts in self._counts for term in counts)

    def scores(self, question: str) -> Scores:
        total = np.zeros(len(self._counts))
        norm = 1.2 * (0.25 + 0.75 * self._lengths / self._lengths.mean())
        for term in set(tokenize(question)):
            seen = self._frequency[term]
            weight = math.log(1 + (len(self._counts) - seen + 0.5) / (seen + 0.5))
            count = np.array([counts[term] for counts in self._counts], dtype=float)
            total += weight * count * 2.2 / (count + norm)
        return total


def ask_all(data: RetrievalSet, vectors: StoredVectors) -> list[Asked]:
    ids, texts = list(data.documents), list(data.documents.values())
    passages, bm25 = vectors.encode(texts), Bm25(texts)
    article = np.arange(len(ids)) // ARTICLE
    asked: list[Asked] = []
    for number, (key, question) in enumerate(data.questions.items()):
        own = ids.index(next(iter(data.relevant[key])))
        cosine, lexical = passages @ vectors.encode_query(question), bm25.scores(question)
        covers = vectors.covers(question)
        for answerable in (True, False):
            rows = np.flatnonzero((article != article[own]) | answerable)
            near, worded = ([(int(row), float(leg[row])) for row in rows] for leg in (cosine, lexical))
            best = [row for row, _ in fuse(near, worded, dense_weight_for(covers))[:TOP]]
            found = [_passage(ids[row], row, texts[row]) for row in best]
            similarity = float(cosine[best].max()) if covers >= COVERED else None
            evidence = weigh(question, found, similarity=similarity, model=vectors.fingerprint.name)
            sources = [PromptSource(f"S{rank}", item.document, "", item.text) for rank, item in enumerate(found, 1)]
            answered = bool(choose(question, sources))
            asked.append(Asked(number % 2 == 0, answerable, evidence.strength, evidence.cover, similarity, answered))
    return asked


def _passage(name: str, row: int, text: str) -> Passage:
    return Passage(name, row, "", "v", "c0", row, 0, len(text), text, 0.0)


def trade_off(asked: list[Asked]) -> dict[str, dict[str, float]]:
    """For each threshold: the share of answerable questions answered, and of unanswerable ones refused."""
    odd = [one for one in asked if not one.even]
    right = np.array([one.strength for one in odd if one.answerable])
    wrong = np.array([one.strength for one in odd if not one.answerable])
    table = {
        f"{limit:g}": {"answered": float((right >= limit).mean()), "refused": float((wrong < limit).mean())}
        for limit in THRESHOLDS
    }
    extractive = {
        "answered": float(np.mean([one.answered for one in odd if one.answerable])),
        "refused": float(np.mean([not one.answered for one in odd if not one.answerable])),
    }
    area = float((right[:, None] > wrong).mean() + 0.5 * (right[:, None] == wrong).mean())
    return {**table, "extractive alone": extractive, "area under the curve": {"value": area}}


def fit(asked: list[Asked]) -> list[float]:
    """Weights of similarity (if any), cover and bias, by Newton's method on the even questions."""
    even = [one for one in asked if one.even]
    columns = [[one.similarity, one.cover, 1.0] if one.similarity is not None else [one.cover, 1.0] for one in even]
    width = Counter(map(len, columns)).most_common(1)[0][0]
    x = np.array([row for row in columns if len(row) == width], dtype=float)
    y = np.array([one.answerable for one, row in zip(even, columns, strict=True) if len(row) == width], dtype=float)
    weights = np.zeros(width)
    for _ in range(60):
        p = 1 / (1 + np.exp(-x @ weights))
        curvature = (x * (p * (1 - p))[:, None]).T @ x + 1e-2 * np.eye(width)
        weights += np.linalg.solve(curvature, x.T @ (y - p) - 1e-2 * weights)
    return [round(float(weight), 2) for weight in weights]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "strongroom-vectors")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--model", default=DEFAULT_MODEL)
    arguments = parser.parse_args()

    vectors = StoredVectors(load_embedder(EmbeddingSettings(model=arguments.model)), arguments.cache)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name in arguments.sets:
        asked = ask_all(read_set(arguments.data, name), vectors)
        results[name] = trade_off(asked)
        print(f"{name}: fit on the even questions {fit(asked)}; the default threshold is {THRESHOLD:g}")
        for threshold, shares in results[name].items():
            cells = "  ".join(f"{label} {share:.3f}" for label, share in shares.items())
            print(f"  {threshold:>20}  {cells}", flush=True)
    print(json.dumps({"model": vectors.fingerprint.name, "sets": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
