"""Collections that do not serve: kept to go back to after a move, or being built. What was deleted leaves them too.

They are not kept up to date (`indexing.moving`), but a document that was deleted or replaced must not live on in one
for as long as nobody confirms. How far each was cleared is on record in the tenant's database; where the engine is away
it is tried again with a later write, which does not fail for it: the tenant may have moved away because of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import numpy as np
from sqlalchemy import delete, insert, select

from indexing.catalogue import EMBEDDED, Collection, all_collections, find
from indexing.engine import Engine
from indexing.engines.registry import Engines
from indexing.remote.catching_up import DOCUMENTS_A_PIECE, LOCK
from indexing.remote.points import stored_ids
from tenancy.errors import NotFound, StrongroomError
from tenancy.schema import changes, chunks, meta
from tenancy.tenant import ReadView, TenantHandle

PAUSE_S: Final = 60.0
"""How long a collection is left alone whose engine failed, so that it holds up no further write."""

_PATIENCE_S: Final = 1.0
_logger = logging.getLogger(__name__)


class Elsewhere:
    """The collections that do not serve, at the deployment's engines; safe from any number of threads."""

    def __init__(self, engines: Engines, clock: Callable[[], float] = time.monotonic) -> None:
        self._engines = engines
        self._clock = clock
        self._failed: dict[str, float] = {}
        self._lock = threading.Lock()

    def behind(self, tenant: TenantHandle) -> str | None:
        """An engine that may hold what was deleted since, and is not being left alone; None where none does."""
        with tenant.reading() as view:
            found = due(view)
        return next((one.engine for one in found if not self._is_paused(one)), None)

    def settle(self, tenant: TenantHandle) -> None:
        """Take what was deleted out of them, as far as their engines can be reached."""
        with tenant.reading() as view:
            found = due(view)
        for collection in found:
            if self._is_paused(collection):
                continue
            try:
                clear(tenant, self._engines.holding(collection.engine), collection)
            except StrongroomError as error:
                with self._lock:
                    self._failed[collection.physical] = self._clock()
                _logger.warning(
                    "what was deleted may still be in %s at engine %s (%s): tried again with a later write",
                    collection.physical, collection.engine, error.code,
                )  # fmt: skip

    def _is_paused(self, collection: Collection) -> bool:
        now = self._clock()
        with self._lock:
            self._failed = {physical: at for physical, at in self._failed.items() if now - at < PAUSE_S}
            return collection.physical in self._failed


def due(view: ReadView) -> list[Collection]:
    """The collections at server engines that do not serve, and were not cleared since the newest change."""
    newest = view.epochs.changes
    return [
        row
        for row in all_collections(view)
        if row.state != "serving" and row.engine != EMBEDDED and _cleared(view, row) != newest
    ]


def clear(tenant: TenantHandle, engine: Engine, collection: Collection) -> None:
    """Take everything out of `collection` that the database does not hold any more. Raises `Unavailable`."""
    with tenant.exclusive(LOCK, _PATIENCE_S):
        with tenant.reading() as view:
            current, newest = find(view, collection.id), view.epochs.changes
            if current is None or current.state == "serving":
                return
            since = _cleared(view, current)
            changed = None if since is None else _changed_since(view, since)
        try:
            if changed is None:
                _remove_surplus(tenant, engine, current.physical)
            else:
                _prune(tenant, engine, current.physical, changed)
        except NotFound:
            # Nothing was built there yet, or the server has lost it.
            pass
        with tenant.writing() as view:
            key = _key(current)
            view.execute(delete(meta).where(meta.c.key == key))
            if find(view, current.id) is not None:
                view.execute(insert(meta).values(key=key, value=newest))


def _prune(tenant: TenantHandle, engine: Engine, physical: str, document_ids: list[int]) -> None:
    for start in range(0, len(document_ids), DOCUMENTS_A_PIECE):
        piece = document_ids[start : start + DOCUMENTS_A_PIECE]
        with tenant.reading() as view:
            kept = view.execute(select(chunks.c.id).where(chunks.c.document_id.in_(piece))).scalars().all()
        engine.prune(physical, piece, kept)


def _remove_surplus(tenant: TenantHandle, engine: Engine, physical: str) -> None:
    with tenant.reading() as view:
        stored = stored_ids(view)
    for held in engine.chunk_ids(physical):
        surplus = np.setdiff1d(np.asarray(held, dtype=np.int64), stored)
        if len(surplus):
            engine.remove(physical, surplus.tolist())


def _changed_since(view: ReadView, number: int) -> list[int] | None:
    """The documents changed after change `number`; None where the list of changes does not reach back that far."""
    found = view.execute(select(changes.c.document_id).where(changes.c.seq > number)).scalars().all()
    return sorted(set(found)) if len(found) == view.epochs.changes - number else None


def _cleared(view: ReadView, collection: Collection) -> int | None:
    """The newest change up to which nothing deleted is in the collection; None where that is not known."""
    found: int | None = view.execute(select(meta.c.value).where(meta.c.key == _key(collection))).scalar_one_or_none()
    known = [number for number in (found, collection.applied) if number is not None and number >= 0]
    return max(known, default=None)


def _key(collection: Collection) -> str:
    return f"cleared.{collection.id}"
