"""Lexical postings of one segment: for each term, the rows that hold it, and BM25 over a subset of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from indexing.terms import TermVector

K1: Final = 1.2
B: Final = 0.75

Mask = npt.NDArray[np.bool_]
_Unsigned = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Matches:
    """The readable postings of one term: `rows` (m,), each once, with their `counts` (m,)."""

    rows: npt.NDArray[np.intp]
    counts: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """Compressed sparse rows over sorted term hashes.

    Term `terms[t]` occurs `counts[p]` times in row `rows[p]` for p from `starts[t]` to `starts[t + 1]`;
    `lengths[r]` is the number of term occurrences in row r. Integers are as narrow as their values permit.
    """

    terms: npt.NDArray[np.uint64]
    starts: _Unsigned
    rows: _Unsigned
    counts: _Unsigned
    lengths: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, vectors: Sequence[TermVector]) -> Postings:
        """Invert the terms of rows 0, 1, ..."""
        sizes = np.array([len(vector.hashes) for vector in vectors], dtype=np.intp)
        lengths = np.array([vector.length for vector in vectors], dtype=np.uint32)
        empty = TermVector(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint16), 0)
        hashes = np.concatenate([vector.hashes for vector in (*vectors, empty)])
        counts = np.concatenate([vector.counts for vector in (*vectors, empty)])
        return cls._invert(hashes, np.repeat(np.arange(len(vectors)), sizes), counts, lengths)

    @classmethod
    def merged(cls, parts: Sequence[tuple[Postings, Mask]], order: npt.NDArray[np.intp]) -> Postings:
        """The rows that the masks keep; new row r is the `order[r]`-th kept one."""
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        hashes, rows, counts, lengths = [], [], [], []
        base = 0
        for postings, keep in parts:
            kept = keep[postings.rows]
            number = np.cumsum(keep) - 1 + base
            starts = postings.starts.astype(np.intp)
            hashes.append(np.repeat(postings.terms, starts[1:] - starts[:-1])[kept])
            rows.append(position[number[postings.rows[kept]]])
            counts.append(postings.counts[kept].astype(np.uint16))
            lengths.append(postings.lengths[keep])
            base += int(np.count_nonzero(keep))
        return cls._invert(
            np.concatenate(hashes), np.concatenate(rows), np.concatenate(counts), np.concatenate(lengths)[order]
        )

    @classmethod
    def _invert(
        cls,
        hashes: npt.NDArray[np.uint64],
        rows: npt.NDArray[np.intp],
        counts: npt.NDArray[np.uint16],
        lengths: npt.NDArray[np.uint32],
    ) -> Postings:
        order = np.argsort(hashes)
        hashes = hashes[order]
        first = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)])
        starts = np.append(first, len(hashes))
        return cls(hashes[first], _narrow(starts), _narrow(rows[order]), _narrow(counts[order]), lengths)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.terms, self.starts, self.rows, self.counts, self.lengths))

    def matches(self, term: np.uint64, readable: Mask) -> Matches:
        """The postings of `term` in the rows that `readable` (rows,) marks."""
        at = int(np.searchsorted(self.terms, term))
        if at == len(self.terms) or self.terms[at] != term:
            return Matches(np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.float64))
        span = slice(int(self.starts[at]), int(self.starts[at + 1]))
        rows = self.rows[span].astype(np.intp)
        seen = readable[rows]
        return Matches(rows[seen], self.counts[span][seen].astype(np.float64))

    def score(self, matches: Matches, scores: npt.NDArray[np.float64], weight: float, mean_length: float) -> None:
        """Add one term's BM25 contribution to `scores` (rows,).

        Robertson and Zaragoza 2009, section 3: `weight` is the term's idf times its count in the question,
        `mean_length` is in terms. A row's sum depends on the order of terms alone, never on other rows.
        """
        lengths = self.lengths[matches.rows]
        norm = K1 * (1 - B + B * lengths / mean_length)
        scores[matches.rows] += weight * (K1 + 1) * matches.counts / (matches.counts + norm)


def _narrow(values: npt.NDArray[Any]) -> _Unsigned:
    largest = int(values.max()) if len(values) else 0
    return values.astype(np.min_scalar_type(largest))
