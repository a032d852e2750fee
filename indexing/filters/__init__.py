"""User filters: a typed tree over declared metadata fields, the same documents on every engine."""

from indexing.filters.columns import Columns
from indexing.filters.evaluate import matches
from indexing.filters.reading import misfits, parse
from indexing.filters.sealed import Bound, OneOf, SealedFilter, Sealer, engine_metadata, seal
from indexing.filters.tree import All, Any, Compare, Filter, Not, canonical
from tenancy.fields import FieldType

__all__ = [
    "All",
    "Any",
    "Bound",
    "Columns",
    "Compare",
    "FieldType",
    "Filter",
    "Not",
    "OneOf",
    "SealedFilter",
    "Sealer",
    "canonical",
    "engine_metadata",
    "matches",
    "misfits",
    "parse",
    "seal",
]
