"""Types of the metadata fields that a tenant's contract declares, so that questions may filter by them."""

from __future__ import annotations

from typing import Final, Literal, get_args

FieldType = Literal["string", "integer", "number", "boolean"]
FIELD_TYPES: Final[tuple[FieldType, ...]] = get_args(FieldType)

MAX_INTEGER: Final = 2**53 - 1
"""Integers lie within this, positive or negative: every engine and every JSON reader compares them exactly."""
