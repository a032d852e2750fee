"""Sizes of the pair classifier, apart from it so that a manifest is read without torch."""

from __future__ import annotations

from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`window` is the longest pair in tokens, special ones included."""

    layers: Positive
    hidden: Positive
    heads: Positive
    intermediate: Positive
    vocabulary: Positive
    positions: Positive
    window: Positive
