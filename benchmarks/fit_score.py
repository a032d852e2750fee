"""Fit the score's coefficients: trees on one part of the development pairs, curve and threshold on another.

    python -m benchmarks.fit_score --data DIR [--out cache/score/data/score.json] [--qqp 34000] [--vectors FOLDER]
        [--model MODEL]

DIR holds the sets of `benchmarks.guards`. Pairs that share a question (CheckList: a template) fall into one part. Only
pairs that the guards let pass are learned from, since the score is asked about no others. The score then serves the
embedding model that it was fitted with, and no other. The threshold is chosen by learn-then-test (Angelopoulos et
al., 2021) on the calibration part: from the top down, while the risk of each set is at most its target. The rest is
reported and decides nothing. Text of the sets goes nowhere: what is written is numbers. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.stats import binom  # type: ignore[import-untyped]
from sklearn.ensemble import HistGradientBoostingClassifier  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from benchmarks.score_data import FILES, Pair, Table, VectorCache, precision_at, read_parts, tabulate
from cache.score.features import NAMES
from cache.score.fitted import FORMAT, Coefficients, FittedScore
from indexing.embedders.port import EmbeddingSettings
from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder

SEED = 7
REVISION = 2
# Pairs taken of a set (0: all), and what a pair counts that is the same, or different. QQP is large and noisy, the
# answer-equality set small and careful, CheckList has few templates. Different pairs of PAWS are made by exchanging
# words and more than half of the set, as in no traffic: with their full weight nothing like them would be served.
LIMITS = {"qqp": 34_000, "answer_equality": 0, "checklist": 6_000, "paws": 4_000}
WEIGHTS = {"qqp": (1.0, 1.0), "answer_equality": (4.0, 4.0), "checklist": (0.2, 0.2), "paws": (0.3, 0.03)}
# What the probability must not fall or rise in, whatever the pairs say.
RISING = ("similarity", "similarity_by_length")
FALLING = (
    "open_share", "open_rare_most", "open_rare_least", "open_rarest", "open_names", "stems_apart",
    "persons", "pointing", "order", "function_apart",
)  # fmt: skip
# The greatest share of wrong pairs among what is served, and of the wrong pairs that is served.
# QQP's own labels err in some 3 of 100 pairs that are all but identical, so that its share cannot be that of the rest.
AMONG_HITS, OF_DIFFERENT = {"qqp": 0.2}, {"answer_equality": 0.01, "checklist": 0.01, "paws": 0.4}
DOUBT = 0.1
# The test begins here, fixed before: above it hits are so few that a single wrong label would end it.
START = 90
# The rules and the numbers were chosen by people who saw these pairs, so that the test is too kind to them.
MARGIN = 0.04

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sets:
    """The pairs of every set with their parts."""

    tables: Mapping[str, Table]
    parts: Mapping[str, npt.NDArray[np.str_]]

    def rows(self, part: str, names: Sequence[str]) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
        """Numbers, labels and weights of what passes the guards."""
        chosen = [(name, (self.parts[name] == part) & self.tables[name].passed) for name in names]
        return (
            np.concatenate([self.tables[name].rows[mask] for name, mask in chosen]),
            np.concatenate([self.tables[name].same[mask] for name, mask in chosen]),
            np.concatenate([np.where(self.tables[name].same[mask], *WEIGHTS[name]) for name, mask in chosen]),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("cache/score/data/score.json"))
    parser.add_argument("--qqp", type=int, default=LIMITS["qqp"], help="pairs of QQP, sampled with a fixed seed")
    parser.add_argument("--vectors", type=Path, help="folder that keeps vectors for the next run")
    parser.add_argument("--model", default=EmbeddingSettings().model, help="as in the settings of the service")
    arguments = parser.parse_args()
    started = time.monotonic()
    embedder = SentenceTransformerEmbedder(EmbeddingSettings(model=arguments.model, device="cpu"))
    sets = gather(arguments.data, arguments.qqp, VectorCache(embedder, arguments.vectors))
    model = fit(sets)
    mark = embedder.fingerprint
    data = coefficients(model, sets, f"{mark.name}@{mark.revision}")
    lowest, tested = choose(FittedScore(msgspec.json.encode(data)), sets)
    serve = min(0.99, round(lowest + MARGIN, 2))
    data = msgspec.structs.replace(data, serve=serve)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_bytes(msgspec.json.encode(data) + b"\n")
    score = FittedScore(arguments.out.read_bytes())
    figures = {part: report(score, sets, part) for part in ("fit", "calibrate", "report")}
    for part, found in figures.items():
        for name, line in found.items():
            print(f"{part:10} {name:16} {line}")
    print(json.dumps({
        "revision": score.revision, "threshold": serve, "tested": tested, "report": figures["report"],
        "bytes": arguments.out.stat().st_size, "seconds": round(time.monotonic() - started),
    }))  # fmt: skip


def gather(folder: Path, qqp: int, vectors: VectorCache) -> Sets:
    pairs: dict[str, list[Pair]] = {}
    parts: dict[str, npt.NDArray[np.str_]] = {}
    for name in FILES:
        pairs[name], parts[name] = read_parts(folder, name, qqp if name == "qqp" else LIMITS[name], SEED)
    found = vectors.of([text for rows in pairs.values() for pair in rows for text in (pair.a, pair.b)])
    return Sets({name: tabulate(rows, found) for name, rows in pairs.items()}, parts)


def fit(sets: Sets) -> HistGradientBoostingClassifier:
    rows, same, weights = sets.rows("fit", list(WEIGHTS))
    bound = [1 if name in RISING else -1 if name in FALLING else 0 for name in NAMES]
    model = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=300, max_depth=4, min_samples_leaf=100, l2_regularization=5.0,
        monotonic_cst=bound, early_stopping=False, random_state=SEED,
    )  # fmt: skip
    return model.fit(rows, same, sample_weight=weights)


def coefficients(model: HistGradientBoostingClassifier, sets: Sets, embedder: str) -> Coefficients:
    """The trees as columns, and the curve through their sums on the calibration part."""
    columns: dict[str, list[Any]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots, depth = [], 1
    for (tree,) in model._predictors:
        start = len(columns["feature"])
        roots.append(start)
        for number, node in enumerate(tree.nodes):
            leaf = bool(node["is_leaf"])
            own = start + number
            columns["feature"].append(0 if leaf else int(node["feature_idx"]))
            columns["threshold"].append(0.0 if leaf else round(float(node["num_threshold"]), 6))
            columns["left"].append(own if leaf else start + int(node["left"]))
            columns["right"].append(own if leaf else start + int(node["right"]))
            columns["value"].append(round(float(node["value"]), 6) if leaf else 0.0)
            depth = max(depth, int(node["depth"]))
    rows, same, weights = sets.rows("calibrate", ("qqp", "answer_equality"))
    sums = model.decision_function(rows)
    curve = LogisticRegression(C=1e6).fit(sums[:, None], same, sample_weight=weights)
    counts = {
        f"{name}, {part}": int(((sets.parts[name] == part) & table.passed).sum())
        for name, table in sets.tables.items()
        for part in ("fit", "calibrate")
        if (sets.parts[name] == part).any()
    }
    return Coefficients(
        format=FORMAT, revision=REVISION, embedder=embedder, features=NAMES, roots=roots, depth=depth,
        baseline=float(np.ravel(model._baseline_prediction)[0]), slope=float(curve.coef_[0, 0]),
        intercept=float(curve.intercept_[0]), serve=0.5, fitted_on=counts, **columns,
    )  # fmt: skip


def choose(score: FittedScore, sets: Sets) -> tuple[float, list[dict[str, Any]]]:
    """The lowest threshold that learn-then-test lets stand, in steps of 0.01 from `START` down, and every test made.

    Fixed-sequence testing: the first threshold at which a risk cannot be told to be within its target ends it.
    """
    chosen, tests = 0.99, []
    served = {name: (table, probabilities(score, table)) for name, table in sets.tables.items()}
    for step in range(START, 49, -1):
        at = step / 100
        doubts = {}
        for name, target in (AMONG_HITS | OF_DIFFERENT).items():
            table, values = served[name]
            part = sets.parts[name] == "calibrate"
            hits = part & (values >= at)
            wrong = int((hits & ~table.same).sum())
            trials = int(hits.sum()) if name in AMONG_HITS else int((part & ~table.same).sum())
            doubts[name] = (wrong, trials, float(binom.cdf(wrong, trials, target)))
        tests.append({"threshold": at} | {name: list(found) for name, found in doubts.items()})
        if any(wrong > 0 and doubt > DOUBT for wrong, _, doubt in doubts.values()):
            break
        chosen = at
    return chosen, tests


def probabilities(score: FittedScore, table: Table) -> Floats:
    """(n,) of each pair, 0 where the guards refuse it."""
    return np.array([score.of(list(row)) if ok else 0.0 for row, ok in zip(table.rows, table.passed, strict=True)])


def report(score: FittedScore, sets: Sets, part: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, table in sets.tables.items():
        mask = sets.parts[name] == part
        if not mask.any():
            continue
        values = probabilities(score, table)[mask]
        same, hits = table.same[mask], values >= score.threshold
        kept, wrong = int((hits & same).sum()), int((hits & ~same).sum())
        found[name] = {
            "same served": f"{kept}/{int(same.sum())}",
            "different served": f"{wrong}/{int((~same).sum())}",
            "precision": round(kept / max(kept + wrong, 1), 4),
            "precision at recall 0.20": precision_at(values, same, 0.2),
        }
    return found


if __name__ == "__main__":
    main()
