"""Where a deployment keeps its databases: encrypted files below one folder here, a PostgreSQL server in
`tenancy.postgres`. Everything above asks a `Storage` and does not know which one it has.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol

from sqlalchemy import MetaData
from sqlalchemy.engine import Connection

from tenancy.database import PAGE_CACHE_KIB, ConnectionPools, Database, Mark, Migration
from tenancy.keyring import KEYRING_FILE, FileKeyring, KeyringStore
from tenancy.locks import file_lock
from tenancy.presence import FilePresence, Presence

CONTROL_FILE: Final = "control.sqlite"
DATA_FILE: Final = "tenant.sqlite"

Kind = Literal["control", "tenants", "audit"]


@dataclass(frozen=True, slots=True)
class Place:
    """A database by what it is for: whose it is (a tenant's id, empty for the control plane), and its file's name."""

    kind: Kind
    owner: str
    file: str

    @property
    def path(self) -> Path:
        """The file, relative to the data directory."""
        return Path(self.file) if self.kind == "control" else Path(self.kind) / self.owner / self.file


CONTROL: Final = Place("control", "", CONTROL_FILE)


class AnyDatabase(Protocol):
    """Tables with a schema version, read and written in explicit transactions."""

    def reading(self) -> AbstractContextManager[Connection]:
        """One read transaction: all its statements see one state, that of the first of them."""

    def writing(self) -> AbstractContextManager[Connection]:
        """One write transaction, one at a time: committed at the end of the block, rolled back on any exception."""

    def truncate_wal(self) -> bool:
        """Take erased text out of what the database keeps beside its tables, as far as this process can; False where
        somebody reads an older state for longer, and it stands there until that ends. Raises `Unavailable`.
        """


class Storage(Protocol):
    """The databases of one deployment, and what its processes agree on through them."""

    @property
    def keyring(self) -> KeyringStore: ...

    @property
    def shared(self) -> bool:
        """Whether several servers may run on it."""

    def database(
        self,
        place: Place,
        key: bytes,
        metadata: MetaData,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        page_cache: int = PAGE_CACHE_KIB,
        mark: Mark | None = None,
    ) -> AnyDatabase:
        """The database at `place`; see `tenancy.database.Database` for the arguments. `page_cache` is in KiB."""

    def holds(self, place: Place) -> bool:
        """Whether there is a database at `place`."""

    def holds_tenants(self) -> bool:
        """Whether there is anything of any tenant."""

    def add_tenant(self, tenant_id: str, control: Connection) -> None:
        """Make room for a new tenant, inside the write transaction that puts it on record."""

    def remove_tenant(self, tenant_id: str) -> bool:
        """Remove a tenant's documents and local files, not its audit log; False where there was nothing left."""

    def forget_tenant(self, tenant_id: str) -> None:
        """Close and remove what this process still has of a tenant that another one removed."""

    def open_tenants(self) -> set[str]:
        """Tenants of which this process has files open."""

    def leftovers(self, deleted: Collection[str]) -> list[str]:
        """Of the tenants `deleted`, those of which something is left."""

    def exclusive(self, tenant_id: str, name: str, timeout_s: float) -> AbstractContextManager[None]:
        """One holder of `name` in a tenant at a time, across processes. Raises `Unavailable`, `NotFound`."""

    def presence(self) -> Presence:
        """A fresh identity of this process, which the others see end."""

    def close(self) -> None:
        """Close what is open and idle."""


class SqliteStorage:
    """Page-encrypted files: `control.sqlite`, `tenants/<id>/` and `audit/<id>/` below `data_dir`."""

    shared: Final = False

    def __init__(self, data_dir: Path, pools: ConnectionPools) -> None:
        self._data_dir = data_dir
        self._pools = pools
        self.keyring: KeyringStore = FileKeyring(data_dir / KEYRING_FILE)

    def database(
        self,
        place: Place,
        key: bytes,
        metadata: MetaData,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        page_cache: int = PAGE_CACHE_KIB,
        mark: Mark | None = None,
    ) -> Database:
        path = self._data_dir / place.path
        if place.kind == "audit":
            path.parent.mkdir(parents=True, exist_ok=True)
        return Database(
            path, key, metadata, self._pools, seed=seed, migrations=migrations, page_cache=page_cache, mark=mark
        )

    def holds(self, place: Place) -> bool:
        return (self._data_dir / place.path).exists()

    def holds_tenants(self) -> bool:
        return any((self._data_dir / "tenants").glob("*"))

    def add_tenant(self, tenant_id: str, control: Connection) -> None:  # noqa: ARG002
        self._directory(tenant_id).mkdir(parents=True, mode=0o700)

    def remove_tenant(self, tenant_id: str) -> bool:
        found = self._directory(tenant_id).exists()
        self._pools.close(self._directory(tenant_id))
        shutil.rmtree(self._directory(tenant_id), ignore_errors=True)
        return found

    def forget_tenant(self, tenant_id: str) -> None:
        self._pools.close(self._directory(tenant_id))

    def open_tenants(self) -> set[str]:
        return {path.name for path in self._pools.directories() if path.parent == self._data_dir / "tenants"}

    def leftovers(self, deleted: Collection[str]) -> list[str]:
        return [tenant_id for tenant_id in sorted(deleted) if self._directory(tenant_id).exists()]

    def exclusive(self, tenant_id: str, name: str, timeout_s: float) -> AbstractContextManager[None]:
        return file_lock(self._directory(tenant_id) / f"{name}.lock", timeout_s)

    def presence(self) -> Presence:
        return FilePresence(self._data_dir)

    def close(self) -> None:
        self._pools.close()

    def _directory(self, tenant_id: str) -> Path:
        return self._data_dir / "tenants" / tenant_id
