"""Taking in a tenant out of a backup: its files first, beside everything else, then one transaction puts it on record.

A crash before the commit leaves folders that nothing refers to, and marks below `arriving/`; the next sweep removes
both.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.engine import Connection

from tenancy import schema
from tenancy.database import Database
from tenancy.errors import AlreadyExists, Unavailable
from tenancy.keyring import sync_directory
from tenancy.keys import KEY_BYTES, RootKey, derive
from tenancy.registry import FIRST, named, read_generation, write_generation
from tenancy.rotation import file_key
from tenancy.storage import DATA_FILE, AnyDatabase

ARRIVING: Final = "arriving"
_GAP: Final = 1 << 20
"""So many ids are left out behind a restored state: those that were given later are not given again."""


@dataclass(frozen=True, slots=True)
class Known:
    """What this data directory knows of a tenant id: its name where it is here, its deletion, its audit key."""

    name: str | None
    status: str | None
    deleted: float | None
    audit_key: bytes | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A tenant to take in. `log` are databases of the audit log of `log_owner`, by the name of their file; the
    tenant's own log begins anew where that is another id. `left` are files of that log which no backup holds: they are
    made again here as lost ones. `created` is in UTC epoch seconds.
    """

    tenant_id: str
    name: str
    created: float
    contract: Mapping[str, Any]
    status: Literal["active", "suspended"]
    audit_key: bytes = field(repr=False)
    data: Database
    log_owner: str
    log_key: bytes = field(repr=False)
    log: Mapping[str, Database]
    left: tuple[str, ...] = ()


class Adoption:
    """Takes tenants in. For storages of files."""

    def __init__(self, control: AnyDatabase, root: RootKey, data_dir: Path) -> None:
        self._control = control
        self._root = root
        self._data_dir = data_dir

    def known(self, tenant_id: str) -> Known:
        tenants, deletions, keys = schema.tenants.c, schema.deletions.c, schema.wrapped_keys.c
        with self._control.reading() as connection:
            row = connection.execute(select(tenants.name, tenants.status).where(tenants.id == tenant_id)).one_or_none()
            deleted = connection.execute(select(deletions.deleted).where(deletions.tenant_id == tenant_id)).scalar()
            audit = select(keys.wrapped).where(keys.tenant_id == tenant_id, keys.purpose == "audit")
            wrapped = connection.execute(audit).scalar_one_or_none()
        key = None if wrapped is None else self._root.unwrap(tenant_id, "audit", wrapped)
        return Known(row.name if row else None, row.status if row else None, deleted, key)

    def adopt(self, arrival: Arrival, folder: Path) -> None:
        """Put a tenant on record, under a fresh data key. All of it is there afterwards, or nothing. `folder` is a
        staging folder. Raises `AlreadyExists` for a name or id that is here.
        """
        data_key = secrets.token_bytes(KEY_BYTES)
        generation = self._generation(arrival.tenant_id)
        homes = {folder / "data": self._data_dir / "tenants" / arrival.tenant_id}
        _filled(folder / "data", {named(DATA_FILE, generation): (arrival.data, file_key(data_key))})
        if arrival.log:
            homes[folder / "log"] = self._data_dir / "audit" / arrival.log_owner
            keyed = {file: (log, _log_key(arrival.log_key, file)) for file, log in arrival.log.items()}
            _filled(folder / "log", keyed)
        placed: list[Path] = []
        try:
            with self._control.writing() as connection:
                _refuse_known(connection, arrival)
                self._record(connection, arrival, data_key, generation)
                for staged, home in homes.items():
                    self._mark(home)
                    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    if home.parent.name == "tenants":
                        # Left by a deletion that was cut short; the audit log of a deleted tenant is never in the way.
                        shutil.rmtree(home, ignore_errors=True)
                    staged.rename(home)
                    placed.append(home)
                    sync_directory(home.parent)
        except BaseException as error:
            for home in placed:
                shutil.rmtree(home, ignore_errors=True)
            for home in homes.values():
                # What was there before is nobody's to sweep.
                self._mark_of(home).unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise Unavailable(
                    "the tenant's folders cannot be put in place", item=arrival.name, remedy=str(error.strerror)
                ) from error
            raise
        for home in placed:
            self._mark_of(home).unlink(missing_ok=True)

    def sweep(self) -> list[Path]:
        """Remove what an adoption that was cut short has left; returns the folders. For start-up."""
        if not any((self._data_dir / ARRIVING).glob("*")):
            return []
        left = []
        # Whoever is taking in a tenant holds the same lock from its mark to its commit.
        with self._control.writing() as connection:
            for mark in sorted((self._data_dir / ARRIVING).glob("*")):
                kind, _, owner = mark.name.partition(".")
                table = schema.tenants.c.id if kind == "tenants" else schema.wrapped_keys.c.tenant_id
                home = self._data_dir / kind / owner
                if connection.execute(select(table).where(table == owner)).first() is None and home.exists():
                    shutil.rmtree(home)
                    left.append(home)
                mark.unlink()
        return left

    def _mark_of(self, home: Path) -> Path:
        return self._data_dir / ARRIVING / f"{home.parent.name}.{home.name}"

    def _mark(self, home: Path) -> None:
        mark = self._mark_of(home)
        mark.parent.mkdir(exist_ok=True, mode=0o700)
        mark.touch()
        sync_directory(mark.parent)

    def _generation(self, tenant_id: str) -> int:
        """Behind that of a deleted tenant of this id, so that a server that missed its deletion opens it anew."""
        with self._control.reading() as connection:
            last = read_generation(connection, tenant_id, DATA_FILE)
        return FIRST if last is None else last + 1

    def _record(self, connection: Connection, arrival: Arrival, data_key: bytes, generation: int) -> None:
        connection.execute(
            insert(schema.tenants).values(
                id=arrival.tenant_id,
                name=arrival.name,
                status=arrival.status,
                created=arrival.created,
                contract=dict(arrival.contract),
            )
        )
        owners = {(arrival.tenant_id, "data"): data_key, (arrival.tenant_id, "audit"): arrival.audit_key}
        if arrival.log:
            owners[arrival.log_owner, "audit"] = arrival.log_key
        for (owner, purpose), key in owners.items():
            keys = schema.wrapped_keys
            connection.execute(delete(keys).where(keys.c.tenant_id == owner, keys.c.purpose == purpose))
            wrapped = self._root.wrap(owner, purpose, key)
            connection.execute(insert(keys).values(tenant_id=owner, purpose=purpose, wrapped=wrapped))
        write_generation(connection, arrival.tenant_id, DATA_FILE, generation)
        for file in arrival.log:
            write_generation(connection, arrival.log_owner, file, FIRST)
        for file in arrival.left if arrival.log else ():
            write_generation(connection, arrival.log_owner, file, FIRST + 1)


