"""Filters as JSON, read against the fields that the tenant's contract declares.

    {"all": [...]}   {"any": [...]}   {"not": {...}}
    {"field": "year", "ge": 2020, "lt": 2025}        several comparisons: all of them

Nothing is converted and nothing ignored. An error names the place in the filter; it repeats no name or value of the
request, and says nothing about documents.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Final, get_args

from indexing.filters.tree import OPERATORS, All, Any, Compare, Filter, Not, Operator, Value
from tenancy.errors import InvalidInput
from tenancy.fields import MAX_INTEGER, FieldType

MAX_DEPTH: Final = 8
"""Levels of `all`, `any` and `not` around a comparison."""
MAX_NODES: Final = 100
"""Nodes and comparisons in all."""
MAX_LIST: Final = 200
"""Values of one `in`."""
MAX_VALUES: Final = 1_000
"""Values of the whole filter."""
MAX_TEXT: Final = 1_000
"""Characters of one value."""

_OPERATORS: Final[tuple[Operator, ...]] = get_args(Operator)
_FORMS: Final = 'a filter is {"all": [...]}, {"any": [...]}, {"not": {...}} or {"field": NAME, OPERATOR: VALUE}'
_SHOWN: Final = 20
_KINDS: Final[dict[FieldType, str]] = {
    "string": "text",
    "integer": f"an integer within ±{MAX_INTEGER}",
    "number": f"a finite number, if whole within ±{MAX_INTEGER}",
    "boolean": "true or false",
}


def parse(data: object, fields: Mapping[str, FieldType], *, item: str = "filter") -> Filter:
    """The filter that `data` (decoded JSON) says, over the declared `fields`. Raises `InvalidInput`."""
    if not fields:
        raise InvalidInput(
            "this tenant declares no metadata fields",
            item=item,
            remedy="declare the field with its type in the tenant's contract, or leave the filter out",
        )
    return _Reader(fields).node(data, item, 0)


class _Reader:
    """One filter being read; counts what it has read against the limits."""

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = {unicodedata.normalize("NFC", name): kind for name, kind in fields.items()}
        self._nodes = 0
        self._values = 0

    def node(self, data: object, where: str, depth: int) -> Filter:
        if not isinstance(data, dict):
            raise _refusal("this is no object", where, _FORMS)
        self._count(where)
        match data:
            case {"all": parts, **rest} if not rest:
                return All(self._parts(parts, f"{where}.all", depth))
            case {"any": parts, **rest} if not rest:
                return Any(self._parts(parts, f"{where}.any", depth))
            case {"not": part, **rest} if not rest:
                return Not(self.node(part, f"{where}.not", _deeper(where, depth)))
            case {"field": name, **comparisons}:
                return self._leaf(name, comparisons, where)
            case _:
                raise _refusal(
                    "this is neither all, any, not nor a comparison, or more than one of them", where, _FORMS
                )

    def _parts(self, data: object, where: str, depth: int) -> tuple[Filter, ...]:
        if not isinstance(data, list) or not data:
            # Empty, "all" is true of everything and "any" of nothing: more often a mistake than a wish.
            raise _refusal("this is no list with at least one filter in it", where, "leave an empty list out")
        inner = _deeper(where, depth)
        return tuple(self.node(part, f"{where}[{position}]", inner) for position, part in enumerate(data))

    def _leaf(self, name: object, comparisons: dict[object, object], where: str) -> Filter:
        name = unicodedata.normalize("NFC", name) if isinstance(name, str) else ""
        kind = self._fields.get(name)
        if kind is None:
            raise _refusal("no such field is declared", f"{where}.field", self._declared())
        known = [operator for operator in _OPERATORS if operator in comparisons and operator in OPERATORS[kind]]
        if len(known) != len(comparisons):
            allowed = ", ".join(operator for operator in _OPERATORS if operator in OPERATORS[kind])
            raise _refusal(
                f"there is an operator that a field of type {kind} does not have", where, f"it has {allowed}"
            )
        if not known:
            raise _refusal("the comparison has no operator", where, _FORMS)
        found = tuple(self._compare(name, kind, operator, comparisons[operator], where) for operator in known)
        return found[0] if len(found) == 1 else All(found)

    def _compare(self, name: str, kind: FieldType, operator: Operator, data: object, where: str) -> Filter:
        where = f"{where}.{operator}"
        self._count(where)
        if operator == "exists":
            if not isinstance(data, bool):
                raise _refusal("this is neither true nor false", where, "write true or false")
            present = Compare(name, kind, operator, True)
            return present if data else Not(present)
        if operator != "in":
            return Compare(name, kind, operator, self._value(data, kind, where))
        if not isinstance(data, list) or not 1 <= len(data) <= MAX_LIST:
            raise _refusal(
                f"this is no list of 1 to {MAX_LIST} values", where, "split a longer list over several filters"
            )
        values = {self._value(value, kind, f"{where}[{position}]") for position, value in enumerate(data)}
        return Compare(name, kind, operator, tuple(sorted(values)))

    def _value(self, data: object, kind: FieldType, where: str) -> Value:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _refusal(f"the filter holds more than {MAX_VALUES} values", where, "ask with a smaller filter")
        if kind == "string":
            if isinstance(data, str) and len(data) > MAX_TEXT:
                raise _refusal(f"the text is over {MAX_TEXT} characters", where, "no longer text can be compared with")
            if isinstance(data, str) and any("\ud800" <= character <= "\udfff" for character in data):
                raise _refusal("the text holds a lone surrogate, which is no character", where, "remove it")
        value = value_of(data, kind)
        if value is None or (kind == "number" and isinstance(data, int) and abs(data) > MAX_INTEGER):
            raise _refusal(f"this is not {_KINDS[kind]}", where, f"the field is declared as {kind}")
        return value

    def _count(self, where: str) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise _refusal(f"the filter has more than {MAX_NODES} parts", where, "ask with a smaller filter")

    def _declared(self) -> str:
        names = sorted(self._fields)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        return f"declare it in the tenant's contract; declared are {', '.join(names[:_SHOWN])}{more}"


def value_of(data: object, kind: FieldType) -> Value | None:
    """`data` as a value of a field of type `kind`, None where it is of another type.

    Text is compared in NFC. A number is a 64-bit float, and zero has no sign; an integer becomes the nearest one.
    """
    if kind == "boolean":
        return data if isinstance(data, bool) else None
    if kind == "string":
        return unicodedata.normalize("NFC", data) if isinstance(data, str) else None
    if isinstance(data, bool) or not isinstance(data, int | float):
        return None
    if kind == "integer":
        return data if isinstance(data, int) and abs(data) <= MAX_INTEGER else None
    try:
        number = float(data) + 0.0
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def misfits(metadata: Mapping[str, object], fields: Mapping[str, FieldType]) -> list[str]:
    """The declared fields in which a document holds a value of another type, by name: no filter finds it there."""
    return sorted(name for name, kind in fields.items() if name in metadata and value_of(metadata[name], kind) is None)


def _deeper(where: str, depth: int) -> int:
    if depth == MAX_DEPTH:
        raise _refusal(f"the filter is nested over {MAX_DEPTH} deep", where, "write it flatter")
    return depth + 1


def _refusal(reason: str, where: str, remedy: str) -> InvalidInput:
    return InvalidInput(reason, item=where, remedy=remedy)
