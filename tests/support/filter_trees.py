"""Filters and documents for property tests, and what a filter means in a few lines that share no code with the product.

The oracle reads the request's JSON, not the parsed tree.
"""

from __future__ import annotations

import math
import random
import sys
import unicodedata
from typing import Any

from hypothesis import strategies as st

from tenancy.fields import FieldType

FIELDS: dict[str, FieldType] = {
    "year": "integer",
    "price": "number",
    "dept": "string",
    "draft": "boolean",
    'a "quoted" \\ field': "string",
    "übung": "number",
}
TEXTS = [
    "", "legal", "Legal", "legal ", "l_gal", "%", "_", "'", '"', "\\", "\\\\", '" or true or "',
    "'; DROP TABLE chunks;--", "a\x00b", "a\nb", "m0123456789abcdef", "true", "1", "1.0", "nan", "null",
    "北京", "Москва", "عربى", "é", "e\u0301",
    "\u212b", "Å", "🙂", "\ufffd", "\uffff", "x" * 1000, "]", "metadata", "$", "{}",
]  # fmt: skip
INTEGERS = [0, 1, -1, 5, 2023, 2024, 2025, 2**31, -(2**31), 2**53 - 1, -(2**53 - 1), 2**52 + 1]
FLOATS = [
    0.0, -0.0, 0.1, -0.1, 0.1 + 0.2, 0.3, 1.0, 5.0, 2024.0, 2024.5, 1e300, -1e300, sys.float_info.max,
    -sys.float_info.max, sys.float_info.min, 5e-324, -5e-324, math.nextafter(1.0, 2.0), float(2**53), 2.0**63, 1e19,
]  # fmt: skip
STORED_ONLY: list[Any] = [
    2**53,
    -(2**53),
    2**63,
    2**64 + 1,
    -(10**400),
    10**400,
    math.inf,
    math.nan,
    "\ud800",
    "\ud801",
]


def documents(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """Metadata with every kind of value in every field, mostly of the declared type, and fields that are missing."""
    chance = random.Random(seed)
    pools: dict[FieldType, list[Any]] = {
        "string": TEXTS, "integer": INTEGERS, "number": [*FLOATS, *INTEGERS], "boolean": [True, False],
    }  # fmt: skip
    strange = [*TEXTS, *INTEGERS, *FLOATS, *STORED_ONLY, True, False]
    made = []
    for _ in range(count):
        metadata = {}
        for name, kind in FIELDS.items():
            roll = chance.random()
            if roll < 0.7:
                metadata[name] = chance.choice(pools[kind])
            elif roll < 0.85:
                metadata[name] = chance.choice(strange)
        metadata["secret"] = "undeclared"
        made.append(metadata)
    return made


def oracle(tree: dict[str, Any], metadata: dict[str, Any]) -> bool:
    """Whether a document is one of those that the JSON `tree` asks for."""
    if "all" in tree:
        return all(oracle(part, metadata) for part in tree["all"])
    if "any" in tree:
        return any(oracle(part, metadata) for part in tree["any"])
    if "not" in tree:
        return not oracle(tree["not"], metadata)
    value = metadata.get(tree["field"])
    fits = _fits(value, FIELDS[tree["field"]])
    if fits and FIELDS[tree["field"]] == "number":
        value = float(value)
    return all(_holds(operator, value, fits, asked) for operator, asked in tree.items() if operator != "field")


def _fits(value: Any, kind: FieldType) -> bool:
    if kind == "string":
        return type(value) is str
    if kind == "boolean":
        return type(value) is bool
    if kind == "integer":
        return type(value) is int and -(2**53) < value < 2**53
    return (type(value) is int and abs(value) < 10**300) or (type(value) is float and math.isfinite(value))


def _holds(operator: str, value: Any, fits: bool, asked: Any) -> bool:
    if operator == "exists":
        return fits == asked
    if not fits:
        return False
    if operator == "in":
        return any(_same(value, one) for one in asked)
    if operator == "eq":
        return _same(value, asked)
    if operator == "ne":
        return not _same(value, asked)
    return {"lt": value < asked, "le": value <= asked, "gt": value > asked, "ge": value >= asked}[operator]


def _same(value: Any, asked: Any) -> bool:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value) == unicodedata.normalize("NFC", asked)
    return bool(value == asked)


# What a request may ask with: JSON has neither NaN nor infinities, and nothing over 2^53 - 1 is a whole number.
_values: dict[FieldType, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(TEXTS) | st.text(max_size=12),
    "integer": st.sampled_from(INTEGERS) | st.integers(-(2**53) + 1, 2**53 - 1),
    "number": st.sampled_from(FLOATS)
    | st.sampled_from(INTEGERS)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53) + 1, 2**53 - 1),
    "boolean": st.booleans(),
}


@st.composite
def _leaves(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(FIELDS)))
    kind = FIELDS[name]
    ordered = ["lt", "le", "gt", "ge"] if kind in {"integer", "number"} else []
    operators = draw(st.sets(st.sampled_from(["eq", "ne", "in", "exists", *ordered]), min_size=1, max_size=2))
    leaf: dict[str, Any] = {"field": name}
    for operator in sorted(operators):
        if operator == "exists":
            leaf[operator] = draw(st.booleans())
        elif operator == "in":
            leaf[operator] = draw(st.lists(_values[kind], min_size=1, max_size=6))
        else:
            leaf[operator] = draw(_values[kind])
    return leaf


def _nodes(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(parts, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda parts: {"all": parts}),
        several.map(lambda parts: {"any": parts}),
        parts.map(lambda part: {"not": part}),
    )


trees = st.recursive(_leaves(), _nodes, max_leaves=6)
