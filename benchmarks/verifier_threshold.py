"""Choose from which probability on a trained verifier serves what the score alone would not, and write it down.

    python -m benchmarks.verifier_threshold --data DIR --verifier FOLDER [--vectors FOLDER]

`benchmarks.train_verifier` does this by itself; do it again when the score or the guards have changed. DIR holds the
sets of `benchmarks.guards`: of QQP and CheckList the calibration parts are taken, which no training sees, without
questions that the score was fitted on, and of answer equality every pair. What counts is what the ladder as a whole
serves. The manifest of FOLDER gets the threshold, and so another revision. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from scipy.stats import binom  # type: ignore[import-untyped]

from benchmarks import score_data
from benchmarks.cache_quality import fingerprint, question
from benchmarks.score_data import VectorCache
from benchmarks.verifier_data import FILES, read_pairs, sample, split, split_tests
from benchmarks.verifier_pairs import Pair
from cache.ladder import Ladder
from cache.rungs import guards as guards_rung
from cache.rungs import score as score_rung
from cache.score import default_score
from cache.verifier.artefact import read_artefact, write_manifest
from cache.verifier.pair import PairVerifier
from indexing.embedders.port import EmbeddingSettings
from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder
from tenancy.errors import InvalidInput

SEED: Final = 7
STEPS: Final = tuple(step / 100 for step in range(95, 15, -5))
UNCHOSEN: Final = 0.7
"""Where there are no pairs to choose on."""
# The greatest share of the different that is served, as counted: the sets are too small for a test at one in a hundred.
OF_DIFFERENT: Final = {"answer_equality": 0.01, "checklist": 0.01}
# The greatest share of the different among what is served, tested. QQP's labels are loose: many of its "different" a
# person would serve, too.
AMONG_HITS: Final = {"qqp": 1 / 3}
DOUBT: Final = 0.1
# The rules and the targets were chosen by people who saw these pairs, so that the test is too kind to them.
MARGIN: Final = 0.05
QQP_PAIRS: Final = 3_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--verifier", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, help="folder that keeps vectors for the next run")
    arguments = parser.parse_args()
    chosen, tests = choose(arguments.data, arguments.verifier, arguments.vectors)
    manifest = read_artefact(arguments.verifier).manifest
    evaluation = manifest.evaluation | {"threshold": tests}
    write_manifest(arguments.verifier, msgspec.structs.replace(manifest, threshold=chosen, evaluation=evaluation))
    for test in tests:
        print(test)
    print(json.dumps({"threshold": chosen, "score": default_score().revision, "tests": tests}))


def choose(data: Path, folder: Path, vectors: Path | None = None) -> tuple[float, list[dict[str, Any]]]:
    """The lowest threshold that stands, from the top down, and the margin; and every one that was looked at.

    Fixed-sequence testing (learn then test, Angelopoulos et al. 2021): the first one that fails ends it.
    """
    found = values(pairs(data), folder, vectors)
    if not any(found.values()):
        return UNCHOSEN, []
    chosen, tests = STEPS[0], []
    for at in STEPS:
        counts = {name: served(rows, at) for name, rows in found.items()}
        tests.append({"threshold": at} | {name: list(count) for name, count in counts.items()})
        if not all(stands(name, *count) for name, count in counts.items()):
            break
        chosen = at
    return round(min(STEPS[0], chosen + MARGIN), 2), tests


def stands(name: str, kept: int, same: int, wrong: int, different: int) -> bool:  # noqa: ARG001 - as `served` counts
    """Whether so many `wrong` served of the `different`, beside `kept` of the `same`, is within the set's target."""
    if name in OF_DIFFERENT:
        return wrong <= OF_DIFFERENT[name] * different
    return bool(wrong == 0 or binom.cdf(wrong, kept + wrong, AMONG_HITS[name]) <= DOUBT)


def served(rows: Iterable[tuple[bool, float]], at: float) -> tuple[int, int, int, int]:
    """Served and all of the same, served and all of the different."""
    same, different = ([value >= at for label, value in rows if label is wanted] for wanted in (True, False))
    return sum(same), len(same), sum(different), len(different)


def pairs(data: Path) -> dict[str, list[Pair]]:
    """Pairs to choose on, of the sets that are there."""
    there = {name: data / file for name, file in FILES.items() if (data / file).is_file()}
    found: dict[str, list[Pair]] = {}
    if "answer_equality" in there:
        found["answer_equality"] = read_pairs(there["answer_equality"], "answer_equality")
    if "checklist" in there:
        found["checklist"] = split_tests(read_pairs(there["checklist"], "checklist")).calibration
    if "qqp" in there:
        fitted = fitted_on(there["qqp"])
        unseen = [
            pair for pair in split(read_pairs(there["qqp"], "qqp")).calibration if fitted.isdisjoint((pair.a, pair.b))
        ]
        found["qqp"] = sample(Random(SEED), unseen, QQP_PAIRS)
    return found


def fitted_on(path: Path) -> set[str]:
    """The questions of QQP that `benchmarks.fit_score` may fit on."""
    rows = score_data.read_pairs(path)
    parts = score_data.split(rows, by_group=False, salt="qqp")
    return {text for pair, part in zip(rows, parts, strict=True) if part == "fit" for text in (pair.a, pair.b)}


def values(sets: dict[str, list[Pair]], folder: Path, keep: Path | None) -> dict[str, list[tuple[bool, float]]]:
    """Of each pair its label and the threshold up to which the ladder serves it: 1 where the verifier is not asked."""
    if not any(sets.values()):
        return {}
    embedder = SentenceTransformerEmbedder(EmbeddingSettings(device="cpu"))
    vectors, mark = VectorCache(embedder, keep), fingerprint(embedder)
    verifier = PairVerifier(folder, timeout_s=60.0)
    ladder = Ladder(score=default_score(), verifier=verifier)
    try:
        return {name: _values(rows, vectors, mark, ladder, verifier) for name, rows in sets.items()}
    finally:
        verifier.close()


def _values(
    rows: Sequence[Pair], vectors: VectorCache, mark: str, ladder: Ladder, verifier: PairVerifier
) -> list[tuple[bool, float]]:
    known = vectors.of(text for pair in rows for text in (pair.a, pair.b))
    found: list[tuple[bool, float]] = []
    for pair in rows:
        asked = question(pair.a, mark)
        guarded, cached = guards_rung.check(asked.text, pair.b, verified=True)
        cosine = float(known[pair.a] @ known[pair.b])
        scored = score_rung.check(ladder, asked, cached, cosine, guarded.near) if guarded.passed else guarded
        if scored.passed and score_rung.UNSURE in scored.near:
            found.append((pair.same, _probability(verifier, pair)))
        else:
            found.append((pair.same, float(scored.passed)))
    return found


def _probability(verifier: PairVerifier, pair: Pair) -> float:
    try:
        return verifier.probability(pair.a, pair.b)
    except InvalidInput:
        return 0.0


if __name__ == "__main__":
    main()
