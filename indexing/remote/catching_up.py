"""A server engine brought to the state of the tenant's database, which alone is right.

The database says what changed in which order (`changes`), and how far the engine has acknowledged it
(`collections.applied`). Everything here may be repeated, and may end at any point: chunk ids are never used again,
a point is written whole, and `applied` moves only behind the engine's acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from sqlalchemy import select

from indexing.catalogue import Collection, find, set_applied
from indexing.engine import Engine
from indexing.remote.mark import is_marked, put_mark
from indexing.remote.points import all_points, points_of, stored_count, stored_ids
from tenancy.errors import NotFound, StaleDomain, Unavailable
from tenancy.schema import changes, chunks
from tenancy.tenant import EXCLUSIVE_S, ReadView, TenantHandle

REBUILD: Final = -1
"""`applied` of a collection that has to be built anew."""

DOCUMENTS_A_PIECE: Final = 100
LOCK: Final = "collection"

Progress = Callable[[int, int], None]
"""Called with the number of chunks that are done and that there are."""


def catch_up(
    tenant: TenantHandle,
    engine: Engine,
    collection: Collection,
    progress: Progress | None = None,
    *,
    patience_s: float = EXCLUSIVE_S,
) -> Collection:
    """Bring `engine` to the newest state that the database has when this begins; returns the record as it is then.

    Only the documents that changed are written, or all where the list of changes does not reach back, where a build
    was not finished, and where the engine has lost the collection or holds an older state than it acknowledged.
    Raises `Unavailable` where the engine is away: what is written stays, and the next call goes on.
    Raises `StaleDomain` where the collection went off the record meanwhile, `Corrupt`.
    """
    with tenant.exclusive(LOCK, patience_s):
        with tenant.reading() as view:
            current = find(view, collection.id)
            newest = view.epochs.changes
            if current is None:
                raise _gone(collection)
            if current.applied >= newest:
                return current
            changed = None if current.applied == REBUILD else _changed_since(view, current.applied)
        try:
            # A process that ended before its acknowledgement has left the mark of a later state.
            if changed is None or not _is_marked(engine, current, newest):
                _rebuild(tenant, engine, current, progress)
            else:
                _write(tenant, engine, current, changed)
        except NotFound:
            _rebuild(tenant, engine, current, progress)
        put_mark(engine, current.physical, _dimension(current), newest)
        return _acknowledged(tenant, current, newest)


def repair(
    tenant: TenantHandle,
    engine: Engine,
    collection: Collection,
    chunk_ids: Sequence[int],
    *,
    patience_s: float = EXCLUSIVE_S,
) -> None:
    """Put right what a search showed to be wrong: `chunk_ids` came back to somebody who may not read them.

    Those that no longer exist are removed, the documents of the others written again. With no ids something was
    missing, nobody knows what: the collection is built anew, in place. Raises as `catch_up`.
    """
    with tenant.exclusive(LOCK, patience_s):
        with tenant.reading() as view:
            current = find(view, collection.id)
            if current is None:
                raise _gone(collection)
            owners = dict(
                view.execute(select(chunks.c.id, chunks.c.document_id).where(chunks.c.id.in_(list(chunk_ids)))).all()
            )
        try:
            if chunk_ids:
                engine.remove(current.physical, [number for number in chunk_ids if number not in owners])
                _write(tenant, engine, current, sorted(set(owners.values())))
                return
        except NotFound:
            pass
        require_rebuild(tenant, current)
    catch_up(tenant, engine, collection, patience_s=patience_s)


def require_marked(
    tenant: TenantHandle, engine: Engine, collection: Collection, *, patience_s: float = EXCLUSIVE_S
) -> bool:
    """Build the collection anew where the engine holds an older state of it than it acknowledged.

    False where the engine is away: a question that can do without it may go on. Raises as `catch_up`.
    """
    try:
        if _is_marked(engine, collection, collection.applied):
            return True
    except Unavailable:
        return False
    # Where somebody is just writing, the mark is another one too.
    with tenant.exclusive(LOCK, patience_s):
        with tenant.reading() as view:
            current, newest = find(view, collection.id), view.epochs.changes
        if current is None or current.applied < newest:
            return True
        if _is_marked(engine, current, current.applied):
            return True
        require_rebuild(tenant, current)
    catch_up(tenant, engine, collection, patience_s=patience_s)
    return True


def _is_marked(engine: Engine, collection: Collection, most: int) -> bool:
    return is_marked(engine, collection.physical, _dimension(collection), collection.applied, most)


def require_rebuild(tenant: TenantHandle, collection: Collection) -> None:
    """Note that the engine no longer holds what it acknowledged: the next use builds the collection anew."""
    with tenant.writing() as view:
        set_applied(view, collection, REBUILD)


def _changed_since(view: ReadView, number: int) -> list[int] | None:
    """The documents changed after change `number`, ascending; None where the list does not reach back that far."""
    found = view.execute(select(changes.c.document_id).where(changes.c.seq > number)).scalars().all()
    return sorted(set(found)) if len(found) == view.epochs.changes - number else None


def _write(tenant: TenantHandle, engine: Engine, collection: Collection, document_ids: Sequence[int]) -> None:
    """The present points of some documents, and nothing of their earlier versions."""
    dimension = _dimension(collection)
    for start in range(0, len(document_ids), DOCUMENTS_A_PIECE):
        piece = document_ids[start : start + DOCUMENTS_A_PIECE]
        kept: list[int] = []
        for points in points_of(tenant, collection, dimension, piece):
            engine.put(collection.physical, points)
            kept += [point.chunk_id for point in points]
        engine.prune(collection.physical, piece, kept)


def _rebuild(tenant: TenantHandle, engine: Engine, collection: Collection, progress: Progress | None) -> None:
    """All points, in place of what is there, and nothing else."""
    dimension = _dimension(collection)
    engine.create(collection.physical, dimension)
    with tenant.reading() as view:
        total = stored_count(view)
    done = 0
    for points in all_points(tenant, collection, dimension):
        engine.put(collection.physical, points)
        done += len(points)
        if progress is not None:
            progress(done, max(done, total))
    with tenant.reading() as view:
        stored = stored_ids(view)
    for held in engine.chunk_ids(collection.physical):
        surplus = np.setdiff1d(np.asarray(held, dtype=np.int64), stored)
        if len(surplus):
            engine.remove(collection.physical, surplus.tolist())


def _acknowledged(tenant: TenantHandle, collection: Collection, number: int) -> Collection:
    with tenant.writing() as view:
        if not set_applied(view, collection, number):
            raise _gone(collection)
    return replace(collection, applied=number)


def _dimension(collection: Collection) -> int:
    if collection.model.fingerprint is None:
        raise StaleDomain("the collection's model is unknown to this version of the program", item=collection.physical)
    return collection.model.fingerprint.dimension


def _gone(collection: Collection) -> StaleDomain:
    return StaleDomain("the collection was replaced meanwhile", item=collection.physical)
