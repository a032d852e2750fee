"""Which rows can be among the nearest, from 8-bit copies of the vectors: a quarter of the memory to read.

A row x is kept as whole numbers c = round(scale * x), with |x - c / scale| <= `error` for every row. A query q is
rounded likewise, to d, and <d, c> is computed without error (it stays below 2**24). By Cauchy-Schwarz

    | <q, x> - <d, c> / scale**2 |  <=  |q| * error + |q - d / scale| * largest |c / scale|

so a row whose copy lies further than this below the k-th largest <q, x> of any rows cannot be among the k best. What is
left is compared exactly by the caller: no neighbour is lost.
"""

from __future__ import annotations

from typing import Final

import faiss
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]

# How many to ask for, until they reach down to what can be ruled out; past the last, the full product is as good.
# Each search begins with what the one before it needed.
_STEPS: Final = (64, 256, 1_024)
_CHUNK: Final = 8_192
_LARGEST: Final = 127.0
# float32 sums of the exact products differ in the last digits with their order.
_SLACK: Final = 1e-5


class Coarse:
    """8-bit copies of rows (n, dim). Not for several threads at a time."""

    def __init__(self, rows: Rows) -> None:
        largest = float(np.abs(rows).max(initial=0.0))
        self.scale = _LARGEST / largest if largest > 0 else 1.0
        self.began = len(rows)
        self._error = 0.0
        self._norm = 0.0
        self._step = 0
        self._index = faiss.IndexScalarQuantizer(
            rows.shape[1], faiss.ScalarQuantizer.QT_8bit_direct_signed, faiss.METRIC_INNER_PRODUCT
        )
        self.add(rows)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        return len(self) * int(self._index.d)

    def add(self, rows: Rows) -> None:
        """Append rows (m, dim); one that is larger than those at the beginning is cut, which `error` accounts for."""
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            coded = self._coded(part)
            self._error = max(self._error, _longest(part - coded / np.float32(self.scale)))
            self._norm = max(self._norm, _longest(coded) / self.scale)
            self._index.add(coded)

    def within(self, rows: Rows, vector: Rows, k: int) -> npt.NDArray[np.int64] | None:
        """Positions of all rows that can be among the `k` with the largest product with `vector` (dim,); None where
        they are too many to tell. `rows` (n, dim) are those of which these are the copies.
        """
        coded = self._coded(vector[None])
        off = _longest(vector[None] - coded / np.float32(self.scale))
        doubt = float(np.linalg.norm(vector)) * self._error + off * self._norm + _SLACK
        while True:
            asked = min(max(_STEPS[self._step], k), len(self))
            scores, positions = self._index.search(coded, asked)
            # Of the rows themselves: with the k-th best copy in its place, the doubt would count twice.
            best = np.sort(rows[positions[0]] @ vector)
            least = (best[-min(k, len(self))] - doubt) * self.scale**2
            # A least that is no number is above nothing: all steps are in vain, and the full product decides.
            if scores[0][-1] < least or asked == len(self):
                near = np.asarray(positions[0][scores[0] >= least], dtype=np.int64)
                if self._step and len(near) < _STEPS[self._step - 1]:
                    self._step -= 1
                return near
            if self._step == len(_STEPS) - 1:
                return None
            self._step += 1

    def _coded(self, rows: Rows) -> Rows:
        coded: Rows = np.clip(np.rint(rows * np.float32(self.scale)), -_LARGEST, _LARGEST)
        return coded


def _longest(rows: Rows) -> float:
    return float(np.sqrt(np.einsum("ij,ij->i", rows, rows).max(initial=0.0)))
