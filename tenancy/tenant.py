"""`TenantHandle`, the only way to one tenant's data, and the views through which it is read and written."""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from sqlalchemy import CursorResult, Executable, MetaData, bindparam, delete, insert, select, update
from sqlalchemy.engine import Connection

from tenancy import ledger, migrations, schema
from tenancy.contract import Contract, stored_contract
from tenancy.database import ConnectionPools, Database, Migration, Retired
from tenancy.keys import TenantKeys, audit_purpose
from tenancy.pauses import reached
from tenancy.prepared import Prepared
from tenancy.registry import FIRST, Registry, named
from tenancy.storage import DATA_FILE, AnyDatabase, Place, Storage

_SEAL: Final = object()
CHANGES_KEPT = 10_000
RENEWALS: Final = 8
EXCLUSIVE_S: Final = 60.0
_BESIDE: Final = "beside"
_BESIDE_S: Final = 1.0
_EPOCHS: Final = Prepared(
    select(schema.epochs.c.acl, schema.epochs.c.corpus, schema.epochs.c.kv, schema.epochs.c.changes)
)
_MOVE_EPOCHS: Final = update(schema.epochs)
_FORGET_CHANGES: Final = delete(schema.changes).where(schema.changes.c.seq <= bindparam("last"))
# A log with its indexes is written at random places: with less, each commit reads pages back.
AUDIT_PAGE_CACHE_KIB = 4_096


@dataclass(frozen=True, slots=True, order=True)
class Epochs:
    """Counters of one tenant: access lists and membership, documents, KV memory, newest change number."""

    acl: int
    corpus: int
    kv: int
    changes: int


class ReadView:
    """One read transaction of one tenant: everything read through it belongs to one state."""

    def __init__(self, tenant: TenantHandle, connection: Connection) -> None:
        self.tenant = tenant
        self._connection = connection
        self._epochs: Epochs | None = None

    @property
    def epochs(self) -> Epochs:
        if self._epochs is None:
            (row,) = self.rows(_EPOCHS)
            self._epochs = Epochs(*row)
        return self._epochs

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[*tuple[Any, ...]]:
        return self._connection.execute(statement, parameters)

    def rows(
        self, statement: Prepared, parameters: Mapping[str, Any] = MappingProxyType({})
    ) -> Sequence[Sequence[Any]]:
        """All rows of a statement of the question path."""
        return statement.rows(self._connection, parameters)

    def shrink(self) -> None:
        """Give back the memory of pages that were read once and are not needed soon: after reading everything."""
        if self._connection.dialect.name == "sqlite":
            self._connection.exec_driver_sql("PRAGMA shrink_memory")


class WriteView(ReadView):
    """One write transaction of one tenant. Epochs move in the same transaction as what they announce."""

    def __init__(self, tenant: TenantHandle, connection: Connection) -> None:
        super().__init__(tenant, connection)
        self._withdrawn: list[ledger.Entry] = []

    def withdraw(self, kind: ledger.Kind, *about: int | str) -> None:
        """Note that something was taken away, so that no backup gives it back; see `tenancy.ledger`."""
        self._withdrawn.append((kind, about))

    def settle(self) -> None:
        """Make what was withdrawn durable beside the audit log. Before the commit: see `tenancy.ledger`."""
        if self._withdrawn:
            newest = self.tenant.audit.ledger().append(self._withdrawn, ledger.position(self._connection))
            ledger.move_to(self._connection, newest)
            self._withdrawn = []

    def bump_corpus(self, *document_ids: int, removed: bool = False) -> Epochs:
        """Announce that documents were added, replaced or (with `removed`) deleted."""
        count = len(document_ids)
        return self._bump(list(document_ids), acl=0, corpus=count, kv=count if removed else 0)

    def bump_acl(self, *document_ids: int) -> Epochs:
        """Announce changed access lists of `document_ids`; with none, a changed membership."""
        return self._bump(list(document_ids), acl=1, corpus=0, kv=1)

    def bump_collection(self) -> Epochs:
        """Announce that another physical collection serves; no document changed."""
        return self._bump([], acl=0, corpus=1, kv=0)

    def _bump(self, document_ids: list[int], *, acl: int, corpus: int, kv: int) -> Epochs:
        before = self.epochs
        after = Epochs(before.acl + acl, before.corpus + corpus, before.kv + kv, before.changes + len(document_ids))
        if document_ids:
            self.execute(
                insert(schema.changes),
                [
                    {"seq": before.changes + 1 + position, "document_id": document_id}
                    for position, document_id in enumerate(document_ids)
                ],
            )
            self.execute(_FORGET_CHANGES, {"last": after.changes - CHANGES_KEPT})
        self.execute(_MOVE_EPOCHS, asdict(after))
        self._epochs = after
        return after


