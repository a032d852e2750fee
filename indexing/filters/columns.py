"""The sealed metadata of one segment's documents, by typed key, and the slots that a filter describes."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any as Anything
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.filters.sealed import Bound, Comparison, OneOf, SealedFilter
from indexing.filters.tree import All, Any, Not

Mask = npt.NDArray[np.bool_]
_Unsigned = npt.NDArray[np.unsignedinteger[Anything]]
_Values = npt.NDArray[np.int64]
_COMPARISONS: Final[dict[Comparison, Callable[[Anything, int], Mask]]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Compressed sparse columns over sorted typed keys.

    The documents in `slots[p]`, ascending, for p from `starts[t]` to `starts[t + 1]` hold `values[p]` under `keys[t]`.
    """

    count: int
    keys: npt.NDArray[np.uint64]
    starts: npt.NDArray[np.int64]
    slots: _Unsigned
    values: npt.NDArray[np.int64]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, int]]) -> Columns:
        """The columns of slots 0, 1, ...: sealed metadata, one mapping a slot."""
        keys, slots, values = array("Q"), array("q"), array("q")
        numbers: dict[str, int] = {}
        for slot, document in enumerate(documents):
            for key, value in document.items():
                if key not in numbers:
                    numbers[key] = int(key[1:], 16)
                keys.append(numbers[key])
                slots.append(slot)
                values.append(value)
        return cls._sorted(
            len(documents), np.array(keys, np.uint64), np.array(slots, np.intp), np.array(values, np.int64)
        )

    @classmethod
    def merged(cls, parts: Iterable[tuple[Columns, Mask, npt.NDArray[np.intp]]], count: int) -> Columns:
        """The slots that the masks keep, slot s of a part as slot `place[s]` of `count`."""
        keys, slots, values = [], [], []
        for columns, keep, place in parts:
            kept = keep[columns.slots]
            keys.append(np.repeat(columns.keys, np.diff(columns.starts))[kept])
            slots.append(place[columns.slots[kept]])
            values.append(columns.values[kept])
        return cls._sorted(count, np.concatenate(keys), np.concatenate(slots), np.concatenate(values))

    @classmethod
    def _sorted(
        cls,
        count: int,
        keys: npt.NDArray[np.uint64],
        slots: npt.NDArray[np.intp],
        values: npt.NDArray[np.int64],
    ) -> Columns:
        order = np.lexsort((slots, keys))
        keys = keys[order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        narrow = slots[order].astype(np.min_scalar_type(max(count - 1, 0)))
        starts = np.append(first, len(keys)).astype(np.int64)
        return cls(count, keys[first], starts, narrow, values[order])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.keys, self.starts, self.slots, self.values))

    def matching(self, where: SealedFilter) -> Mask:
        """Which slots (count,) `where` describes."""
        found: Mask
        match where:
            case All(parts):
                found = np.logical_and.reduce([self.matching(part) for part in parts])
            case Any(parts):
                found = np.logical_or.reduce([self.matching(part) for part in parts])
            case Not(part):
                found = ~self.matching(part)
            case OneOf() | Bound():
                slots, values = self._column(where.key)
                found = _compared(where, values)
                if len(slots) < self.count:
                    held, found = slots[found], np.zeros(self.count, dtype=np.bool_)
                    found[held] = True
        return found

    def _column(self, key: str) -> tuple[_Unsigned, _Values]:
        """The slots (n,) that have the key, with their values (n,)."""
        wanted = np.uint64(int(key[1:], 16))
        at = int(np.searchsorted(self.keys, wanted))
        if at == len(self.keys) or self.keys[at] != wanted:
            return self.slots[:0], self.values[:0]
        span = slice(int(self.starts[at]), int(self.starts[at + 1]))
        return self.slots[span], self.values[span]


def _compared(where: OneOf | Bound, values: _Values) -> Mask:
    found: Mask
    if isinstance(where, Bound):
        found = _COMPARISONS[where.comparison](values, where.value)
    elif len(where.values) == 1:
        found = values == where.values[0]
    else:
        wanted = np.sort(np.array(where.values, dtype=np.int64))
        found = wanted[np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)] == values
    return found
