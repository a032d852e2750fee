"""All databases of a deployment in one PostgreSQL database, and what its servers agree on there.

Schemas: `sr_control`, `sr_<tenant id>`, `sr_audit_<tenant id>`, `sr_subjects_<tenant id>` (apart, so that a backup can
leave the subjects' keys out). Session locks tell which processes are alive and who holds a piece of work: the server
releases them when it loses the connection.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import MetaData, text
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateSchema, DropSchema

from tenancy.database import PAGE_CACHE_KIB, ConnectionPools, Mark, Migration
from tenancy.errors import NotFound, Unavailable
from tenancy.keyring import KeyringStore
from tenancy.postgres import PostgresDatabase, Server, Tier, begun, explained, lock_key
from tenancy.postgres_presence import PostgresKeyring, PostgresPresence
from tenancy.postgres_url import PostgresSettings
from tenancy.presence import Presence
from tenancy.storage import CONTROL_FILE, Place

CONTROL_SCHEMA: Final = "sr_control"
_ITEM: Final = "database"
_SCHEMAS: Final = text(r"SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname LIKE 'sr\_%'")
_TABLES: Final = text("SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = :schema AND tablename = 'schema_version'")
_HOLD: Final = text("SELECT pg_advisory_lock(:key)")
_RELEASE: Final = text("SELECT pg_advisory_unlock(:key)")
_LIMIT: Final = text("SELECT set_config('lock_timeout', :limit, false), set_config('statement_timeout', '0', false)")


class PostgresStorage:
    """See `tenancy.storage.Storage`. `data_dir` holds what each server keeps for itself: remembered answers."""

    shared: Final = True

    def __init__(self, settings: PostgresSettings, data_dir: Path, pools: ConnectionPools) -> None:
        """Connects at the first use. Raises `InvalidInput` for settings that cannot be used."""
        self._server = Server(settings)
        self._data_dir = data_dir
        self._pools = pools
        self.keyring: KeyringStore = PostgresKeyring(self._server)

    def database(
        self,
        place: Place,
        key: bytes,  # noqa: ARG002  encryption at rest is the server's here
        metadata: MetaData,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        page_cache: int = PAGE_CACHE_KIB,  # noqa: ARG002
        mark: Mark | None = None,
    ) -> PostgresDatabase:
        schema = schema_of(place)
        if place.kind == "tenants":
            # Its remembered answers stay beside the process that gave them.
            self._directory(place.owner).mkdir(parents=True, exist_ok=True, mode=0o700)
        else:
            self._server.make(schema)
        tier: Tier = "control" if schema == CONTROL_SCHEMA else "tenants" if place.kind == "tenants" else "logs"
        return PostgresDatabase(self._server, schema, metadata, seed=seed, migrations=migrations, mark=mark, tier=tier)

    def holds(self, place: Place) -> bool:
        with explained(_ITEM), begun(self._server.rare, _TABLES, {"schema": schema_of(place)}) as (_, found):
            return bool(found)

    def holds_tenants(self) -> bool:
        return any(schema.startswith("sr_t_") for schema in self._schemas())

    def add_tenant(self, tenant_id: str, control: Connection) -> None:
        control.execute(CreateSchema(f"sr_{tenant_id}"))

    def remove_tenant(self, tenant_id: str) -> bool:
        found = bool(self.leftovers([tenant_id]))
        self.forget_tenant(tenant_id)
        with explained(_ITEM), begun(self._server.rare, _SCHEMAS) as (connection, _):
            connection.execute(DropSchema(f"sr_{tenant_id}", cascade=True, if_exists=True))
        return found

    def forget_tenant(self, tenant_id: str) -> None:
        self._pools.close(self._directory(tenant_id))
        shutil.rmtree(self._directory(tenant_id), ignore_errors=True)

    def open_tenants(self) -> set[str]:
        return {path.name for path in self._pools.directories() if path.parent == self._data_dir / "tenants"}

    def leftovers(self, deleted: Collection[str]) -> list[str]:
        schemas = self._schemas()
        return [one for one in sorted(deleted) if f"sr_{one}" in schemas or self._directory(one).exists()]

    @contextmanager
    def exclusive(self, tenant_id: str, name: str, timeout_s: float) -> Iterator[None]:
        if f"sr_{tenant_id}" not in self._schemas():
            raise NotFound("the data was deleted", item=name)
        key = {"key": lock_key("exclusive", tenant_id, name)}
        with explained(name), self._server.apart.connect() as connection:
            connection.execute(_LIMIT, {"limit": f"{max(1, round(1000 * timeout_s))}ms"})
            connection.execute(_HOLD, key)
            try:
                yield
            finally:
                # Released before the connection ends, which the server notices a moment later.
                if not connection.execute(_RELEASE, key).scalar():
                    raise Unavailable("the lock was lost", item=name, remedy="try again")

    def presence(self) -> Presence:
        return PostgresPresence(self._server)

    def close(self) -> None:
        self._server.close()

    def _schemas(self) -> set[str]:
        with explained(_ITEM), begun(self._server.rare, _SCHEMAS) as (_, found):
            return {row.nspname for row in found}

    def _directory(self, tenant_id: str) -> Path:
        return self._data_dir / "tenants" / tenant_id


def schema_of(place: Place) -> str:
    """The schema of a database: `sr_control`, `sr_<owner>` for a tenant's data, `sr_<file>_<owner>` for the rest."""
    if place.file == CONTROL_FILE:
        return CONTROL_SCHEMA
    if place.kind == "tenants":
        return f"sr_{place.owner}"
    return f"sr_{place.file.removesuffix('.sqlite')}_{place.owner}"
