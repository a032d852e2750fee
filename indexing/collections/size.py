"""How much memory a collection will take, from a few numbers of its database, before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ScalarSelect, func, select

from indexing.catalogue import EMBEDDED, Collection
from tenancy.schema import chunks, documents
from tenancy.tenant import ReadView

_SAMPLE: Final = 64
"""Chunks at either end whose terms are measured."""

_OBJECTS: Final = 8_192
_A_DOCUMENT: Final = 120
_A_CHUNK: Final = 24
_A_ROW: Final = 700
"""Python's own objects around one row while it is read."""

_POSTINGS: Final = 1.2
"""Bytes of postings for a stored byte of terms, at most."""


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: `kept` by the snapshot, `peak` while it is made."""

    kept: int
    peak: int


def _terms(newest: bool) -> ScalarSelect[Any]:
    order = chunks.c.id.desc() if newest else chunks.c.id
    sample = select(func.length(chunks.c.terms).label("bytes")).order_by(order).limit(_SAMPLE).subquery()
    return select(func.coalesce(func.avg(sample.c.bytes), 0)).scalar_subquery()


# Both counts are read from indexes, and the texts are not touched.
_NUMBERS: Final = select(
    select(func.count()).select_from(chunks).scalar_subquery().label("chunks"),
    select(func.count()).select_from(documents).scalar_subquery().label("documents"),
    _terms(False).label("oldest"),
    _terms(True).label("newest"),
)


def estimate(view: ReadView, collection: Collection | None, dimension: int) -> Size:
    """The memory for `collection` in `view`, whose vectors have `dimension`; a server engine's take none here."""
    row = view.execute(_NUMBERS).one()
    embedded = collection is not None and collection.engine == EMBEDDED
    vectors = 4 * dimension * row.chunks if embedded else 0
    terms = int(row.chunks * max(row.oldest, row.newest))
    kept = _OBJECTS + vectors + int(_POSTINGS * terms) + _A_CHUNK * row.chunks + _A_DOCUMENT * row.documents
    return Size(kept, kept + 2 * vectors + 2 * terms + _A_ROW * row.chunks)
