"""One state of one tenant's collection in memory: what a question is searched in.

A snapshot is never changed. A later state is another snapshot that shares the segments it has in common with this
one, so that a search keeps its own state however much is written meanwhile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.access import SegmentAccess
from indexing.catalogue import Collection
from indexing.collection import Scored
from indexing.engine import Engine
from indexing.filters import Filter, SealedFilter, seal
from indexing.gpu import GpuSearch
from indexing.postings import Mask
from indexing.remote.dense import nearest
from indexing.segment import Segment, Vectors
from indexing.terms import TermVector
from tenancy.domain import PermissionDomain
from tenancy.errors import InvalidInput, StaleDomain
from tenancy.tenant import Epochs

READABLE_KEPT: Final = 64
_OBJECT_BYTES: Final = 4096
_SET_BYTES: Final = 300
_PART_BYTES: Final = 250


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A segment with the access of its documents."""

    segment: Segment
    access: SegmentAccess

    @property
    def live_rows(self) -> int:
        return int(np.count_nonzero(self.segment.expand(self.access.live())))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ReadablePart:
    """The readable rows of one part: flags (rows,), how many, and their terms in all."""

    segment: Segment
    rows: Mask
    count: int
    terms: int

    def gathered(self) -> Vectors:
        """A copy of the readable vectors, (count, dimension)."""
        return self.segment.vectors_of(self.rows)


