"""Exact search of readable rows on a CUDA device, for tenants large enough to gain from it.

GPU indexes of FAISS ignore an id selector (https://github.com/facebookresearch/faiss/wiki/Faiss-on-the-GPU): the
readable rows are gathered, and only they are put into an index on the device, which therefore cannot return another
row. Such an index is kept while its readable set is (`indexing.snapshot.ReadableSets`) and the device budget allows.
A device that fails, is full, or does not pass the canary is not used: the processor searches the same rows.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import faiss
import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
MakeIndex = Callable[[int], Any]
"""From a dimension to an empty index of inner products on the device."""

MIN_ROWS: Final = 50_000
"""Below this many readable rows the processor answers sooner than the copy to the device and back."""

MAX_K: Final = 2_048
"""What FAISS selects on a device (its kernels' limit)."""

_logger = logging.getLogger(__name__)


class GpuSearch:
    """Indexes of readable rows on one device, the most recently used within `budget_bytes`.

    `make` makes an empty index on the device. Raises `ValueError` where its results are not those of the processor:
    an index that loses rows or scores differently is not used at all.
    """

    def __init__(self, make: MakeIndex, budget_bytes: int, *, min_rows: int = MIN_ROWS) -> None:
        self._make = make
        self._budget = budget_bytes
        self._min_rows = min_rows
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._used = 0
        # FAISS: one thread at a time may use the resources of a device.
        self._lock = threading.RLock()
        self._canary()

    @classmethod
    def start(cls, budget_bytes: int) -> GpuSearch | None:
        """Search on the first device; None, with the reason in the log, where none can be used."""
        if not hasattr(faiss, "StandardGpuResources"):
            _logger.info("no search on a GPU: the installed FAISS has no GPU support (extra `gpu`)")
            return None
        # Asked first: without a device, FAISS makes an empty index and says nothing.
        if faiss.get_num_gpus() < 1:
            _logger.warning("no search on a GPU: faiss-gpu sees no device")
            return None
        resources = faiss.StandardGpuResources()
        try:
            return cls(lambda dimension: faiss.GpuIndexFlatIP(resources, dimension), budget_bytes)
        except (RuntimeError, ValueError) as error:
            _logger.error("no search on a GPU: %s", error)
            return None

    def nearest(
        self, owner: object, rows: Callable[[], Vectors], count: int, vector: Vectors, k: int
    ) -> tuple[Vectors, npt.NDArray[np.int64]] | None:
        """Scores and positions (k,) of the best `k` of the `count` rows that `rows` gathers, best first.

        `owner` is the readable set that they belong to: the index lives no longer than it. None where the processor
        is to search: too few rows, too many wanted, no room, or a device that failed.
        """
        nbytes = 4 * count * len(vector)
        if count < self._min_rows or k > MAX_K or nbytes > self._budget:
            return None
        try:
            with self._lock:
                index = self._index(owner, rows, nbytes, len(vector))
                scores, positions = index.search(vector[np.newaxis], k)
        except RuntimeError as error:
            _logger.error("a search on the GPU failed, the processor does it: %s", type(error).__name__)
            self.release(owner)
            return None
        if (positions[0] < 0).any() or (positions[0] >= count).any():
            _logger.error("the GPU returned rows that are not there, the processor searches")
            self.release(owner)
            return None
        return scores[0], positions[0]

    @property
    def nbytes(self) -> int:
        """Bytes of vectors on the device."""
        with self._lock:
            return self._used

    def release(self, owner: object) -> None:
        """Forget the index of a readable set."""
        self._forget(id(owner))

    def _index(self, owner: object, rows: Callable[[], Vectors], nbytes: int, dimension: int) -> Any:
        key = id(owner)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found[0]
        while self._kept and self._used + nbytes > self._budget:
            self._forget(next(iter(self._kept)))
        index = self._make(dimension)
        index.add(np.ascontiguousarray(rows()))
        self._kept[key] = index, nbytes
        self._used += nbytes
        # The number of a dead object may come again: its index must be gone before.
        weakref.finalize(owner, self._forget, key)
        return index

    def _forget(self, key: int) -> None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._used -= found[1]

    def _canary(self) -> None:
        """A readable set without the nearest row of all must not give it, and must give what the processor gives."""
        vectors = np.random.default_rng(1).normal(size=(256, 32)).astype(np.float32)
        question = vectors[7].copy()
        readable = np.array([row for row in range(256) if row != 7 and row % 3])
        index = self._make(32)
        index.add(np.ascontiguousarray(vectors[readable]))
        scores, positions = index.search(question[np.newaxis], 10)
        right = vectors[readable] @ question
        best = np.argsort(-right)[:10]
        if set(positions[0].tolist()) != set(best.tolist()) or not np.allclose(scores[0], right[best], rtol=1e-3):
            raise ValueError("the canary search on the device did not give the readable rows")
