"""The engines of the deployment by name, and when each is brought up to a tenant's database."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from indexing.catalogue import EMBEDDED, Collection, find, serving
from indexing.collection import EngineDisagrees
from indexing.engine import Engine
from indexing.engines.registry import Engines
from indexing.remote.catching_up import catch_up, repair, require_marked, require_rebuild
from tenancy.errors import EngineBehind, EngineUnavailable, StaleDomain, Unavailable
from tenancy.tenant import ReadView, TenantHandle

QUESTION_PATIENCE_S: Final = 10.0
"""How long a question waits for somebody else who is bringing the engine up to date, as ingestion does."""

CHECK_S: Final = 60.0
"""How long an engine is believed to hold what it acknowledged."""

REPAIR_PAUSE_S: Final = 60.0
"""How long a tenant's collection is left alone after a repair that a question started; doubled each time it was not
enough, up to `REPAIR_PAUSE_LIMIT_S`: a repair may mean building everything anew."""

REPAIR_PAUSE_LIMIT_S: Final = 3600.0
_REPAIRING: Final = "repair"


class _Repair(NamedTuple):
    """When a collection was repaired, and for how long it is left alone since, in seconds."""

    at: float
    pause: float


class Due(NamedTuple):
    """`behind` says that the engine has not acknowledged everything; else it is only to be asked what it holds."""

    collection: Collection
    behind: bool


class RemoteEngines:
    """What `OpenCollections` knows of server engines; safe from any number of threads."""

    def __init__(self, engines: Mapping[str, Engine], clock: Callable[[], float] = time.monotonic) -> None:
        self._engines = engines if isinstance(engines, Engines) else Engines.connected(engines)
        self._clock = clock
        self._repaired: dict[str, _Repair] = {}
        self._marked: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, tenant: TenantHandle, collection: Collection | None) -> Engine | None:
        """The engine that holds the collection's vectors, None where they are in memory.

        Raises `Unavailable` for an engine that the settings do not have, or not for this tenant.
        """
        return None if collection is None else self._engines.of(tenant, collection.engine)

    def due(self, view: ReadView, collection: Collection) -> Due | None:
        """What has to be done at the engine before a question is asked of it under `view`. Raises `StaleDomain`.

        Now and then it is asked whether it still holds what it acknowledged: its operator may have restored it.
        """
        current = find(view, collection.id)
        if current is None:
            raise StaleDomain("the collection was replaced meanwhile", item=collection.physical)
        behind = current.applied < view.epochs.changes
        return Due(current, behind) if behind or self._is_due(current) else None

    def follow(self, tenant: TenantHandle, due: Due) -> None:
        """Do it, best without a transaction: an engine may take as long as its timeout. Raises as `catch_up`."""
        engine = self.of(tenant, due.collection)
        if engine is None:
            return
        if due.behind:
            catch_up(tenant, engine, due.collection, patience_s=QUESTION_PATIENCE_S)
        elif not require_marked(tenant, engine, due.collection, patience_s=QUESTION_PATIENCE_S):
            return
        self._checked_now(due.collection)

    def behind(self, tenant: TenantHandle) -> str | None:
        """See `indexing.collection.Collections.behind`."""
        with tenant.reading() as view:
            collection, newest = serving(view), view.epochs.changes
        # What the embedded engine would have to hear of, it reads from the database.
        if collection is None or collection.engine == EMBEDDED or collection.applied >= newest:
            return None
        return collection.engine

    def settle(self, tenant: TenantHandle) -> None:
        """See `indexing.collection.Collections.settle`."""
        with tenant.reading() as view:
            collection, newest = serving(view), view.epochs.changes
        engine = self.of(tenant, collection)
        if engine is None or collection is None or collection.applied >= newest:
            return
        try:
            catch_up(tenant, engine, collection)
        except Unavailable as error:
            raise EngineBehind(
                f"all is stored, but not yet at the vector engine: {error.reason}",
                item=error.item,
                remedy="run it again when the engine is back; a question brings it up to date too",
            ) from error
        self._checked_now(collection)

    def repair(self, tenant: TenantHandle, found: EngineDisagrees) -> None:
        """See `indexing.collection.Collections.repair`. What somebody else repaired meanwhile is not repaired again."""
        noticed = self._clock()
        with tenant.reading() as view:
            collection = serving(view)
        engine = self.of(tenant, collection)
        if engine is None or collection is None or collection.physical != found.item:
            return
        with tenant.exclusive(_REPAIRING, QUESTION_PATIENCE_S):
            if not self._may_repair(tenant, found, noticed):
                return
            if found.lost:
                require_rebuild(tenant, collection)
                catch_up(tenant, engine, collection, patience_s=QUESTION_PATIENCE_S)
            else:
                repair(tenant, engine, collection, found.chunk_ids, patience_s=QUESTION_PATIENCE_S)

    def _is_due(self, collection: Collection) -> bool:
        """Whether it is time to ask for the collection's mark."""
        with self._lock:
            at = self._marked.get(collection.physical)
            return bool(collection.applied) and (at is None or self._clock() - at >= CHECK_S)

    def _checked_now(self, collection: Collection) -> None:
        now = self._clock()
        with self._lock:
            self._marked[collection.physical] = now
            self._marked.move_to_end(collection.physical)
            while self._marked and now - next(iter(self._marked.values())) >= CHECK_S:
                self._marked.popitem(last=False)

    def _may_repair(self, tenant: TenantHandle, found: EngineDisagrees, noticed: float) -> bool:
        """False where it was repaired behind `noticed`. Raises `Unavailable` where the last repair did not help."""
        now = self._clock()
        with self._lock:
            last = self._repaired.get(tenant.tenant_id)
            if last is not None and last.at >= noticed:
                return False
            if last is not None and now - last.at < last.pause:
                raise EngineUnavailable(
                    f"{found.reason}, also after a repair", item=found.item, remedy="try again later, and run `doctor`"
                )
            kept = {key: one for key, one in self._repaired.items() if now - one.at < REPAIR_PAUSE_LIMIT_S}
            again = kept.get(tenant.tenant_id)
            pause = REPAIR_PAUSE_S if again is None else min(2 * again.pause, REPAIR_PAUSE_LIMIT_S)
            self._repaired = {**kept, tenant.tenant_id: _Repair(now, pause)}
        return True
