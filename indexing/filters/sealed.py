"""Metadata and filters as whole numbers under typed keys: all that an index or an engine ever sees of them.

A field's key is a keyed hash of its name and a type, so that one field may hold values of several types and each is
found under its own; text is a keyed hash too. The key is that of the collection (`Collection.sealing`).

A float is two whole numbers, the high and the low half of its bits in the order of the floats: Qdrant reads decimals
inexactly (9007199254740991.0 becomes ...990.0), and compares whole numbers over 2^53 as floats.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal, TypeAlias

from indexing.filters.reading import value_of
from indexing.filters.tree import All, Any, Compare, Filter, Not, Tree, Value
from tenancy.fields import MAX_INTEGER, FieldType
from tenancy.names import enc

Comparison = Literal["lt", "le", "gt", "ge"]

Part = FieldType | Literal["number, low half"]
"""What stands under a key: the hash of a text from 0 to 2^63 - 1, an integer itself, 0 or 1 for a boolean; of a number
the high half of its float, from -2^31, and the low half, from 0, of 32 bits each."""

_KINDS: Final[dict[type, tuple[FieldType, ...]]] = {
    str: ("string",), bool: ("boolean",), int: ("integer", "number"), float: ("number",),
}  # fmt: skip
_LOW: Final = "number, low half"
_LEAST: Final[dict[FieldType, int]] = {"string": 0, "integer": -MAX_INTEGER, "number": -(2**31), "boolean": 0}
_TEXT_BITS: Final = 2**63 - 1
_ALL_BUT_SIGN: Final = 2**63 - 1
_FLOAT: Final = Struct("=d")
_INTEGER: Final = Struct("=q")


@dataclass(frozen=True, slots=True)
class OneOf:
    """True where a number stands under `key` that is among `values` (at least one)."""

    key: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """True where a number stands under `key` that compares so with `value`, which is within ±2^53."""

    key: str
    comparison: Comparison
    value: int


SealedFilter: TypeAlias = Tree[OneOf | Bound]


class Sealer:
    """Seals metadata and filters for one collection, whose `key` (32 bytes) it is; for one thread at a time."""

    def __init__(self, key: bytes) -> None:
        self._hash = hashlib.blake2b(digest_size=8, key=key, person=b"sr-metadata")
        self._keys: dict[tuple[str, Part], str] = {}

    def metadata(self, metadata: Mapping[str, object]) -> dict[str, int]:
        """The values by typed key; those that no filter can find are left out."""
        sealed: dict[str, int] = {}
        for name, data in metadata.items():
            for kind in _KINDS.get(type(data), ()):
                value = value_of(data, kind)
                if isinstance(value, float):
                    sealed[self._key(name, "number")], sealed[self._key(name, _LOW)] = _halves(value)
                elif value is not None:
                    key = self._key(name, kind)
                    sealed[key] = self._number(key, value)
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
        values = where.value if isinstance(where.value, tuple) else (where.value,)
        if where.operator == "exists":
            # Engines agree about ranges, not about what a missing key is.
            return Bound(key, "ge", _LEAST[where.type])
        if where.operator == "ne":
            return All((Bound(key, "ge", _LEAST[where.type]), Not(self._equal(where, key, values))))
        if where.operator == "eq" or where.operator == "in":
            return self._equal(where, key, values)
        if where.type != "number":
            return Bound(key, where.operator, self._number(key, values[0]))
        high, low = _halves(float(values[0]))
        strictly: Comparison = "lt" if where.operator in {"lt", "le"} else "gt"
        return Any(
            (
                Bound(key, strictly, high),
                All((OneOf(key, (high,)), Bound(self._key(where.field, _LOW), where.operator, low))),
            )
        )

    def _equal(self, where: Compare, key: str, values: tuple[Value, ...]) -> SealedFilter:
        if where.type != "number":
            return OneOf(key, tuple(self._number(key, value) for value in values))
        lows: dict[int, list[int]] = {}
        for value in values:
            high, low = _halves(float(value))
            lows.setdefault(high, []).append(low)
        low_key = self._key(where.field, _LOW)
        equal = tuple(All((OneOf(key, (high,)), OneOf(low_key, tuple(low)))) for high, low in lows.items())
        return equal[0] if len(equal) == 1 else Any(equal)

    def _key(self, name: str, part: Part) -> str:
        found = self._keys.get((name, part))
        if found is None:
            found = self._keys[name, part] = f"m{self._digest(enc('key', _bytes(name), part)):016x}"
        return found

    def _number(self, key: str, value: Value) -> int:
        """Text is hashed with its key: that two fields hold the same does not show either."""
        return self._digest(key.encode() + _bytes(value)) & _TEXT_BITS if isinstance(value, str) else int(value)

    def _digest(self, data: bytes) -> int:
        hashed = self._hash.copy()
        hashed.update(data)
        return int.from_bytes(hashed.digest())


def seal(where: Filter, key: bytes) -> SealedFilter:
    """`where` for the collection whose `key` this is."""
    return Sealer(key).filter(where)


def engine_metadata(metadata: Mapping[str, object], key: bytes) -> dict[str, int]:
    """What an engine stores of a document's `metadata`: whole numbers by typed key ("m" and 16 hex digits)."""
    return Sealer(key).metadata(metadata)


def _halves(value: float) -> tuple[int, int]:
    """Two numbers that order floats as the floats are ordered: a signed one, then an unsigned one, of 32 bits each."""
    bits: int = _INTEGER.unpack(_FLOAT.pack(value))[0]
    ordered = bits if bits >= 0 else bits ^ _ALL_BUT_SIGN
    return ordered >> 32, ordered & 0xFFFF_FFFF


def _bytes(text: str) -> bytes:
    """Stored text may hold what is no character: it is kept apart from all that is."""
    return text.encode("utf-8", "surrogatepass")
