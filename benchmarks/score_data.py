"""Labelled pairs for the score: read, split by question or template, embedded, and turned into numbers.

Parts never share a question (a template, where the set is made from templates): pairs that share one are tied together
and the whole group falls into one part by a digest, so that the same data give the same parts.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cache.guards import compare, read
from cache.guards.thesaurus import thesaurus
from cache.score.features import NAMES, features
from indexing.embedders.port import Embedder
from tenancy.errors import InvalidInput

FILES: Final = {
    "answer_equality": "answer_equality_dev.jsonl",
    "checklist": "checklist_qqp_dev.jsonl.gz",
    "paws": "paws_dev.jsonl.gz",
    "qqp": "qqp_dev.jsonl.gz",
}
_CHUNK: Final = 4_096
PARTS: Final = (("fit", 0.6), ("calibrate", 0.8), ("report", 1.0))


@dataclass(frozen=True, slots=True)
class Pair:
    """`group` names the capability and template, or the category; empty where the set has none."""

    a: str
    b: str
    same: bool
    group: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers of n pairs: `rows` (n, features), `similarity` (n,), `same` and `passed` (n,) booleans.

    What the guards refuse has zeros in `rows`: the score is never asked about it.
    """

    pairs: Sequence[Pair]
    rows: npt.NDArray[np.float64]
    similarity: npt.NDArray[np.float64]
    same: npt.NDArray[np.bool_]
    passed: npt.NDArray[np.bool_]
    reasons: Sequence[str]


def read_pairs(path: Path, limit: int = 0, seed: int = 7) -> list[Pair]:
    """JSON Lines of `a`, `b`, `same` (or `same_answer`), plain or .gz; `limit` samples with the seed, 0 takes all.

    Raises `InvalidInput` naming the line and what is wrong with it.
    """
    pairs = list(_rows(path))
    if not pairs:
        raise InvalidInput("the file holds no pairs", item=str(path), remedy="give JSON Lines of a, b, same")
    return sample(pairs, limit, seed)


def sample(pairs: list[Pair], limit: int, seed: int) -> list[Pair]:
    """At most `limit` of them; 0 takes all."""
    return random.Random(seed).sample(pairs, limit) if limit and len(pairs) > limit else pairs


def _rows(path: Path) -> Iterator[Pair]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read: {error}", item=str(path), remedy="give UTF-8, plain or gzip") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _row(line, f"{path}, line {number}")


def _row(line: str, item: str) -> Pair:
    remedy = 'write {"a": "a question", "b": "another", "same": true or false}'
    try:
        row = json.loads(line)
    except ValueError:
        raise InvalidInput("the line is no JSON", item=item, remedy=remedy) from None
    if not isinstance(row, dict):
        raise InvalidInput("the line is no JSON object", item=item, remedy=remedy)
    same = row.get("same", row.get("same_answer"))
    for name in ("a", "b"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise InvalidInput(f"`{name}` is missing, empty or no text", item=item, remedy=remedy)
        if any("\ud800" <= character <= "\udfff" for character in row[name]):
            raise InvalidInput(f"`{name}` is not valid Unicode", item=item, remedy="replace lone surrogates")
    # 0 and 1 are what many sets write; anything else would be guessing.
    if not isinstance(same, bool) and same not in (0, 1):
        raise InvalidInput("`same` is missing, or neither true nor false", item=item, remedy=remedy)
    names = [str(row[key]) for key in ("capability", "test") if row.get(key)] or [str(row.get("category") or "")]
    return Pair(row["a"], row["b"], bool(same), " / ".join(names))


def split(pairs: Sequence[Pair], *, by_group: bool, salt: str) -> list[str]:
    """The part of each pair, from `PARTS`."""
    keys = [pair.group for pair in pairs] if by_group else _tied(pairs)
    return [_part(f"{salt}\0{key}") for key in keys]


def read_parts(folder: Path, name: str, limit: int, seed: int) -> tuple[list[Pair], npt.NDArray[np.str_]]:
    """Pairs of the set `name`, and the part of each: that of the whole set, however few of it are taken."""
    whole = read_pairs(folder / FILES[name])
    part_of = dict(zip(whole, split(whole, by_group=name == "checklist", salt=name), strict=True))
    pairs = sample(whole, limit, seed)
    return pairs, np.array([part_of[pair] for pair in pairs])


def _part(key: str) -> str:
    share = int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big") / 2**48
    return next(name for name, until in PARTS if share < until)


def _tied(pairs: Sequence[Pair]) -> list[str]:
    """A name for each pair's group: the first question, in order of the alphabet, that is tied to it."""
    above: dict[str, str] = {}

    def top(text: str) -> str:
        while above.setdefault(text, text) != text:
            above[text] = above[above[text]]
            text = above[text]
        return text

    plain = [(" ".join(pair.a.lower().split()), " ".join(pair.b.lower().split())) for pair in pairs]
    for a, b in plain:
        one, two = sorted((top(a), top(b)))
        above[two] = one
    return [top(a) for a, _ in plain]


class VectorCache:
    """Vectors of texts by one embedder; kept in a folder between runs where one is given."""

    def __init__(self, embedder: Embedder, folder: Path | None = None) -> None:
        self._embedder = embedder
        self._found: dict[str, npt.NDArray[np.float32]] = {}
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(folder.glob(f"{self._mark}-*.npz")):
                stored = np.load(file)
                self._found.update(zip(json.loads(str(stored["texts"])), stored["vectors"], strict=True))

    @property
    def _mark(self) -> str:
        return hashlib.sha256(self._embedder.fingerprint.revision.encode()).hexdigest()[:12]

    def of(self, texts: Iterable[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Text -> (dimension,), L2-normalised."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._found]
        for start in range(0, len(missing), _CHUNK):
            chunk = missing[start : start + _CHUNK]
            vectors = self._embedder.encode(chunk)
            self._found.update(zip(chunk, vectors, strict=True))
            if self._folder is not None:
                name = hashlib.sha256(json.dumps(chunk).encode()).hexdigest()[:12]
                np.savez(self._folder / f"{self._mark}-{name}.npz", texts=np.array(json.dumps(chunk)), vectors=vectors)
        return self._found


def tabulate(pairs: Sequence[Pair], vectors: dict[str, npt.NDArray[np.float32]]) -> Table:
    """What the product's own guards and features say about the pairs."""
    words, rows, similarity, passed, reasons = thesaurus(), [], [], [], []
    for pair in pairs:
        question, cached = read(pair.a), read(pair.b)
        similarity.append(float(vectors[pair.a] @ vectors[pair.b]))
        verdict = compare(question, cached)
        passed.append(verdict.passed)
        reasons.append("" if verdict.passed else f"{verdict.name}: {verdict.reason}")
        row = features(question, cached, similarity[-1], verdict.near, words) if verdict.passed else [0.0] * len(NAMES)
        rows.append(row)
    return Table(
        pairs,
        np.array(rows),
        np.array(similarity),
        np.array([pair.same for pair in pairs]),
        np.array(passed),
        reasons,
    )


def precision_at(values: npt.NDArray[np.float64], same: npt.NDArray[np.bool_], recall: float) -> float | None:
    """The share of same among the pairs of highest probability that hold `recall` of all same pairs."""
    order = np.argsort(-values, kind="stable")
    reached = np.flatnonzero(np.cumsum(same[order]) >= recall * same.sum())
    if not len(reached) or not same.any() or values[order[reached[0]]] <= 0:
        return None
    count = int(reached[0]) + 1
    return round(float(same[order[:count]].sum()) / count, 4)