def revive(tenant: Connection, origin: Mapping[str, Any], now: float) -> None:
    """Make the database of a backup fit to be served: no server may take it for a state that it holds in memory, no id
    that was given after the backup is given again, and its physical collections are built anew.
    """
    jump = int(now * 1000)
    before = tenant.execute(select(schema.epochs)).one()
    tenant.execute(
        update(schema.epochs).values(
            {name: max(getattr(before, name) + 1, jump) for name in ("acl", "corpus", "kv", "changes")}
        )
    )
    tenant.execute(delete(schema.changes))
    tenant.execute(text("UPDATE sqlite_sequence SET seq = seq + :gap"), {"gap": _GAP})
    tenant.execute(delete(schema.collections).where(schema.collections.c.state != "serving"))
    for collection_id in tenant.execute(select(schema.collections.c.id)).scalars().all():
        tenant.execute(
            update(schema.collections)
            .where(schema.collections.c.id == collection_id)
            .values(
                physical=f"c_{secrets.token_hex(16)}", applied=-1, sealing=secrets.token_bytes(KEY_BYTES), created=now
            )
        )
    tenant.execute(delete(schema.meta).where(schema.meta.c.key == "restored"))
    tenant.execute(insert(schema.meta).values(key="restored", value=dict(origin)))


def _refuse_known(connection: Connection, arrival: Arrival) -> None:
    tenants = schema.tenants.c
    same = (tenants.name == arrival.name) | (tenants.id == arrival.tenant_id)
    found = connection.execute(select(tenants.name).where(same)).scalars().first()
    if found is not None:
        raise AlreadyExists(
            "a tenant of this name exists", item=found, remedy="restore it --as another name, or --replace this one"
        )


def _filled(folder: Path, files: Mapping[str, tuple[Database, bytes]]) -> None:
    folder.mkdir(mode=0o700)
    for file, (source, key) in files.items():
        source.copy_to(folder / file, key)
    sync_directory(folder)


def _log_key(audit_key: bytes, file: str) -> bytes:
    return derive(audit_key, f"strongroom/audit/file/{file}")
