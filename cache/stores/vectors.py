"""Exact in-memory vector index of one namespace, kept level with the database by sequence number.

Flat float32 rows and one matrix-vector product, over a large index of those rows alone that 8-bit copies cannot rule
out: every neighbour is found. Rows are only appended; a row whose entry is gone is passed over from when the database
is found to lack it, and dropped with others later.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from cache.entry import Vector

if TYPE_CHECKING:
    from cache.stores.coarse import Coarse

COARSE_FROM: Final = 2_048
"""Rows from which on 8-bit copies are worth their memory."""

_FIRST: Final = 4
# What is left of the budget where it was exceeded.
_ROOM: Final = 0.9
# No entry has this number.
_NOBODY: Final = 0
# Rows without an entry that are passed over before the arrays are made anew.
_GONE: Final = 64


class VectorIndex:
    """Entries' vectors (n, dim) by sequence number; `high` is the largest number that was read in."""

    def __init__(self, dimension: int, account: Callable[[int], None]) -> None:
        """`account` is told by how many bytes the index grows or shrinks."""
        self.dimension = dimension
        self.high = 0
        self.lock = threading.Lock()
        self._count = 0
        self._gone = 0
        self._seqs = np.empty(_FIRST, dtype=np.int64)
        self._rows = np.empty((_FIRST, dimension), dtype=np.float32)
        self._coarse: Coarse | None = None
        self._account = account
        account(self.nbytes)

    def __len__(self) -> int:
        return self._count - self._gone

    @property
    def nbytes(self) -> int:
        coarse = 0 if self._coarse is None else self._coarse.nbytes
        return self._rows.nbytes + self._seqs.nbytes + coarse

    def append(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Add (seq, little-endian float32 bytes) in ascending order; other widths are passed over."""
        for seq, raw in rows:
            self.high = max(self.high, seq)
            vector = np.frombuffer(raw, dtype="<f4")
            if vector.shape != (self.dimension,):
                continue
            if self._count == len(self._seqs):
                self._grow(2 * self._count)
            self._seqs[self._count] = seq
            self._rows[self._count] = vector
            self._count += 1

    def retain(self, live: Iterable[int], newest: int) -> None:
        """Drop every row whose number is not in `live`, the numbers that may serve in one snapshot of the database.

        That snapshot may be older than the index, so reading goes on from its end, the number `newest`.
        """
        self.high = newest
        self._keep(np.isin(self._seqs[: self._count], np.fromiter(live, dtype=np.int64)))

    def forget(self, gone: Collection[int]) -> None:
        """Drop the rows of these numbers, which the database had and has no more."""
        seqs = self._seqs[: self._count]
        among = np.isin(seqs, list(gone))
        seqs[among] = _NOBODY
        self._gone += int(among.sum())
        if self._gone > _GONE:
            self._keep(seqs != _NOBODY)

    def search(self, vector: Vector, k: int) -> list[int]:
        """Numbers of the `k` nearest rows by inner product, best first. Hold `lock`."""
        seqs, rows = self._seqs[: self._count], self._rows[: self._count]
        k = min(k, len(self))
        if not k:
            return []
        # With those that are passed over: the copies do not know which they are.
        if len(seqs) >= COARSE_FROM and (near := self._level(rows).within(rows, vector, k + self._gone)) is not None:
            seqs, rows = seqs[near], rows[near]
        scores = rows @ vector
        if self._gone:
            scores[seqs == _NOBODY] = -np.inf
        best = []
        # A few passes for the maximum are much faster than a partition of all.
        for _ in range(min(k, len(seqs))):
            row = int(scores.argmax())
            best.append(int(seqs[row]))
            scores[row] = -np.inf
        return best

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        before = self.nbytes
        self._seqs = self._seqs[: self._count][kept]
        self._rows = self._rows[: self._count][kept]
        self._count, self._gone = len(self._seqs), 0
        self._coarse = None
        self._account(self.nbytes - before)
        self._grow(max(_FIRST, self._count))

    def _level(self, rows: npt.NDArray[np.float32]) -> Coarse:
        """The 8-bit copies of all `rows`; made anew at twice the size, since their scale is that of the first."""
        # Here, since FAISS takes long to import and commands need none of it.
        from cache.stores.coarse import Coarse

        before = self.nbytes
        if self._coarse is None or len(rows) >= 2 * self._coarse.began:
            self._coarse = Coarse(rows)
        else:
            self._coarse.add(rows[len(self._coarse) :])
        self._account(self.nbytes - before)
        return self._coarse

    def _grow(self, capacity: int) -> None:
        before = self.nbytes
        seqs = np.empty(capacity, dtype=np.int64)
        rows = np.empty((capacity, self.dimension), dtype=np.float32)
        seqs[: self._count] = self._seqs[: self._count]
        rows[: self._count] = self._rows[: self._count]
        self._seqs, self._rows = seqs, rows
        self._account(self.nbytes - before)


class VectorIndexes:
    """Indexes by (tenant id, namespace), least recently used first out, at most `budget` bytes in all."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = 0
        self._indexes: OrderedDict[tuple[str, bytes], VectorIndex] = OrderedDict()
        self._lock = threading.RLock()

    def get(self, tenant_id: str, namespace: bytes, dimension: int) -> VectorIndex:
        with self._lock:
            index = self._indexes.get((tenant_id, namespace))
            if index is None or index.dimension != dimension:
                index = self._indexes[tenant_id, namespace] = VectorIndex(dimension, self._grown)
            self._indexes.move_to_end((tenant_id, namespace))
            if self._bytes > self._budget:
                self._shrink()
            return index

    def _grown(self, delta: int) -> None:
        with self._lock:
            self._bytes += delta

    def _shrink(self) -> None:
        """Forget the least recently used; counted afresh, since a forgotten index may still grow under a search.

        Well below the budget, so that with many indexes they are not counted at every new one.
        """
        self._bytes = sum(index.nbytes for index in self._indexes.values())
        while self._bytes > _ROOM * self._budget and len(self._indexes) > 1:
            self._bytes -= self._indexes.popitem(last=False)[1].nbytes

    @property
    def tenants(self) -> set[str]:
        """The ids of tenants with an index in memory."""
        with self._lock:
            return {tenant_id for tenant_id, _ in self._indexes}

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(index.nbytes for index in self._indexes.values())

    def drop(self, tenant_id: str) -> None:
        with self._lock:
            for key in [key for key in self._indexes if key[0] == tenant_id]:
                del self._indexes[key]
