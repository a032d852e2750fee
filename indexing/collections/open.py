"""What is in memory of the tenants' collections: snapshots of their own databases, whichever engine has the vectors."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from indexing import loading
from indexing.collection import EngineDisagrees
from indexing.embed import Fingerprint
from indexing.engine import Engine
from indexing.model import require_model
from indexing.remote.engines import RemoteEngines
from indexing.snapshot import Snapshot
from tenancy.errors import InvalidInput
from tenancy.tenant import ReadView, TenantHandle


class _Open:
    """What is in memory of one tenant; one thread at a time brings it up to date."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.snapshot: Snapshot | None = None

    @property
    def nbytes(self) -> int:
        return self.snapshot.nbytes if self.snapshot is not None else 0


class OpenCollections:
    """Snapshots of the most recently used tenants within `budget_bytes` (estimated; the newest always stays).

    `model` is the embedding model whose vectors are expected, or says it for each tenant; `engines` are the
    deployment's servers by name. A snapshot leaves memory when its last search ends.
    """

    def __init__(
        self,
        model: Fingerprint | Callable[[ReadView], Fingerprint],
        budget_bytes: int,
        engines: Mapping[str, Engine] | None = None,
    ) -> None:
        if budget_bytes < 0:
            raise InvalidInput("the memory budget is not negative", item="budget_bytes")
        self._model = model if callable(model) else lambda _view: model
        self._remote = RemoteEngines(engines or {})
        self._budget = budget_bytes
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._lock = threading.Lock()

    def snapshot(self, tenant: TenantHandle, view: ReadView) -> Snapshot:
        """See `indexing.collection.Collections.snapshot`."""
        if view.tenant is not tenant:
            raise InvalidInput("the view belongs to another tenant", item=tenant.name)
        current = self._local(tenant, view)
        if current.engine is not None and current.collection is not None:
            # Not behind the lock: a slow engine holds up who asks it, and no question that could go on without.
            self._remote.follow(tenant, view, current.collection)
        return current

    def settle(self, tenant: TenantHandle) -> None:
        """See `indexing.collection.Collections.settle`."""
        self._remote.settle(tenant)

    def repair(self, tenant: TenantHandle, found: EngineDisagrees) -> None:
        """See `indexing.collection.Collections.repair`."""
        self._remote.repair(tenant, found)

    def _local(self, tenant: TenantHandle, view: ReadView) -> Snapshot:
        with self._using(tenant.tenant_id) as opened, opened.lock:
            # The view's state is fixed by this first read, behind the lock: no other thread can be ahead of it.
            current = opened.snapshot
            if current is not None and current.epochs == view.epochs:
                return current
            model = self._model(view)
            collection = require_model(view, model)
            if current is None or (current.collection and current.collection.id) != (collection and collection.id):
                current = loading.load(view, collection, model.dimension, self._remote.of(tenant, collection))
            else:
                current = loading.advance(current, view)
            opened.snapshot = current
        self._evict()
        return current

    def close(self, tenant_id: str) -> None:
        """See `indexing.collection.Collections.close`."""
        with self._lock:
            self._open.pop(tenant_id, None)

    @property
    def nbytes(self) -> int:
        """Estimated memory of all open tenants, in bytes."""
        with self._lock:
            return sum(opened.nbytes for opened in self._open.values())

    @property
    def open_tenants(self) -> int:
        with self._lock:
            return len(self._open)

    @contextmanager
    def _using(self, tenant_id: str) -> Iterator[_Open]:
        with self._lock:
            opened = self._open.setdefault(tenant_id, _Open())
            self._open.move_to_end(tenant_id)
            opened.users += 1
        try:
            yield opened
        finally:
            with self._lock:
                opened.users -= 1

    def _evict(self) -> None:
        """Drop the least recently used tenants until the rest fits; one that a thread works on stays."""
        with self._lock:
            excess = sum(opened.nbytes for opened in self._open.values()) - self._budget
            for tenant_id, opened in list(self._open.items())[:-1]:
                if excess <= 0:
                    break
                if not opened.users:
                    excess -= opened.nbytes
                    del self._open[tenant_id]
