"""What is in memory of the tenants' collections: snapshots of their own databases, whichever engine has the vectors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from indexing import loading
from indexing.collection import EngineDisagrees
from indexing.collections.memory import Memory, NoRoom
from indexing.collections.size import estimate
from indexing.embed import Fingerprint
from indexing.engine import Engine
from indexing.engines.registry import Engines
from indexing.gpu import GpuSearch
from indexing.model import require_model
from indexing.remote.elsewhere import Elsewhere
from indexing.remote.engines import Due, RemoteEngines
from indexing.snapshot import Snapshot
from tenancy.recent import Recent
from tenancy.tenant import ReadView, TenantHandle

BUDGET_SETTING: Final = "collections.budget"
WAIT_S: Final = 2.0
_FOLLOWS: Final = 3
"""How often a question brings its engine up to date beside writers that go on; then it keeps its transaction open."""


class _Turn:
    """One thread at a time brings a tenant up to date."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


class OpenCollections:
    """Snapshots of the most recently used tenants within `budget_bytes` of memory.

    `model` is the embedding model whose vectors are expected, or says it for each tenant; `engines` are the
    deployment's servers by name; `gpu` searches large readable sets of the other tenants. A snapshot leaves memory
    when its last search ends, and counts until then. A tenant that does not fit beside what is in use waits up to
    `wait_s` seconds, `waiters` of them at one time; no more than half of the threads that search should, so that the
    others can end what they have begun.
    """

    def __init__(
        self,
        model: Fingerprint | Callable[[ReadView], Fingerprint],
        budget_bytes: int,
        engines: Mapping[str, Engine] | None = None,
        *,
        wait_s: float = WAIT_S,
        waiters: int = 4,
        gpu: GpuSearch | None = None,
    ) -> None:
        self._model = model if callable(model) else lambda _view: model
        servers = engines if isinstance(engines, Engines) else Engines.connected(engines or {})
        self._remote = RemoteEngines(servers)
        self._elsewhere = Elsewhere(servers)
        self._gpu = gpu
        # Bounded by memory alone; one that is closed and still searched is found again, and not loaded twice.
        self._open: Recent[str, Snapshot] = Recent(sys.maxsize)
        self._memory = Memory(budget_bytes, self._open.drop, wait_s=wait_s, waiters=waiters, setting=BUDGET_SETTING)
        self._turns: dict[str, _Turn] = {}
        self._lock = threading.Lock()

    @contextmanager
    def opened(self, tenant: TenantHandle) -> Iterator[tuple[ReadView, Snapshot]]:
        """See `indexing.collection.Collections.opened`."""
        for _ in range(_FOLLOWS):
            with ExitStack() as transaction:
                view, current = self._local(tenant, transaction)
                due = self._due(view, current)
                if due is None:
                    yield view, current
                    return
            # Neither in the tenant's turn nor in a transaction: a slow engine holds up whoever needs it, and keeps
            # no connection from the others.
            self._remote.follow(tenant, due)
            if not due.behind:
                break
        with ExitStack() as transaction:
            view, current = self._local(tenant, transaction)
            due = self._due(view, current)
            if due is not None and due.behind:
                self._remote.follow(tenant, due)
            yield view, current

    def behind(self, tenant: TenantHandle) -> str | None:
        """See `indexing.collection.Collections.behind`."""
        return self._remote.behind(tenant) or self._elsewhere.behind(tenant)

    def settle(self, tenant: TenantHandle) -> None:
        """See `indexing.collection.Collections.settle`."""
        try:
            self._remote.settle(tenant)
        finally:
            self._elsewhere.settle(tenant)

    def repair(self, tenant: TenantHandle, found: EngineDisagrees) -> None:
        """See `indexing.collection.Collections.repair`."""
        self._remote.repair(tenant, found)

    def close(self, tenant_id: str) -> None:
        """See `indexing.collection.Collections.close`."""
        self._open.pop(tenant_id)

    @property
    def nbytes(self) -> int:
        """Estimated memory of all collections that are open or still searched, and of loads under way, in bytes."""
        return self._memory.used

    @property
    def open_tenants(self) -> int:
        return len(self._open)

    @property
    def tenants(self) -> set[str]:
        """The ids of tenants of which something is in memory."""
        return self._open.keys()

    def _due(self, view: ReadView, current: Snapshot) -> Due | None:
        if current.engine is None or current.collection is None:
            return None
        return self._remote.due(view, current.collection)

    def _local(self, tenant: TenantHandle, transaction: ExitStack) -> tuple[ReadView, Snapshot]:
        """Begin `transaction`, and what is in memory brought to its state."""
        until = self._memory.deadline()
        while True:
            try:
                with self._turn(tenant.tenant_id):
                    # Begun in the tenant's turn, its state is no older than what another thread has loaded.
                    view = transaction.enter_context(tenant.reading())
                    current = self._current(tenant, view)
            except NoRoom as full:
                transaction.close()
                # Outside the tenant's turn, so that everybody who waits for it is counted as one who waits.
                self._memory.wait(full.nbytes, until)
            else:
                self._memory.shrink()
                return view, current

    def _current(self, tenant: TenantHandle, view: ReadView) -> Snapshot:
        current = self._open.get(tenant.tenant_id)
        if current is not None and current.epochs == view.epochs:
            return current
        model = self._model(view)
        collection = require_model(view, model)
        if current is None or (current.collection and current.collection.id) != (collection and collection.id):
            engine = self._remote.of(tenant, collection)
            size = estimate(view, collection, model.dimension)
            with self._memory.reserved(tenant.tenant_id, size.peak, size.kept):
                current = loading.load(view, collection, model.dimension, engine)
                self._hold(current)
            view.shrink()
        else:
            current = loading.advance(current, view)
            self._hold(current)
        if self._gpu is not None and current.engine is None:
            current = replace(current, gpu=self._gpu)
        self._open.replace(tenant.tenant_id, current)
        return current

    def _hold(self, snapshot: Snapshot) -> None:
        """Count what is new in `snapshot`."""
        tenant_id, memory = snapshot.tenant_id, self._memory
        memory.require_fitting(snapshot.nbytes)
        memory.hold(tenant_id, *(piece for part in snapshot.parts for piece in (part.segment, part.access)))
        snapshot.readable_sets.accounted(lambda nbytes: memory.grown(tenant_id, nbytes))

    @contextmanager
    def _turn(self, tenant_id: str) -> Iterator[None]:
        with self._lock:
            turn = self._turns.setdefault(tenant_id, _Turn())
            turn.users += 1
        try:
            with turn.lock:
                yield
        finally:
            with self._lock:
                turn.users -= 1
                if not turn.users:
                    del self._turns[tenant_id]
