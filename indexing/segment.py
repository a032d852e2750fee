"""An immutable piece of a collection: vectors in a bare FAISS index, postings, metadata, and which rows are whose.

Rows are positions. All rows of one document stand together, documents ascend by id, and a document's place among
them is its slot. Access lists and deletions are not in here (`indexing.access`): they change while segments stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from indexing.filters import Columns, SealedFilter
from indexing.postings import Mask, Postings
from indexing.terms import TermVector
from tenancy.errors import Corrupt

Vectors = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Segment:
    """`chunk_ids` (rows,), `document_ids` (slots,) ascending, `starts` (slots + 1,) first rows of the slots.

    `metadata` is of the slots: it never changes, since a document's new metadata comes with new chunks.
    `index` is None where a server engine holds the vectors; then `by_id` (rows,) orders the rows by chunk id.
    """

    index: Any
    chunk_ids: Ids
    document_ids: Ids
    starts: npt.NDArray[np.int64]
    postings: Postings
    metadata: Columns
    by_id: Ids | None = None

    @classmethod
    def of(
        cls,
        vectors: Vectors | None,
        chunk_ids: Ids,
        owners: Ids,
        terms: Sequence[TermVector],
        metadata: Mapping[int, Mapping[str, int]],
    ) -> Segment:
        """Index `vectors` (rows, dimension), if any; `owners` (rows,) are the document ids, ascending.

        `metadata` is sealed, by document id.
        """
        columns = Columns.of([metadata.get(document_id, {}) for document_id in np.unique(owners).tolist()])
        return cls._of(vectors, chunk_ids, owners, Postings.of(terms), columns)

    @classmethod
    def merged(cls, parts: Sequence[tuple[Segment, Mask]]) -> Segment:
        """One segment of the rows (rows,) that the masks keep, without what was deleted."""
        held = [found[keep] for segment, keep in parts if (found := segment.vectors()) is not None]
        chunk_ids = np.concatenate([segment.chunk_ids[keep] for segment, keep in parts])
        owners = np.concatenate([segment.owners()[keep] for segment, keep in parts])
        order = np.argsort(owners, kind="stable")
        postings = Postings.merged([(segment.postings, keep) for segment, keep in parts], order)
        vectors = np.concatenate(held)[order] if held else None
        documents = np.unique(owners)
        columns = Columns.merged(
            [
                (segment.metadata, keep[segment.starts[:-1]], np.searchsorted(documents, segment.document_ids))
                for segment, keep in parts
            ],
            len(documents),
        )
        return cls._of(vectors, chunk_ids[order], owners[order], postings, columns)

    @classmethod
    def _of(cls, vectors: Vectors | None, chunk_ids: Ids, owners: Ids, postings: Postings, columns: Columns) -> Segment:
        index, by_id = None, None
        if vectors is None:
            by_id = np.argsort(chunk_ids, kind="stable")
        else:
            index = faiss.IndexFlatIP(vectors.shape[1])
            index.add(np.ascontiguousarray(vectors))
        document_ids, first = np.unique(owners, return_index=True)
        starts = np.append(first, len(owners)).astype(np.int64)
        return cls(index, chunk_ids, document_ids, starts, postings, columns, by_id)

    @property
    def rows(self) -> int:
        return len(self.chunk_ids)

    @property
    def nbytes(self) -> int:
        arrays = [self.chunk_ids, self.document_ids, self.starts]
        arrays += [] if self.by_id is None else [self.by_id]
        dimension: int = self.index.d if self.index is not None else 0
        derived = self.postings.nbytes + self.metadata.nbytes
        return 4 * self.rows * dimension + derived + sum(array.nbytes for array in arrays)

    def vectors(self) -> Vectors | None:
        """A copy of all vectors, (rows, dimension), where they are held here."""
        if self.index is None:
            return None
        copied: Vectors = self.index.reconstruct_n(0, self.rows)
        return copied

    def vectors_of(self, rows: Mask) -> Vectors:
        """A copy of the vectors that `rows` (rows,) marks. Raises `Corrupt` where a server engine holds them."""
        held = self.vectors()
        if held is None:
            raise Corrupt("the vectors are held by a server engine")
        return held[rows]

    def owners(self) -> Ids:
        """The document id of each row, (rows,)."""
        return np.repeat(self.document_ids, np.diff(self.starts))

    def slot(self, document_id: int) -> int | None:
        """Where a document is in this segment, if it is."""
        at = int(np.searchsorted(self.document_ids, document_id))
        return at if at < len(self.document_ids) and self.document_ids[at] == document_id else None

    def rows_of(self, chunk_ids: Ids) -> Ids:
        """The row of each of `chunk_ids` (n,), -1 for those that are not in this segment."""
        order = np.argsort(self.chunk_ids) if self.by_id is None else self.by_id
        at = np.searchsorted(self.chunk_ids, chunk_ids, sorter=order)
        rows = order[np.minimum(at, self.rows - 1)]
        return np.where(self.chunk_ids[rows] == chunk_ids, rows, -1)

    def first_chunk(self, slot: int) -> int:
        """The chunk id of the slot's first row; as ids are never used again, it names the document's content."""
        return int(self.chunk_ids[self.starts[slot]])

    def expand(self, slots: Mask) -> Mask:
        """From one flag a slot to one flag a row."""
        return np.repeat(slots, np.diff(self.starts))

    def described(self, where: SealedFilter) -> Mask:
        """Which rows (rows,) are of documents that `where` describes."""
        return self.expand(self.metadata.matching(where))

    def nearest(self, vector: Vectors, readable: Mask, count: int, k: int) -> list[tuple[int, float]]:
        """Rows and inner products of the best `k` of the `count` rows that `readable` (rows,) marks.

        Exact, and with every row that ties with the k-th. The readable set is a selector inside the search, never
        a filter behind it.
        Raises `Corrupt` where the index returns fewer rows than were asked for, or one that is not readable.
        """
        bits = np.packbits(readable, bitorder="little")
        selector = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
        parameters = faiss.SearchParameters()
        parameters.sel = selector
        wanted = min(k + 1, count)
        while True:
            found, numbers = self.index.search(vector[np.newaxis], wanted, params=parameters)
            # -1 means "no further row"; as an index it would name the last row, which may not be readable.
            real = numbers[0] >= 0
            scores, rows = found[0][real], numbers[0][real]
            if len(rows) != wanted or not readable[rows].all():
                raise Corrupt("the vector index does not honour the readable set", remedy="restart the service")
            if wanted == count or scores[-1] < scores[k - 1]:
                break
            wanted = min(4 * wanted, count)
        return list(zip(rows.tolist(), scores.tolist(), strict=True))