class ReadableSets:
    """The most recently used readable sets by domain fingerprint; safe from several threads."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._kept: OrderedDict[str, tuple[ReadablePart, ...]] = OrderedDict()
        self._account: Callable[[int], None] | None = None
        self._nbytes = _OBJECT_BYTES
        self._lock = threading.Lock()

    def accounted(self, account: Callable[[int], None]) -> None:
        """Tell `account`, once it is set, by how many bytes this grows or shrinks, and of its end; it must not fail."""
        with self._lock:
            if self._account is None:
                self._account = account
                account(self._nbytes)

    def __del__(self) -> None:
        if self._account is not None:
            self._account(-self._nbytes)

    def of(self, domain: PermissionDomain) -> tuple[ReadablePart, ...]:
        """The parts in which `domain` may read at least one row."""
        with self._lock:
            kept = self._kept.get(domain.fingerprint)
            if kept is not None:
                self._kept.move_to_end(domain.fingerprint)
                return kept
        computed = tuple(found for part in self._parts if (found := _readable(part, domain.labels)).count)
        with self._lock:
            replaced = self._kept.pop(domain.fingerprint, ())
            self._kept[domain.fingerprint] = computed
            dropped = self._kept.popitem(last=False)[1] if len(self._kept) > READABLE_KEPT else ()
            grown = _nbytes(computed) - sum(_nbytes(parts) for parts in (replaced, dropped) if parts)
            self._nbytes += grown
            if self._account is not None:
                self._account(grown)
        return computed


def _nbytes(readable: tuple[ReadablePart, ...]) -> int:
    return _SET_BYTES + sum(_PART_BYTES + part.rows.nbytes for part in readable)


def _readable(part: Part, labels: frozenset[int]) -> ReadablePart:
    rows = part.segment.expand(part.access.readable(labels))
    terms = int(part.segment.postings.lengths[rows].sum(dtype=np.int64))
    return ReadablePart(part.segment, rows, int(np.count_nonzero(rows)), terms)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Snapshot:
    """Segments, access and epochs that belong together; see `indexing.collection.CollectionSnapshot`.

    `collection` is the record of what is searched, None for a tenant without documents; `dimension` is that of the
    vectors; `nbytes` is estimated memory in bytes, without the readable sets that questions add. `engine` serves the
    dense leg where it holds the vectors; `gpu`, if any, searches large readable sets of vectors that are held here.
    """

    tenant_id: str
    epochs: Epochs
    collection: Collection | None
    dimension: int
    parts: tuple[Part, ...]
    nbytes: int
    readable_sets: ReadableSets = field(repr=False)
    engine: Engine | None = None
    gpu: GpuSearch | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls,
        tenant_id: str,
        epochs: Epochs,
        collection: Collection | None,
        dimension: int,
        parts: Sequence[Part],
        engine: Engine | None = None,
    ) -> Snapshot:
        nbytes = _OBJECT_BYTES + sum(part.segment.nbytes + part.access.nbytes for part in parts)
        return cls(tenant_id, epochs, collection, dimension, tuple(parts), nbytes, ReadableSets(parts), engine)

    def stamped(self, epochs: Epochs) -> Snapshot:
        """The same documents and access lists at later epochs: what a membership change makes."""
        return replace(self, epochs=epochs)

    def dense(
        self, domain: PermissionDomain, vector: npt.NDArray[np.float32], k: int, where: Filter | None = None
    ) -> list[Scored]:
        """The `k` readable chunks that `where` describes of highest inner product with `vector` (dimension,), exact.

        A score depends on that chunk and the vector alone.
        Raises `StaleDomain`; `InvalidInput` for a vector of another shape or that is not finite; `EngineDisagrees`
        and `Unavailable` where a server engine holds the vectors.
        """
        self._require_current(domain)
        if vector.shape != (self.dimension,):
            raise InvalidInput(
                f"the vector has shape {vector.shape}, the collection needs ({self.dimension},)", item="vector"
            )
        if not np.isfinite(vector).all():
            raise InvalidInput("the vector is not finite", item="vector")
        question = np.ascontiguousarray(vector, dtype=np.float32)
        sealed = self._sealed(where)
        parts = _narrowed(self._readable(domain, k), sealed)
        if self.engine is not None and self.collection is not None:
            return nearest(
                self.engine, self.collection.physical, question, domain.labels, sealed, k,
                readable=sum(part.count for part in parts), is_readable=lambda ids: _among(parts, ids),
            )  # fmt: skip
        found = [
            Scored(int(part.segment.chunk_ids[row]), score)
            for part in parts
            for row, score in self._nearest(part, question, k, whole=where is None)
        ]
        return sorted(found, key=_rank)[:k]

    def lexical(self, domain: PermissionDomain, terms: TermVector, k: int, where: Filter | None = None) -> list[Scored]:
        """The `k` best readable chunks for `terms` that `where` describes, by BM25; only chunks with one of the terms.

        The number of chunks, the document frequencies and the mean length are those of the readable chunks, so
        that no unreadable one can show in a score, an order or a count; `where` moves none of them, and a chunk
        scores the same under every filter. Raises `StaleDomain`.
        """
        self._require_current(domain)
        sealed = self._sealed(where)
        parts = self._readable(domain, k)
        total = sum(part.count for part in parts)
        # Where all texts are empty there is no term to match, and any mean will do.
        mean_length = sum(part.terms for part in parts) / total if total and any(part.terms for part in parts) else 1.0
        scores = [np.zeros(part.segment.rows, dtype=np.float64) for part in parts]
        for term, count in zip(terms.hashes, terms.counts.tolist(), strict=True):
            matches = [part.segment.postings.matches(term, part.rows) for part in parts]
            frequency = sum(len(match.rows) for match in matches)
            weight = count * float(np.log1p((total - frequency + 0.5) / (frequency + 0.5)))
            for part, match, row_scores in zip(parts, matches, scores, strict=True):
                part.segment.postings.score(match, row_scores, weight, mean_length)
        found = [
            scored
            for part, row_scores in zip(parts, scores, strict=True)
            for scored in _best(part, row_scores, part.rows if sealed is None else _described(part, sealed), k)
        ]  # fmt: skip
        return sorted(found, key=_rank)[:k]

    def _nearest(self, part: ReadablePart, vector: Vectors, k: int, *, whole: bool) -> list[tuple[int, float]]:
        """As `Segment.nearest`, on the device where there is one and it pays; only for a `whole` readable set, which
        is kept, while the rows that a filter describes are gathered for one question.
        """
        wanted = min(k + 1, part.count)
        if self.gpu is not None and whole:
            found = self.gpu.nearest(part, part.gathered, part.count, vector, wanted)
            # Where the last one ties with others, only the processor gives them all.
            if found is not None and (wanted == part.count or found[0][-1] < found[0][k - 1]):
                rows = np.flatnonzero(part.rows)[found[1]]
                return list(zip(rows.tolist(), found[0].tolist(), strict=True))
        return part.segment.nearest(vector, part.rows, part.count, k)

    def _readable(self, domain: PermissionDomain, k: int) -> tuple[ReadablePart, ...]:
        """Nothing for an empty domain, whatever else holds: decided before any index is touched."""
        if k < 1:
            raise InvalidInput("at least one passage must be asked for", item="k")
        return () if domain.is_empty else self.readable_sets.of(domain)

    def _sealed(self, where: Filter | None) -> SealedFilter | None:
        """`where` as the segments and the engine hold metadata; a snapshot without a collection has no rows."""
        return None if where is None or self.collection is None else seal(where, self.collection.sealing)

    def _require_current(self, domain: PermissionDomain) -> None:
        if domain.tenant_id != self.tenant_id or domain.epochs != self.epochs:
            raise StaleDomain(
                "the permission domain belongs to another state than the collection", item=domain.fingerprint
            )


def _among(parts: Sequence[ReadablePart], chunk_ids: npt.NDArray[np.int64]) -> Mask:
    """Which of `chunk_ids` (n,) are readable rows of one of the parts: flags (n,)."""
    found: Mask = np.zeros(len(chunk_ids), dtype=np.bool_)
    for part in parts:
        rows = part.segment.rows_of(chunk_ids)
        found |= (rows >= 0) & part.rows[rows]
    return found


def _narrowed(parts: Sequence[ReadablePart], where: SealedFilter | None) -> Sequence[ReadablePart]:
    """The readable rows that `where` describes, of the parts that have any."""
    if where is None:
        return parts
    narrowed = ((part, _described(part, where)) for part in parts)
    return [replace(part, rows=rows, count=count) for part, rows in narrowed if (count := int(np.count_nonzero(rows)))]


def _described(part: ReadablePart, where: SealedFilter) -> Mask:
    return part.rows & part.segment.described(where)


def _rank(scored: Scored) -> tuple[float, int]:
    return -scored.score, scored.chunk_id


def _best(part: ReadablePart, scores: npt.NDArray[np.float64], wanted: Mask, k: int) -> list[Scored]:
    """The `k` best of the `wanted` rows that score at all, and all that tie with the k-th."""
    rows = np.flatnonzero((scores > 0) & wanted)
    if len(rows) > k:
        least = np.partition(scores[rows], len(rows) - k)[len(rows) - k]
        rows = rows[scores[rows] >= least]
    return [
        Scored(chunk_id, score)
        for chunk_id, score in zip(part.segment.chunk_ids[rows].tolist(), scores[rows].tolist(), strict=True)
    ]
