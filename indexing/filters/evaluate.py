"""What a filter means, in plain Python: the reference that every engine is held against."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any as Anything
from typing import Final

from indexing.filters.reading import value_of
from indexing.filters.tree import All, Any, Compare, Filter, Not, Operator

_TESTS: Final[dict[Operator, Callable[[Anything, Anything], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "in": lambda value, values: value in values,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "exists": lambda value, _: value is not None,
}


def matches(where: Filter, metadata: Mapping[str, object]) -> bool:
    """Whether a document with `metadata` (names in NFC) is one of those that `where` describes."""
    match where:
        case All(parts):
            return all(matches(part, metadata) for part in parts)
        case Any(parts):
            return any(matches(part, metadata) for part in parts)
        case Not(part):
            return not matches(part, metadata)
        case Compare():
            value = value_of(metadata.get(where.field), where.type)
            return value is not None and _TESTS[where.operator](value, where.value)