class AuditFiles:
    """Where one tenant's audit log lives. It is kept, and readable, when the tenant is suspended or deleted."""

    def __init__(
        self, tenant_id: str, directory: Path, key: bytes, storage: Storage, registry: Registry, seal: object
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("AuditFiles come from tenancy.tenant alone")
        self.tenant_id = tenant_id
        self.directory = directory
        self._key = key
        self._storage = storage
        self._registry = registry
        self._databases: dict[str, AnyDatabase] = {}
        self._derived: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def purpose(self, name: str) -> bytes:
        """A 32-byte key for one purpose, derived from the tenant's audit key once."""
        found = self._derived.get(name)
        if found is None:
            found = self._derived[name] = audit_purpose(self._key, name)
        return found

    def database(
        self, file: str, metadata: MetaData, *, seed: Migration | None = None, migrations: tuple[Migration, ...] = ()
    ) -> AnyDatabase:
        """A database of the audit log, durable at every commit; the same object for the same name."""
        with self._lock:
            found = self._databases.get(file)
            if found is None:
                key = self.purpose(f"file/{file}")
                place = Place("audit", self.tenant_id, file)
                mark = self._registry.mark(self.tenant_id, file)
                found = self._storage.database(
                    place,
                    key,
                    metadata,
                    seed=seed,
                    migrations=migrations,
                    page_cache=AUDIT_PAGE_CACHE_KIB,
                    mark=mark,
                )
                self._databases[file] = found
            return found

    def generation(self, file: str) -> int:
        """Which file of this name is in use: each but the first follows one that was lost."""
        return self._registry.generation(self.tenant_id, file) or FIRST

    def begin_anew(self, file: str) -> None:
        """Let another file take the place of one that is lost, from the next opening on."""
        self._registry.make(self.tenant_id, file, self.generation(file) + 1)

    def ledger(self) -> ledger.Ledger:
        """What was withdrawn from the tenant; see `tenancy.ledger`."""
        return ledger.Ledger(
            self.tenant_id,
            self._registry,
            lambda generation: self.database(named(ledger.LEDGER_FILE, generation), ledger.metadata),
        )


class TenantHandle:
    """One tenant, opened for an authenticated principal. Sealed: only `Tenants.open` makes one.

    `generation` counts the data keys that the tenant has had; where another process has changed the key, the next
    transaction goes on in the new file (`renewed` gives generation and key). `contract` is what `Tenants.open` read
    last: a change holds from the next request on.
    """

    def __init__(
        self,
        tenant_id: str,
        name: str,
        directory: Path,
        keys: TenantKeys,
        audit: AuditFiles,
        pools: ConnectionPools,
        storage: Storage,
        registry: Registry,
        renewed: Callable[[TenantHandle], tuple[int, bytes]],
        seal: object,
    ) -> None:
        if seal is not _SEAL:
            raise TypeError("a TenantHandle comes from tenancy.tenant.Tenants.open alone")
        self.tenant_id = tenant_id
        self.name = name
        self.directory = directory
        self.keys = keys
        self.audit = audit
        self.contract = Contract()
        self._agreed: Mapping[str, Any] = {}
        self._pools = pools
        self._databases: dict[str, Database] = {}
        self._lock = threading.Lock()
        self._storage = storage
        self._registry = registry
        self._renewed = renewed
        self.generation = registry.generation(tenant_id, DATA_FILE) or FIRST
        self._data = self._opened()

    def __repr__(self) -> str:
        return f"TenantHandle({self.tenant_id})"

    def agree(self, name: str, stored: Mapping[str, Any]) -> None:
        """Take the name and contract that the control plane has now; for `Tenants.open`. Raises `Corrupt`."""
        self.name = name
        if stored != self._agreed:
            self.contract = stored_contract(stored, self.name)
            self._agreed = stored

    def follow(self, generation: int) -> None:
        """Go on in the file of `generation` where that is a later one; for `Tenants.open`. A file that was damaged when
        another took its place could not be marked as retired, and reads on where it is still open.
        """
        if generation > self.generation:
            self._renew(self._data)

    @contextmanager
    def reading(self) -> Iterator[ReadView]:
        """A read transaction: one database snapshot."""
        with ExitStack() as stack:
            yield ReadView(self, self._begun(stack, lambda data: data.reading()))

    @contextmanager
    def writing(self) -> Iterator[WriteView]:
        """A write transaction: committed at the end of the block, rolled back on any exception."""
        with ExitStack() as stack:
            view = WriteView(self, self._begun(stack, lambda data: data.writing()))
            yield view
            view.settle()
            reached("commit")
        reached("committed")

    @property
    def data(self) -> AnyDatabase:
        """The tenant's own database in its present generation, for what works on files. Others read and write views."""
        return self._data

    def _opened(self) -> AnyDatabase:
        return self._storage.database(
            Place("tenants", self.tenant_id, named(DATA_FILE, self.generation)),
            self.keys.purpose(f"file/{DATA_FILE}"),
            schema.tenant,
            seed=_first_epochs,
            migrations=migrations.TENANT,
            mark=self._registry.mark(self.tenant_id, DATA_FILE, self.generation),
        )

    def _begun(
        self, stack: ExitStack, begin: Callable[[AnyDatabase], AbstractContextManager[Connection]]
    ) -> Connection:
        # Whoever waited long for the write lock may find that the file after that one was retired as well.
        for _ in range(RENEWALS):
            data = self._data
            try:
                return stack.enter_context(begin(data))
            except Retired:
                self._renew(data)
        return stack.enter_context(begin(self._data))

    def _renew(self, stale: AnyDatabase) -> None:
        """Go on in the file that took the place of `stale`, under its key."""
        with self._lock:
            if self._data is not stale:
                return
            self.generation, key = self._renewed(self)
            self.keys = TenantKeys(key, self.keys.audit)
            self._databases.clear()
            self._data = self._opened()
        self._pools.close(self.directory)

    def database(
        self,
        file: str,
        metadata: MetaData,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
    ) -> Database:
        """An encrypted file in the tenant's directory, under a key derived from the data key and the file's name.

        The same object for the same name, until the data key changes. Use it from other packages for what dies with
        the tenant and may get lost (the cache).
        """
        with self._lock:
            found = self._databases.get(file)
            if found is None:
                key = self.keys.purpose(f"file/{file}")
                found = Database(
                    self.directory / named(file, self.generation),
                    key,
                    metadata,
                    self._pools,
                    seed=seed,
                    migrations=migrations,
                    synchronous=synchronous,
                )
                self._databases[file] = found
            return found

    def holds(self, file: str) -> bool:
        """Whether there is a file of this name in the tenant's directory, in the present generation."""
        return (self.directory / named(file, self.generation)).exists()

    @contextmanager
    def exclusive(self, name: str, timeout_s: float = EXCLUSIVE_S) -> Iterator[None]:
        """One holder of `name` in this tenant at a time, across threads and processes; released however it ends.

        Raises `Unavailable` after `timeout_s` seconds, `NotFound` for a deleted tenant. Take it before a write
        transaction, never inside of one.
        """
        with self._storage.exclusive(self.tenant_id, name, timeout_s):
            yield

    def trying(self, contract: Contract) -> TenantHandle:
        """The same tenant as it would be under another contract, for measuring; nothing of it is stored."""
        other = copy.copy(self)
        other.contract = contract
        return other

    @contextmanager
    def beside(self, contract: Contract) -> Iterator[TenantHandle]:
        """The same tenant over an empty database of its own, for measuring what would be made of its documents.

        The file is gone when the block ends. Its key is in this process's memory alone, so that nobody can read what a
        crash leaves; the next one removes that. One at a time: raises `Unavailable` where there is another.
        """
        with self.exclusive(_BESIDE, _BESIDE_S):
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._sweep_beside()
            path = self.directory / f"{_BESIDE}.{secrets.token_hex(8)}.sqlite"
            other = self.trying(contract)
            other._data = Database(
                path,
                secrets.token_bytes(32),
                schema.tenant,
                self._pools,
                seed=_first_epochs,
                migrations=migrations.TENANT,
                synchronous="NORMAL",
            )
            try:
                yield other
            finally:
                self._pools.close_file(path)
                self._sweep_beside()

    def _sweep_beside(self) -> None:
        for left in self.directory.glob(f"{_BESIDE}.*.sqlite*"):
            left.unlink(missing_ok=True)

    def erase_traces(self) -> bool:
        """Empty the write-ahead log after deletions, so that removed text is gone from the disk; False where somebody
        reads an older state, and so keeps it. Raises `Unavailable`.
        """
        return self._data.truncate_wal()


def _first_epochs(connection: Connection) -> None:
    connection.execute(insert(schema.epochs).values(one=1, acl=0, corpus=0, kv=0, changes=0))
