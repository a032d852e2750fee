"""Snapshots from the tenant's database: the whole collection, or what changed since an earlier snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection as Collected
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import ColumnElement, Row, select, true

from indexing.access import Entry, SegmentAccess
from indexing.catalogue import EMBEDDED, Collection
from indexing.engine import Engine
from indexing.filters import Sealer
from indexing.segment import Segment, Vectors
from indexing.snapshot import Part, Snapshot
from indexing.terms import unpack
from tenancy.errors import Corrupt, StaleDomain
from tenancy.schema import acl, changes, chunks, documents, vectors
from tenancy.tenant import ReadView

MERGE_FACTOR: Final = 4
"""A segment joins the newer one behind it unless it has more than so many times its live rows."""

DELETED_SHARE: Final = 0.25
"""Above this share of deleted rows everything is packed into one segment."""

_IDS_A_STATEMENT: Final = 10_000


def load(view: ReadView, collection: Collection | None, dimension: int, engine: Engine | None = None) -> Snapshot:
    """The whole of `collection` as `view` sees it, with vectors of `dimension`; `engine` holds them if it is given.

    Raises `Corrupt`.
    """
    part = _load_part(view, collection, dimension, None)
    parts = [part] if part.segment.rows else []
    return Snapshot.of(view.tenant.tenant_id, view.epochs, collection, dimension, parts, engine)


def advance(snapshot: Snapshot, view: ReadView) -> Snapshot:
    """`snapshot` brought to the state that `view` sees; the same object where nothing happened.

    A changed membership only moves the epochs; a changed access list replaces sets of slots; changed text becomes
    a small new segment. Raises `StaleDomain` where the view is older than the snapshot, `Corrupt`.
    """
    before, after = snapshot.epochs, view.epochs
    if after == before:
        return snapshot
    if after.acl < before.acl or after.corpus < before.corpus or after.changes < before.changes:
        raise StaleDomain("the view is older than the collection", item=snapshot.tenant_id)
    changed = _changed_since(view, before.changes)
    if changed is None:
        return load(view, snapshot.collection, snapshot.dimension, snapshot.engine)
    if not changed:
        return snapshot.stamped(after)
    parts = compact(_apply(snapshot, view, changed))
    return Snapshot.of(snapshot.tenant_id, after, snapshot.collection, snapshot.dimension, parts, snapshot.engine)


def compact(parts: Sequence[Part]) -> list[Part]:
    """Merge so that few segments remain, each several times the size of the next, with few deleted rows."""
    live = [part for part in parts if part.live_rows]
    rows = sum(part.segment.rows for part in live)
    if sum(part.live_rows for part in live) < (1 - DELETED_SHARE) * rows:
        return [_merged(live)]
    while len(live) > 1 and live[-2].live_rows <= MERGE_FACTOR * live[-1].live_rows:
        live[-2:] = [_merged(live[-2:])]
    return live


def _changed_since(view: ReadView, number: int) -> set[int] | None:
    """The documents changed after change `number`; None where the list does not reach back that far."""
    found = view.execute(select(changes.c.document_id).where(changes.c.seq > number)).scalars().all()
    return set(found) if len(found) == view.epochs.changes - number else None


def _apply(snapshot: Snapshot, view: ReadView, changed: set[int]) -> list[Part]:
    """The parts of `snapshot` without what is gone, with changed access lists, and a new part for new text."""
    present = _first_chunks(view, changed)
    lists = _access_lists(view, changed)
    unknown = set(present)
    parts = []
    for part in snapshot.parts:
        relisted: dict[int, list[Entry]] = {}
        gone: list[int] = []
        for document_id in changed:
            slot = part.segment.slot(document_id)
            if slot is None or slot in part.access.deleted:
                continue
            if present.get(document_id) == part.segment.first_chunk(slot):
                relisted[slot] = lists[document_id]
                unknown.discard(document_id)
            else:
                gone.append(slot)
        parts.append(Part(part.segment, part.access.with_lists(relisted).without(gone)) if relisted or gone else part)
    return [*parts, _load_part(view, snapshot.collection, snapshot.dimension, unknown)] if unknown else parts


def _load_part(
    view: ReadView, collection: Collection | None, dimension: int, document_ids: Collected[int] | None
) -> Part:
    """One segment of the chunks of `document_ids`, or of all; without vectors where a server engine holds them."""
    embedded = collection is None or collection.engine == EMBEDDED
    columns = [chunks.c.document_id, chunks.c.id, chunks.c.terms]
    query = select(*columns)
    if embedded:
        ours = (vectors.c.chunk_id == chunks.c.id) & (vectors.c.model_id == (collection.model.id if collection else 0))
        query = select(*columns, vectors.c.vector).outerjoin(vectors, ours)
    rows = [
        row
        for condition in _conditions(chunks.c.document_id, document_ids)
        for row in view.execute(query.where(condition).order_by(chunks.c.document_id, chunks.c.ordinal)).all()
    ]
    owners = np.array([row.document_id for row in rows], dtype=np.int64)
    chunk_ids = np.array([row.id for row in rows], dtype=np.int64)
    found = _vectors(view, rows, dimension) if embedded else None
    metadata = _metadata(view, collection, document_ids)
    segment = Segment.of(found, chunk_ids, owners, [unpack(row.terms) for row in rows], metadata)
    lists = _access_lists(view, document_ids)
    entries = (
        (slot, entry)
        for slot, document_id in enumerate(segment.document_ids.tolist())
        for entry in lists.get(document_id, ())
    )
    return Part(segment, SegmentAccess.of(len(segment.document_ids), entries))


def _vectors(view: ReadView, rows: Sequence[Row[Any]], dimension: int) -> Vectors:
    """The stored vectors of `rows`, (rows, dimension). Raises `Corrupt`."""
    for row in rows:
        if len(row.vector or b"") != 4 * dimension:
            raise Corrupt(
                f"a stored vector has {len(row.vector or b'')} bytes, not {4 * dimension}",
                item=f"chunk {row.id}",
                remedy="ingest the document again",
            )
    found = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4").reshape(len(rows), dimension)
    if not np.isfinite(found).all():
        raise Corrupt("a stored vector is not finite", item=view.tenant.tenant_id, remedy="ingest the documents again")
    return found.astype(np.float32)


def _metadata(
    view: ReadView, collection: Collection | None, document_ids: Collected[int] | None
) -> dict[int, dict[str, int]]:
    """The sealed metadata of those documents that have any."""
    if collection is None:
        return {}
    sealer = Sealer(collection.sealing)
    return {
        document_id: sealer.metadata(metadata)
        for condition in _conditions(documents.c.id, document_ids)
        for document_id, metadata in view.execute(select(documents.c.id, documents.c.metadata).where(condition))
        if metadata
    }


def _merged(parts: Sequence[Part]) -> Part:
    segment = Segment.merged([(part.segment, part.segment.expand(part.access.live())) for part in parts])
    entries = (
        (slot, entry)
        for part in parts
        for old, listed in part.access.entries().items()
        if old not in part.access.deleted and (slot := segment.slot(int(part.segment.document_ids[old]))) is not None
        for entry in listed
    )
    return Part(segment, SegmentAccess.of(len(segment.document_ids), entries))


def _first_chunks(view: ReadView, documents: Collected[int]) -> dict[int, int]:
    """The id of the first chunk of each of `documents` that exists."""
    return {
        document_id: chunk_id
        for condition in _conditions(chunks.c.document_id, documents)
        for document_id, chunk_id in view.execute(
            select(chunks.c.document_id, chunks.c.id).where(condition, chunks.c.ordinal == 0)
        )
    }


def _access_lists(view: ReadView, documents: Collected[int] | None) -> defaultdict[int, list[Entry]]:
    lists: defaultdict[int, list[Entry]] = defaultdict(list)
    for condition in _conditions(acl.c.document_id, documents):
        for document_id, label_id, effect in view.execute(
            select(acl.c.document_id, acl.c.label_id, acl.c.effect).where(condition)
        ):
            lists[document_id].append((label_id, effect))
    return lists


def _conditions(column: ColumnElement[Any], documents: Collected[int] | None) -> list[ColumnElement[bool]]:
    """`column` among `documents`, in pieces that fit the database's limit of parameters; no limit for None."""
    if documents is None:
        return [true()]
    ordered = sorted(documents)
    pieces = [ordered[start : start + _IDS_A_STATEMENT] for start in range(0, len(ordered), _IDS_A_STATEMENT)]
    return [column.in_(piece) for piece in pieces]
