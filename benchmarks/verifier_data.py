"""Which pairs train the verifier, which calibrate it, and which it never sees.

Pairs that share a question stand in the same part (connected components), so that no question of a held-out pair was
trained on. `answer_equality` is for evaluation alone: a made question that equals one of its questions is dropped.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random

import regex

from benchmarks.verifier_pairs import Pair, crossed, swaps, templates
from cache.guards import compare, contrast, read

FILES = {
    "qqp": "qqp_dev.jsonl.gz",
    "checklist": "checklist_qqp_dev.jsonl.gz",
    "paws": "paws_dev.jsonl.gz",
    "answer_equality": "answer_equality_dev.jsonl",
}
LICENCES = {
    "qqp": "text under Quora's terms: measure, do not ship; do not pass on weights that were trained with it",
    "checklist": "MIT (marcotcr/checklist)",
    "paws": "free use with credit (PAWS-Wiki, Google)",
    "generated": "Apache-2.0, made by this program; its swaps also from the questions of the other sets",
}
HELD_OUT_TESTS = frozenset(
    (
        "A or B is not the same as C and D",
        "same adjectives, different people v3",
        "What are things a {noun} should worry about != should not worry about.",
        "Order does not matter for symmetric relations",
        "traditional SRL: active / passive swap with people",
        "traditional SRL: wrong active / passive swap with people",
        "Is person X != Is person becoming X",
        "Different animals",
        "Irrelevant modifiers - animals",
        "Simple coref: his and her",
        "How can I become more X = How can I become less antonym(X)",
    )
)


@dataclass(frozen=True, slots=True)
class Budget:
    """Most pairs of each origin that are trained on."""

    qqp: int = 30_000
    checklist: int = 4_000
    paws: int = 5_000
    templates: int = 26_000
    swaps: int = 9_000
    crossed: int = 12_000


@dataclass(frozen=True, slots=True)
class Parts:
    train: list[Pair]
    calibration: list[Pair]
    held_out: list[Pair]


def read_pairs(path: Path, kind: str) -> list[Pair]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [json.loads(line) for line in raw.decode().split("\n") if line]
    return [Pair(row["a"], row["b"], bool(row.get("same", row.get("same_answer"))), _kind(kind, row)) for row in rows]


def _kind(kind: str, row: dict[str, str]) -> str:
    return f"{kind}: {row['capability']}: {row['test']}" if kind == "checklist" else kind


def split(pairs: Sequence[Pair]) -> Parts:
    """90 of 100 components train, 4 calibrate, 6 are held out."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        parent.setdefault(text, text)
        while parent[text] != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    for pair in pairs:
        one, other = root(plain(pair.a)), root(plain(pair.b))
        parent[max(one, other)] = min(one, other)
    parts = Parts([], [], [])
    for pair in pairs:
        bucket = int(sha256(root(plain(pair.a)).encode()).hexdigest(), 16) % 100
        (parts.held_out if bucket < 6 else parts.calibration if bucket < 10 else parts.train).append(pair)
    return parts


def split_tests(pairs: Iterable[Pair]) -> Parts:
    """CheckList by test, since the pairs of one test differ in names and adjectives only; a tenth calibrates."""
    parts = Parts([], [], [])
    for number, pair in enumerate(pairs):
        name = pair.kind.split(": ", 2)[2]
        if name in HELD_OUT_TESTS:
            parts.held_out.append(pair)
        else:
            (parts.calibration if number % 40 == 0 else parts.train).append(pair)
    return parts


def prepare(data: Path, sets: Sequence[str], budget: Budget, seed: int) -> Parts:
    """All parts, from the sets that are named; `generated` alone needs no file."""
    random = Random(seed)
    found = Parts([], [], [])
    asked: dict[str, list[Pair]] = {"train": [], "calibration": []}
    for name in ("qqp", "checklist", "paws"):
        if name not in sets:
            continue
        pairs = read_pairs(data / FILES[name], name)
        parts = split_tests(pairs) if name == "checklist" else split(pairs)
        found.train.extend(trusted(sample(random, parts.train, getattr(budget, name))))
        found.calibration.extend(sample(random, parts.calibration, 1_000 if name == "qqp" else 250))
        found.held_out.extend(parts.held_out)
        if name == "qqp":
            asked["train"] = parts.train
            asked["calibration"] = parts.calibration
    if "generated" in sets:
        forbidden = _questions(data / FILES["answer_equality"])
        found.train.extend(clean(templates(random, budget.templates), forbidden))
        found.calibration.extend(clean(templates(random, 400), forbidden))
        for part, wanted in (("train", (budget.swaps, budget.crossed)), ("calibration", (400, 400))):
            into: list[Pair] = getattr(found, part)
            into.extend(clean(swaps(random, sorted({pair.a for pair in asked[part]}), wanted[0]), forbidden))
            into.extend(clean(crossed(random, asked[part], wanted[1]), forbidden))
    return found


def sample(random: Random, pairs: list[Pair], count: int) -> list[Pair]:
    return random.sample(pairs, count) if len(pairs) > count else list(pairs)


def trusted(pairs: Iterable[Pair]) -> list[Pair]:
    """Without pairs labelled the same that a guard on typed values, polarity or relations vetoes: loose labels."""
    return [pair for pair in pairs if not pair.same or guarded(pair)[0]]


def guarded(pair: Pair) -> tuple[bool, bool]:
    """Whether the guards but the one on contrast let the pair pass, and whether all do: contrast comes last."""
    verdict = compare(read(pair.a), read(pair.b))
    return verdict.passed or verdict.name == contrast.NAME, verdict.passed


def clean(pairs: Iterable[Pair], forbidden: frozenset[str]) -> Iterable[Pair]:
    return (pair for pair in pairs if plain(pair.a) not in forbidden and plain(pair.b) not in forbidden)


def plain(text: str) -> str:
    return " ".join(regex.findall(r"[\p{L}\p{N}]+", text.lower()))


def _questions(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(plain(text) for pair in read_pairs(path, "answer_equality") for text in (pair.a, pair.b))
