"""Metadata and filters as numbers under typed keys: all that an index or an engine ever sees of them.

A field's key is a keyed hash of its name and a type, so that one field may hold values of several types and each is
found under its own; text is a keyed hash too. The hash key is the tenant's own (purpose "metadata").
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from indexing.filters.reading import value_of
from indexing.filters.tree import All, Any, Compare, Filter, Not, Tree
from tenancy.fields import FIELD_TYPES, MAX_INTEGER, FieldType
from tenancy.names import enc

Number = int | float
"""What stands under a typed key: `integer` an int within ±(2^53 - 1), `string` an int from 0 to 2^63 - 1, `number` a
finite float that is never -0.0, `boolean` 0 or 1 (engines and their clients differ in how they take a truth value)."""
Comparison = Literal["lt", "le", "gt", "ge"]

PURPOSE: Final = "metadata"
"""The purpose of `TenantHandle.keys` whose key seals a tenant's metadata and filters."""

_TEXT_BITS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OneOf:
    """True where a value stands under `key` that is among `values` (at least one)."""

    key: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """True where a value stands under `key` that compares so with `value` (an int or a finite float)."""

    key: str
    comparison: Comparison
    value: int | float


SealedFilter: TypeAlias = Tree[OneOf | Bound]


class Sealer:
    """Seals the metadata and the filters of one tenant. `key` is that of `PURPOSE`; for one thread at a time."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(digest_size=8, key=key, person=b"sr-metadata")
        self._keys: dict[tuple[str, FieldType], str] = {}

    def metadata(self, metadata: Mapping[str, object]) -> dict[str, Number]:
        """The values by typed key; those that no filter can find are left out."""
        sealed: dict[str, Number] = {}
        for name, data in metadata.items():
            for kind in FIELD_TYPES:
                value = value_of(data, kind)
                if value is not None:
                    sealed[self._key(name, kind)] = self._number(value)
        return sealed

    def filter(self, where: Filter) -> SealedFilter:
        """A filter that compares sealed metadata as `where` compares metadata."""
        match where:
            case All(parts):
                return All(tuple(self.filter(part) for part in parts))
            case Any(parts):
                return Any(tuple(self.filter(part) for part in parts))
            case Not(part):
                return Not(self.filter(part))
            case Compare():
                return self._comparison(where)

    def _comparison(self, where: Compare) -> SealedFilter:
        key = self._key(where.field, where.type)
        values = tuple(self._number(value) for value in _several(where))
        if where.operator == "exists":
            return _present(key, where.type)
        if where.operator == "ne":
            return All((_present(key, where.type), Not(_equal(key, where.type, values))))
        if where.operator == "eq" or where.operator == "in":
            return _equal(key, where.type, values)
        return Bound(key, where.operator, values[0])

    def _key(self, name: str, kind: FieldType) -> str:
        found = self._keys.get((name, kind))
        if found is None:
            found = self._keys[name, kind] = f"m{self._digest(enc('key', _bytes(name), kind)):016x}"
        return found

    def _number(self, value: str | int | float | bool) -> Number:
        if isinstance(value, str):
            return self._digest(b"text" + _bytes(value)) & _TEXT_BITS
        return int(value) if isinstance(value, bool) else value

    def _digest(self, data: bytes) -> int:
        hashed = self._hash.copy()
        hashed.update(data)
        return int.from_bytes(hashed.digest())


def seal(where: Filter, key: bytes) -> SealedFilter:
    """`where` for the collections and engines of the tenant whose `key` this is (of `PURPOSE`)."""
    return Sealer(key).filter(where)


def engine_metadata(metadata: Mapping[str, object], key: bytes) -> dict[str, Number]:
    """What an engine stores of a document's `metadata`: numbers by typed key ("m" and 16 hex digits)."""
    return Sealer(key).metadata(metadata)


def _several(where: Compare) -> tuple[str | int | float | bool, ...]:
    return where.value if isinstance(where.value, tuple) else (where.value,)


def _equal(key: str, kind: FieldType, values: tuple[Number, ...]) -> SealedFilter:
    if kind != "number":
        return OneOf(key, tuple(int(value) for value in values))
    # Engines match whole numbers and ranges of floats; a range of one value is that value.
    equal: list[SealedFilter] = [All((Bound(key, "ge", value), Bound(key, "le", value))) for value in values]
    return equal[0] if len(equal) == 1 else Any(tuple(equal))


def _present(key: str, kind: FieldType) -> SealedFilter:
    """True of every value of the type: engines agree about ranges, not about what a missing key is."""
    if kind == "boolean":
        return OneOf(key, (0, 1))
    lowest = {"string": 0, "integer": -MAX_INTEGER, "number": -sys.float_info.max}
    return Bound(key, "ge", lowest[kind])


def _bytes(text: str) -> bytes:
    """Stored text may hold what is no character: it is kept apart from all that is."""
    return text.encode("utf-8", "surrogatepass")
