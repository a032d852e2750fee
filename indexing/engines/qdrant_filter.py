"""Sealed filters as Qdrant's typed conditions. No text is ever put together; keys and values are numbers.

Qdrant compares ranges as 64-bit floats, which hold every bound that there is, and matches whole numbers as 64-bit
integers. A condition on a missing key is false, and `must_not` of it true.
"""

from __future__ import annotations

from qdrant_client import models

from indexing.filters.sealed import Bound, OneOf, SealedFilter
from indexing.filters.tree import All, Any, Not

_LIMITS = {"lt": "lt", "le": "lte", "gt": "gt", "ge": "gte"}


def compile_filter(where: SealedFilter) -> models.Filter:
    """The filter that is true of the points whose metadata `where` describes."""
    match where:
        case All(parts):
            return models.Filter(must=[compile_filter(part) for part in parts])
        case Any(parts):
            return models.Filter(should=[compile_filter(part) for part in parts])
        case Not(part):
            return models.Filter(must_not=[compile_filter(part)])
        case OneOf(key, values):
            return models.Filter(must=[models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))])
        case Bound(key, comparison, value):
            limits = {_LIMITS[comparison]: float(value)}
            return models.Filter(must=[models.FieldCondition(key=key, range=models.Range(**limits))])
