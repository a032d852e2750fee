"""Sealed filters as Milvus expressions, of keys that we made and numbers alone: servers before 2.5 take no templates.

Metadata is a JSON field, `metadata["m..."]`. A comparison with a missing key is false; `!=` is never written, since
its meaning for missing keys differs between versions, nor a negative that could overflow.
"""

from __future__ import annotations

import math
import re
from typing import Final

from indexing.filters.sealed import Bound, OneOf, SealedFilter
from indexing.filters.tree import All, Any, Not

METADATA: Final = "metadata"
"""The JSON field that holds a point's metadata."""

_KEY: Final = re.compile(r"m[0-9a-f]{16}")
_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def compile_expression(where: SealedFilter) -> str:
    """The expression that is true of the points whose metadata `where` describes; ASCII, in parentheses."""
    match where:
        case All(parts):
            return f"({' and '.join(compile_expression(part) for part in parts)})"
        case Any(parts):
            return f"({' or '.join(compile_expression(part) for part in parts)})"
        case Not(part):
            return f"(not {compile_expression(part)})"
        case OneOf(key, values):
            return f"({_field(key)} in [{', '.join(map(_number, values))}])"
        case Bound(key, comparison, value):
            return f"({_field(key)} {_SIGNS[comparison]} {_number(value)})"


def _field(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("an expression takes typed keys alone")
    return f'{METADATA}["{key}"]'


def _number(value: int | float) -> str:
    """Digits of a number. Raises `ValueError` for anything else, so that no text can become part of an expression."""
    if type(value) is int and -(2**63) < value < 2**63:
        return str(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    raise ValueError("an expression takes numbers alone")
