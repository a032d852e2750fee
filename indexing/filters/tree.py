"""What a filter is: a tree of comparisons of declared metadata fields with values.

A comparison is true only of a value of the declared type. Where a document lacks the field, or holds a value of
another type in it, every comparison is false, `ne` included, and `Not` of it is true.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeAlias, TypeVar

from tenancy.fields import FieldType

Operator = Literal["eq", "ne", "in", "lt", "le", "gt", "ge", "exists"]
Value = str | int | float | bool
Leaf = TypeVar("Leaf", covariant=True)

_EVERY: Final[frozenset[Operator]] = frozenset({"eq", "ne", "in", "exists"})
_ORDERED: Final[frozenset[Operator]] = _EVERY | {"lt", "le", "gt", "ge"}
OPERATORS: Final[dict[FieldType, frozenset[Operator]]] = {
    "string": _EVERY,
    "integer": _ORDERED,
    "number": _ORDERED,
    "boolean": _EVERY,
}
"""Text has no order: which one is meant differs between languages, and an engine knows hashes of it only."""


@dataclass(frozen=True, slots=True)
class All(Generic[Leaf]):
    """True where every part is; there is at least one."""

    parts: tuple[Tree[Leaf], ...]


@dataclass(frozen=True, slots=True)
class Any(Generic[Leaf]):
    """True where some part is; there is at least one."""

    parts: tuple[Tree[Leaf], ...]


@dataclass(frozen=True, slots=True)
class Not(Generic[Leaf]):
    """True where the part is not, also where the part's field is missing."""

    part: Tree[Leaf]


Tree: TypeAlias = All[Leaf] | Any[Leaf] | Not[Leaf] | Leaf


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison. `value` is of `type` (text in NFC, a number as float), a tuple of such for `in`, sorted and
    without repetition, and True for `exists`.
    """

    field: str
    type: FieldType
    operator: Operator
    value: Value | tuple[Value, ...]


Filter: TypeAlias = Tree[Compare]


def canonical(where: Filter) -> str:
    """The filter as JSON (ASCII), the same text for the same tree: what a cached answer is bound to.

    The types are part of it: the same comparison means something else once its field is declared with another type.
    """
    return json.dumps(_plain(where), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _plain(where: Filter) -> dict[str, object]:
    match where:
        case All(parts):
            return {"all": [_plain(part) for part in parts]}
        case Any(parts):
            return {"any": [_plain(part) for part in parts]}
        case Not(part):
            return {"not": _plain(part)}
        case Compare():
            return {"field": where.field, "type": where.type, where.operator: where.value}
