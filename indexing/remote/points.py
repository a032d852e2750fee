"""A tenant's chunks as points for an engine, read from its database piece by piece."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Select, bindparam, func, select

from indexing.catalogue import Collection
from indexing.engine import Point
from indexing.filters import Sealer
from tenancy.errors import Corrupt
from tenancy.schema import acl, chunks, documents, vectors
from tenancy.tenant import ReadView, TenantHandle

PIECE_BYTES: Final = 8 << 20
"""Vectors in memory at a time."""

_ROWS: Final = (
    select(chunks.c.id, chunks.c.document_id, vectors.c.vector, documents.c.metadata)
    .join(documents, documents.c.id == chunks.c.document_id)
    .outerjoin(vectors, (vectors.c.chunk_id == chunks.c.id) & (vectors.c.model_id == bindparam("model")))
    .where(chunks.c.id > bindparam("after"))
    .order_by(chunks.c.id)
    .limit(bindparam("limit"))
)
_ROWS_OF: Final = _ROWS.where(chunks.c.document_id.in_(bindparam("documents", expanding=True)))
_LISTS: Final = select(acl.c.document_id, acl.c.label_id, acl.c.effect).where(
    acl.c.document_id.in_(bindparam("documents", expanding=True))
)
_IDS: Final = select(chunks.c.id).order_by(chunks.c.id)
_COUNT: Final = select(func.count()).select_from(chunks)


def all_points(tenant: TenantHandle, collection: Collection, dimension: int) -> Iterator[list[Point]]:
    """Every chunk, each piece in a transaction of its own: a long build holds no state of the database.

    What changes meanwhile is in the list of changes behind the number that the caller read before.
    Raises `Corrupt`.
    """
    after = 0
    while True:
        with tenant.reading() as view:
            points = _piece(view, collection, _ROWS, {"model": collection.model.id, "after": after}, dimension)
        if not points:
            return
        yield points
        after = points[-1].chunk_id


def points_of(
    tenant: TenantHandle, collection: Collection, dimension: int, document_ids: Sequence[int]
) -> Iterator[list[Point]]:
    """The chunks of some documents, of those that still exist; transactions as in `all_points`. Raises `Corrupt`."""
    after = 0
    while True:
        parameters = {"model": collection.model.id, "after": after, "documents": list(document_ids)}
        with tenant.reading() as view:
            points = _piece(view, collection, _ROWS_OF, parameters, dimension)
        if not points:
            return
        yield points
        after = points[-1].chunk_id


def stored_ids(view: ReadView) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The ids of all chunks, ascending."""
    return np.fromiter(view.execute(_IDS).scalars(), dtype=np.int64)


def stored_count(view: ReadView) -> int:
    return int(view.execute(_COUNT).scalar_one())


def _piece(
    view: ReadView,
    collection: Collection,
    query: Select[tuple[object, ...]],
    parameters: dict[str, object],
    dimension: int,
) -> list[Point]:
    limit = max(1, PIECE_BYTES // (4 * dimension))
    rows = view.execute(query, {**parameters, "limit": limit}).all()
    lists = _lists(view, {row.document_id for row in rows})
    sealer = Sealer(collection.sealing)
    metadata = {row.document_id: row.metadata for row in rows}
    sealed = {document_id: sealer.metadata(found) for document_id, found in metadata.items()}
    points = []
    for row in rows:
        if len(row.vector or b"") != 4 * dimension:
            raise Corrupt(
                f"a stored vector has {len(row.vector or b'')} bytes, not {4 * dimension}",
                item=f"chunk {row.id}",
                remedy="ingest the document again",
            )
        allow, deny = lists[row.document_id]
        vector = np.frombuffer(row.vector, dtype="<f4").astype(np.float32)
        labels = tuple(sorted(allow)), tuple(sorted(deny))
        points.append(Point(row.id, row.document_id, vector, *labels, sealed[row.document_id]))
    return points


def _lists(view: ReadView, document_ids: set[int]) -> defaultdict[int, tuple[list[int], list[int]]]:
    """The label ids that allow and that deny, by document."""
    lists: defaultdict[int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    ordered = sorted(document_ids)
    for start in range(0, len(ordered), 10_000):
        for row in view.execute(_LISTS, {"documents": ordered[start : start + 10_000]}):
            lists[row.document_id][row.effect == "deny"].append(row.label_id)
    return lists
