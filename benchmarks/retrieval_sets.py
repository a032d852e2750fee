"""Public retrieval sets, nDCG@10, and vectors that are computed once: shared by the benchmarks of quality."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from indexing.embed import Embedder, TokenReader, TokenVectors, Vectors

SETS = ("scifact", "cranfield", "xquad-en", "xquad-zh", "xquad-de")


@dataclass(frozen=True)
class RetrievalSet:
    """`documents` and `questions` by id; `relevant` holds the grades of each question by document id."""

    name: str
    documents: Mapping[str, str]
    questions: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]


def read_set(data: Path, name: str) -> RetrievalSet:
    """Read corpus.jsonl, queries.jsonl and qrels.tsv; questions without a relevant document are left out."""
    root = data / "retrieval" if (data / "retrieval").is_dir() else data
    documents = {
        row["_id"]: "\n".join(filter(None, (row["title"], row["text"]))) for row in _rows(root / name, "corpus")
    }
    relevant: dict[str, dict[str, int]] = {}
    for line in (root / name / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, grade = line.split("\t")
        if document in documents and int(grade) > 0:
            relevant.setdefault(question, {})[document] = int(grade)
    questions = {row["_id"]: row["text"] for row in _rows(root / name, "queries") if row["_id"] in relevant}
    return RetrievalSet(name, documents, questions, relevant)


def ndcg(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval computes it."""
    found = sum(relevant.get(document, 0) / math.log2(rank + 2) for rank, document in enumerate(ranking[:depth]))
    best = sorted(relevant.values(), reverse=True)[:depth]
    return found / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(best))


class StoredVectors:
    """An embedder that remembers its vectors in a folder, by fingerprint and text, and those of tokens in memory.

    Without `cut` a document is never cut at the model's window.
    """

    def __init__(self, embedder: Embedder, folder: Path, *, cut: bool = True) -> None:
        self._embedder = embedder
        self._cut = cut
        self._read: dict[tuple[str, bool], TokenVectors] = {}
        self.spec = embedder.spec
        self.fingerprint = embedder.fingerprint
        self.covers = embedder.covers
        self.token_count = embedder.token_count
        self.question_length = embedder.question_length
        folder.mkdir(parents=True, exist_ok=True)
        digest = sha256(msgspec.json.encode(embedder.fingerprint)).hexdigest()[:16]
        self._store = sqlite3.connect(folder / f"vectors-{digest}.sqlite")
        self._store.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")

    def token_starts(self, text: str) -> npt.NDArray[np.int64] | None:
        return self._embedder.token_starts(text) if self._cut else None

    def encode(self, texts: Sequence[str]) -> Vectors:
        missing = list(dict.fromkeys(text for text in texts if self._stored(b"d", text) is None))
        for start in range(0, len(missing), 256):
            batch = missing[start : start + 256]
            self._keep(b"d", batch, self._embedder.encode(batch))
        rows = [self._stored(b"d", text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.fingerprint.dimension)

    def encode_query(self, text: str) -> Vectors:
        stored = self._stored(b"q", text)
        if stored is None:
            stored = self._embedder.encode_query(text)
            self._keep(b"q", [text], stored[None])
        return stored

    def read(self, texts: Sequence[str], *, question: bool = False) -> list[TokenVectors]:
        if not isinstance(self._embedder, TokenReader):
            raise SystemExit(f"{self.spec} does not read token by token")
        new = [text for text in dict.fromkeys(texts) if (text, question) not in self._read]
        read = self._embedder.read(new, question=question)
        self._read.update({(text, question): one for text, one in zip(new, read, strict=True)})
        return [self._read[text, question] for text in texts]

    def _stored(self, kind: bytes, text: str) -> Vectors | None:
        row = self._store.execute("SELECT vector FROM vectors WHERE text = ?", (_key(kind, text),)).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.float32)

    def _keep(self, kind: bytes, texts: Sequence[str], vectors: Vectors) -> None:
        with self._store:
            self._store.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [(_key(kind, text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)],
            )


def _key(kind: bytes, text: str) -> bytes:
    return kind + sha256(text.encode()).digest()


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
