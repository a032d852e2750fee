"""What it costs in answers found that passages of different reader classes never stand in one prompt.

    python -m benchmarks.mixing --data DIR --cache FOLDER

Every question of a public set is searched over all of its documents, as if its asker might read them all; their access
lists are then drawn in several ways. `allow` is the share of questions with a relevant document among the passages
found; a rule that chooses one class keeps a part of that. `product` is the rule of `retrieval.sources`; `mixed` the
share of questions whose passages are of several classes, `passages` and `evidence` what the product's rule
puts into the prompt, as a share of all passages and of the relevant ones that `allow` puts there; it also takes what
was found behind them. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.abstention import ARTICLE, COVERED, Bm25
from benchmarks.retrieval_sets import RetrievalSet, StoredVectors, read_set
from generation.evidence import cover
from indexing.embed import DEFAULT_MODEL, EmbeddingSettings, load_embedder
from retrieval.abstain import weigh
from retrieval.fusion import dense_weight_for, fuse
from retrieval.passage import Passage

SETS = ("xquad-en", "xquad-zh", "xquad-de", "cranfield")
TOP, WIDER = 8, 24  # as the service searches with its default top_k


@dataclass(frozen=True)
class Found:
    """One question with its passages, best first and more than are used, and the relevant documents' ids."""

    question: str
    passages: list[Passage]
    relevant: frozenset[int]
    similarity: float | None
    model: str


Rule = Callable[[Found, Sequence[Sequence[Passage]]], Sequence[Passage]]


def best(_: Found, groups: Sequence[Sequence[Passage]]) -> Sequence[Passage]:
    """The class of the best passage."""
    return groups[0]


def total(_: Found, groups: Sequence[Sequence[Passage]]) -> Sequence[Passage]:
    """The class whose passages have the highest scores in all."""
    return max(groups, key=lambda group: sum(passage.score for passage in group))


def covering(found: Found, groups: Sequence[Sequence[Passage]]) -> Sequence[Passage]:
    """The class whose passages cover the question's words best, the best passage's between equals."""
    return max(groups, key=lambda group: cover(found.question, [one.text for one in group[:5]], [""] * len(group[:5])))


def product(found: Found, groups: Sequence[Sequence[Passage]]) -> Sequence[Passage]:
    """The first class, by its best passage, whose evidence is sufficient alone."""
    for group in groups:
        if weigh(found.question, group, similarity=found.similarity, model=found.model).sufficient:
            return group
    return groups[0]


RULES: dict[str, Rule] = {"best": best, "total": total, "cover": covering}


def search_all(data: RetrievalSet, vectors: StoredVectors) -> list[Found]:
    ids, texts = list(data.documents), list(data.documents.values())
    passages, bm25 = vectors.encode(texts), Bm25(texts)
    number = {name: row for row, name in enumerate(ids)}
    found = []
    for key, question in data.questions.items():
        cosine, lexical = passages @ vectors.encode_query(question), bm25.scores(question)
        covers = vectors.covers(question)
        near, worded = ([(int(row), float(leg[row])) for row in np.argsort(-leg)[:100]] for leg in (cosine, lexical))
        ranked = fuse(near, worded, dense_weight_for(covers))[:WIDER]
        held = [
            Passage(ids[row], row, "", "v", "c0", row, 0, len(texts[row]), texts[row], score) for row, score in ranked
        ]
        similarity = float(cosine[[row for row, _ in ranked[:TOP]]].max()) if covers >= COVERED else None
        relevant = frozenset(number[name] for name in data.relevant[key])
        found.append(Found(question, held, relevant, similarity, vectors.fingerprint.name))
    return found


def classes_of(data: RetrievalSet) -> dict[str, dict[int, int]]:
    """Access lists in several ways, as a class number by document."""
    rows, dice = range(len(data.documents)), random.Random(7)
    ways = {f"{count} classes": {row: dice.randrange(count) for row in rows} for count in (2, 5, 20)}
    # Nine of ten documents are everybody's, as in many companies; the rest belong to five groups.
    ways["90 % public"] = {row: 0 if dice.random() < 0.9 else 1 + dice.randrange(5) for row in rows}
    ways["by folder"] = {row: row // ARTICLE for row in rows}
    ways["each its own"] = {row: row for row in rows}
    return ways


def grouped(passages: Sequence[Passage], classes: Mapping[int, int]) -> list[list[Passage]]:
    groups: dict[int, list[Passage]] = {}
    for passage in passages:
        groups.setdefault(classes[passage.document_id], []).append(passage)
    return list(groups.values())


def kept(found: Sequence[Found], classes: Mapping[int, int]) -> dict[str, float]:
    """By rule, the share of questions with a relevant document in the chosen class; the others as above."""
    shares = dict.fromkeys(["mixed", "product", *RULES], 0.0)
    held, of, evidence, relevant = 0, 0, 0, 0
    for one in found:
        groups = grouped(one.passages[:TOP], classes)
        wider = grouped(one.passages, classes)
        shares["mixed"] += (len(groups) > 1) / len(found)
        stays = product(one, wider)[:TOP] if len(groups) > 1 else one.passages[:TOP]
        shares["product"] += any(passage.document_id in one.relevant for passage in stays) / len(found)
        for label, rule in RULES.items():
            chosen = rule(one, groups) if groups else ()
            shares[label] += any(passage.document_id in one.relevant for passage in chosen) / len(found)
        held, of = held + len(stays), of + len(one.passages[:TOP])
        evidence += sum(passage.document_id in one.relevant for passage in stays)
        relevant += sum(passage.document_id in one.relevant for passage in one.passages[:TOP])
    return {**shares, "passages": held / max(of, 1), "evidence": evidence / max(relevant, 1)}


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
        data = read_set(arguments.data, name)
        found = search_all(data, vectors)
        allow = sum(any(p.document_id in one.relevant for p in one.passages[:TOP]) for one in found) / len(found)
        print(f"{name}: {len(found)} questions, {len(data.documents)} documents, allow {allow:.3f}")
        results[name] = {"allow": {"share": allow, "questions": len(found)}}
        for way, classes in classes_of(data).items():
            results[name][way] = kept(found, classes)
            cells = "  ".join(f"{label} {share:.3f}" for label, share in results[name][way].items())
            print(f"  {way:>14}  {cells}", flush=True)
    print(json.dumps({"model": vectors.fingerprint.name, "sets": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
