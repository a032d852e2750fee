"""Which cached answers would be served to another question, and were they right: our ladder beside others.

    python -m benchmarks.cache_quality --data DIR [--pairs FILE] [--verifier FOLDER] [--baselines-python PYTHON]

DIR holds the sets of `benchmarks.guards`; FILE is JSON Lines of `a`, `b`, `same` (.gz too) and suffices alone. Pairs
are embedded by the packaged model. Sets of more than --limit pairs are sampled with --seed; --whole takes all.

`guards` serves what the text guards pass, whatever was nearly refused; `ours` is the product's default: guards and the
score at its threshold; `verified` is that and what a learned verifier adds, where its folder is given; `cacheable` is
`ours` without the questions that the first rung keeps out of the semantic cache (actions, the moment, personal data).
Every decision is the product's own code. Of the development sets the score was fitted on a part; `held out` are the
rest.

The last line is one JSON object: `ours` and `baselines` of FILE where one is given, else of the answer-equality set.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.cache_baselines import cosines, others
from benchmarks.renamed import renamed
from benchmarks.score_data import FILES, Pair, VectorCache, precision_at, read_pairs, read_parts
from cache.decision import Asked, Mode, Reach
from cache.entry import Entry
from cache.guards import RULES_REVISION, compare, read
from cache.key import CompositeIdentity, Namespace
from cache.ladder import Ladder
from cache.policy import TemplatePolicy
from cache.rungs import cacheability
from cache.rungs import guards as guards_rung
from cache.rungs import score as score_rung
from cache.rungs import verifier as verifier_rung
from cache.score import default_score
from indexing.embedders.port import EmbeddingSettings
from indexing.embedders.sentence_transformer import SentenceTransformerEmbedder
from tenancy.errors import StrongroomError

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Decided:
    """What the ladder says of n pairs; `score` is 0 where a guard refused. `reasons` name the rung that refused."""

    pairs: Sequence[Pair]
    same: Flags
    similarity: npt.NDArray[np.float64]
    score: npt.NDArray[np.float64]
    served: dict[str, Flags]
    reasons: Sequence[str]
    microseconds: float


def decide(
    pairs: Sequence[Pair], vectors: dict[str, npt.NDArray[np.float32]], ladder: Ladder, embedder: str
) -> Decided:
    alone = replace(ladder, verifier=None)
    similarity, scores, reasons = [], [], []
    served: dict[str, list[bool]] = {name: [] for name in ("guards", "ours", "cacheable", "verified")}
    spent = 0.0
    for pair in pairs:
        cosine = float(vectors[pair.a] @ vectors[pair.b])
        started = time.process_time()
        asked, cached = question(pair.a, embedder), read(pair.b)
        guarded = compare(asked.text, cached)
        scored = score_rung.check(alone, asked, cached, cosine, guarded.near) if guarded.passed else guarded
        spent += time.process_time() - started
        reach, _ = cacheability.judge(asked.text, follow_up=False, sampled=False, policy=asked.policy)
        served["guards"].append(guarded.passed)
        served["ours"].append(scored.passed)
        served["cacheable"].append(scored.passed and reach is Reach.SHARED)
        served["verified"].append(scored.passed or verified(ladder, asked, pair, cosine))
        similarity.append(cosine)
        scores.append((scored.value or 0.0) if guarded.passed else 0.0)
        reasons.append("" if scored.passed else f"{scored.name}: {scored.reason}")
    if ladder.verifier is None:
        del served["verified"]
    return Decided(
        pairs, np.array([pair.same for pair in pairs]), np.array(similarity), np.array(scores),
        {name: np.array(flags) for name, flags in served.items()}, reasons, 1e6 * spent / max(len(pairs), 1),
    )  # fmt: skip


def question(text: str, embedder: str) -> Asked:
    """As the ladder sees it; who asks plays no part here. `embedder` is the fingerprint as identities name it."""
    space, identity = cast(Namespace, None), cast(CompositeIdentity, SimpleNamespace(embedder=embedder))
    return Asked(space, b"", text, read(text), "default", Mode.DEFAULT, Reach.SHARED, "", identity, TemplatePolicy())


def verified(ladder: Ladder, asked: Asked, pair: Pair, cosine: float) -> bool:
    """Whether the ladder with its verifier serves the pair; a failure of the verifier is a miss."""
    if ladder.verifier is None:
        return False
    guarded, cached = guards_rung.check(asked.text, pair.b, verified=True)
    if not guarded.passed:
        return False
    scored = score_rung.check(ladder, asked, cached, cosine, guarded.near)
    entry = cast(Entry, SimpleNamespace(question=pair.b))
    return scored.passed and verifier_rung.check(ladder, asked, entry, scored, verifier_rung.Turns(1)).passed


def fingerprint(embedder: SentenceTransformerEmbedder) -> str:
    return msgspec.json.encode(embedder.fingerprint, order="sorted").decode()


def shares(served: Flags, same: Flags) -> dict[str, Any]:
    kept, wrong, total, others_ = int((served & same).sum()), int((served & ~same).sum()), int(same.sum()), len(same)
    return {
        "served_of_same": round(kept / max(total, 1), 4),
        "served_of_different": round(wrong / max(others_ - total, 1), 4),
        "precision": round(kept / (kept + wrong), 4) if kept + wrong else None,
        "counts": {"same": total, "same_served": kept, "different": others_ - total, "different_served": wrong},
    }


def line(name: str, found: dict[str, Any]) -> str:
    counts = found["counts"]
    return (
        f"  {name:34} same served {counts['same_served']:6}/{counts['same']:<6} {found['served_of_same']:7.2%}   "
        f"different served {counts['different_served']:5}/{counts['different']:<6} {found['served_of_different']:7.2%}"
        f"   right among hits {'-' if found['precision'] is None else format(found['precision'], '.2%')}"
    )


def measure(name: str, decided: Decided, python: Path | None) -> dict[str, Any]:
    """Print the table of one set, and return its figures."""
    print(f"{name}: {len(decided.pairs)} pairs, guards and score {decided.microseconds:.0f} microseconds a pair")
    figures: dict[str, Any] = {key: shares(flags, decided.same) for key, flags in decided.served.items()}
    figures["ours"]["precision_at_recall_0.20"] = precision_at(decided.score, decided.same, 0.2)
    baselines = {key: shares(flags, decided.same) for key, flags in cosines(decided.similarity).items()}
    for key, found in others(python, decided.similarity).items():
        baselines[key] = {"how": found["how"]} | (shares(found["served"], decided.same) if "served" in found else {})
    for key, found in (figures | baselines).items():
        print(line(key, found) if "counts" in found else f"  {key:34} {found['how']}")
    print(f"  precision of the score at recall 0.20: {figures['ours']['precision_at_recall_0.20']}")
    reasons: dict[str, dict[str, int]] = {}
    for label, wanted in (("same", True), ("different", False)):
        refused = zip(decided.reasons, decided.same, strict=True)
        reasons[label] = dict(Counter(reason for reason, same in refused if reason and same == wanted).most_common())
        print(f"  {label} refused, by reason: {dict(list(reasons[label].items())[:12])}")
    return figures | {"baselines": baselines, "refused_by_reason": reasons}


def by_group(decided: Decided, *, templates: bool, variant: str = "ours") -> dict[str, dict[str, Any]]:
    """Print `variant` for each capability, or for each of its templates."""
    keys = np.array([pair.group if templates else pair.group.split(" / ")[0] for pair in decided.pairs])
    found: dict[str, dict[str, Any]] = {}
    for key in sorted(set(keys) - {""}):
        mask = keys == key
        found[key] = shares(decided.served[variant][mask], decided.same[mask])
        print(line(f"{key[:60]}", found[key]))
    return found


def held_out(decided: Decided, reported: Flags) -> dict[str, Any]:
    """`ours` on the pairs of no part that the score was fitted or calibrated on."""
    found = shares(decided.served["ours"][reported], decided.same[reported])
    found["precision_at_recall_0.20"] = precision_at(decided.score[reported], decided.same[reported], 0.2)
    print(line("ours, held out from the fit", found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--sets", nargs="*", choices=tuple(FILES), default=list(FILES))
    parser.add_argument("--limit", type=int, default=4_000, help="pairs of a set or file, sampled")
    parser.add_argument("--whole", action="store_true", help="every pair of every set and file")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--verifier", type=Path, help="folder of benchmarks.train_verifier")
    parser.add_argument("--baselines-python", type=Path, help="interpreter that has gptcache and redisvl")
    parser.add_argument("--vectors", type=Path, help="folder that keeps vectors for the next run")
    arguments = parser.parse_args()
    if arguments.data is None and arguments.pairs is None:
        parser.error("give --data, --pairs or both")
    try:
        run(arguments)
    except StrongroomError as error:
        raise SystemExit(str(error)) from None


def run(arguments: argparse.Namespace) -> None:
    limit = 0 if arguments.whole else arguments.limit
    pairs, reported = {}, {}
    for name in arguments.sets if arguments.data else ():
        pairs[name], parts = read_parts(arguments.data, name, limit, arguments.seed)
        reported[name] = parts == "report"
    if arguments.pairs is not None:
        pairs["pairs"] = read_pairs(arguments.pairs, limit, arguments.seed)
    ladder = Ladder(score=default_score())
    if arguments.verifier is not None:
        from cache.verifier.pair import PairVerifier

        ladder = replace(ladder, verifier=PairVerifier(arguments.verifier, timeout_s=10.0))
    embedder = SentenceTransformerEmbedder(EmbeddingSettings(device="cpu"))
    vectors, mark = VectorCache(embedder, arguments.vectors), fingerprint(embedder)
    result: dict[str, Any] = {"rules": RULES_REVISION, "score": ladder.score.revision}
    result["threshold"] = ladder.score.threshold
    result["verifier"] = ladder.verifier.revision if ladder.verifier else None
    result["verifier_threshold"] = ladder.verifier.threshold if ladder.verifier else None
    result["sampled"] = {"limit": limit, "seed": arguments.seed} if limit else None
    print(f"rules {RULES_REVISION}, score {ladder.score.revision} at {ladder.score.threshold}")
    print(f"sampled: {result['sampled']}")
    sets: dict[str, Any] = {}
    for name, rows in pairs.items():
        found = vectors.of(text for pair in rows for text in (pair.a, pair.b))
        decided = decide(rows, found, ladder, mark)
        sets[name] = measure(name, decided, arguments.baselines_python)
        if name in reported:
            sets[name]["held_out"] = held_out(decided, reported[name])
        if name in ("checklist", "pairs", "answer_equality"):
            sets[name]["groups"] = by_group(decided, templates=False)
            if ladder.verifier:
                print(f"{name}, with the verifier")
                sets[name]["groups, verified"] = by_group(decided, templates=False, variant="verified")
        if name == "checklist":
            print("checklist, by template, names and adjectives replaced by others (held out: not in the fit)")
            others_ = renamed(rows, arguments.seed)
            again = decide(others_, vectors.of(text for pair in others_ for text in (pair.a, pair.b)), ladder, mark)
            sets["checklist renamed"] = {
                "groups": by_group(again, templates=True),
                "held_out": held_out(again, reported[name]),
            }
    main_set = sets["pairs" if "pairs" in sets else next(iter(sets))]
    variants = {name: main_set[name] for name in ("guards", "cacheable", "verified") if name in main_set}
    result |= {"ours": main_set["ours"], **variants, "baselines": main_set["baselines"], "sets": sets}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
