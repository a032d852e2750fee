"""Sealed filters as Milvus expressions, of keys that we made and whole numbers alone (2.3 takes no templates).

Metadata is a JSON field, `metadata["m..."]`. A comparison with a missing key is false; `!=` is never written, since
its meaning for missing keys differs between versions.

Servers take an expression apart level by level and refuse one of about a hundred: long chains are written as trees.
"""

from __future__ import annotations

import re
from typing import Final

from indexing.filters.sealed import Bound, OneOf, SealedFilter
from indexing.filters.tree import All, Any, Not

METADATA: Final = "metadata"
"""The JSON field that holds a point's metadata."""
ALLOW: Final = "allow"
DENY: Final = "deny"
"""The array fields that hold label ids."""

_KEY: Final = re.compile(r"m[0-9a-f]{16}")
_SIGNS: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def readable_expression(labels: frozenset[int], where: SealedFilter | None) -> str:
    """Allowed by one of `labels`, denied by none, and matching `where`. Raises `ValueError` for no labels.

    All labels stand in one list: 5,000 of them take 0.1 s, and as many pieces joined by `or` are refused.
    """
    if not labels:
        raise ValueError("an empty set of labels reads nothing; no engine is asked")
    held = ",".join(map(_number, sorted(labels)))
    readable = f"array_contains_any({ALLOW}, [{held}]) and (not array_contains_any({DENY}, [{held}]))"
    return readable if where is None else f"({readable}) and {compile_expression(where)}"


def compile_expression(where: SealedFilter) -> str:
    """The expression that is true of the points whose metadata `where` describes; ASCII, in parentheses."""
    match where:
        case All(parts):
            return _balanced("and", [compile_expression(part) for part in parts])
        case Any(parts):
            return _balanced("or", [compile_expression(part) for part in parts])
        case Not(part):
            return f"(not {compile_expression(part)})"
        case OneOf(key, values):
            return f"({_field(key)} in [{', '.join(map(_number, values))}])"
        case Bound(key, comparison, value):
            return f"({_field(key)} {_SIGNS[comparison]} {_number(value)})"


def _balanced(word: str, parts: list[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return f"({_balanced(word, parts[:half])} {word} {_balanced(word, parts[half:])})"


def _field(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("an expression takes typed keys alone")
    return f'{METADATA}["{key}"]'


def _number(value: int) -> str:
    """Digits of a number. Raises `ValueError` for anything else, so that no text can become part of an expression."""
    if type(value) is not int or not -(2**63) < value < 2**63:
        raise ValueError("an expression takes whole numbers alone")
    return str(value)
