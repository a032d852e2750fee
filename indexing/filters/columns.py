"""The sealed metadata of one segment's documents, by typed key, and the slots that a filter describes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any as Anything
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.filters.sealed import Bound, Number, OneOf, SealedFilter
from indexing.filters.tree import All, Any, Not

Mask = npt.NDArray[np.bool_]
_Unsigned = npt.NDArray[np.unsignedinteger[Anything]]
_REAL: Final = Struct("=d")
_WHOLE: Final = Struct("=q")
_Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Compressed sparse columns over sorted typed keys.

    The documents in `slots[p]` for p from `starts[t]` to `starts[t + 1]` hold `values[p]` under `keys[t]`: whole
    numbers as they are, and floats, where `floats[t]`, as their 64 bits.
    """

    count: int
    keys: npt.NDArray[np.uint64]
    floats: Mask
    starts: npt.NDArray[np.int64]
    slots: _Unsigned
    values: npt.NDArray[np.int64]

    @classmethod
    def of(cls, documents: Sequence[Mapping[str, Number]]) -> Columns:
        """The columns of slots 0, 1, ...: sealed metadata, one mapping a slot."""
        keys, slots, floats = array("Q"), array("q"), array("b")
        values = bytearray()
        for slot, document in enumerate(documents):
            for key, value in document.items():
                real = isinstance(value, float)
                keys.append(int(key[1:], 16))
                slots.append(slot)
                floats.append(real)
                values += _REAL.pack(value) if real else _WHOLE.pack(value)
        return cls._sorted(
            len(documents),
            np.array(keys, dtype=np.uint64),
            np.array(floats, dtype=np.bool_),
            np.array(slots, dtype=np.intp),
            np.frombuffer(bytes(values), dtype=np.int64),
        )

    @classmethod
    def merged(cls, parts: Iterable[tuple[Columns, Mask, npt.NDArray[np.intp]]], count: int) -> Columns:
        """The slots that the masks keep, slot s of a part as slot `place[s]` of `count`."""
        keys, floats, slots, values = [], [], [], []
        for columns, keep, place in parts:
            kept = keep[columns.slots]
            sizes = np.diff(columns.starts)
            keys.append(np.repeat(columns.keys, sizes)[kept])
            floats.append(np.repeat(columns.floats, sizes)[kept])
            slots.append(place[columns.slots[kept]])
            values.append(columns.values[kept])
        return cls._sorted(
            count, np.concatenate(keys), np.concatenate(floats), np.concatenate(slots), np.concatenate(values)
        )

    @classmethod
    def _sorted(
        cls,
        count: int,
        keys: npt.NDArray[np.uint64],
        floats: Mask,
        slots: npt.NDArray[np.intp],
        values: npt.NDArray[np.int64],
    ) -> Columns:
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        narrow = slots[order].astype(np.min_scalar_type(max(count - 1, 0)))
        starts = np.append(first, len(keys)).astype(np.int64)
        return cls(count, keys[first], floats[order][first], starts, narrow, values[order])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.keys, self.floats, self.starts, self.slots, self.values))

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
                found = np.zeros(self.count, dtype=np.bool_)
                found[slots[_compared(where, values)]] = True
        return found

    def _column(self, key: str) -> tuple[_Unsigned, _Values]:
        """The slots (n,) that have the key, with their values (n,)."""
        wanted = np.uint64(int(key[1:], 16))
        at = int(np.searchsorted(self.keys, wanted))
        if at == len(self.keys) or self.keys[at] != wanted:
            return self.slots[:0], self.values[:0]
        span = slice(int(self.starts[at]), int(self.starts[at + 1]))
        values = self.values[span]
        return self.slots[span], values.view(np.float64) if self.floats[at] else values


def _compared(where: OneOf | Bound, values: _Values) -> Mask:
    if isinstance(where, OneOf):
        return np.isin(values, np.array(where.values, dtype=np.int64))
    match where.comparison:
        case "lt":
            found = values < where.value
        case "le":
            found = values <= where.value
        case "gt":
            found = values > where.value
        case "ge":
            found = values >= where.value
    return found
