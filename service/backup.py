"""Backups of one tenant, beside a server and an ingestion: one encrypted archive of its database and its audit log.

The subjects' keys of the audit log stay out, so that what a person's erasure destroyed no backup brings back. Nor are
API keys in it: whoever restores makes new ones.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from audit.log import read_head
from audit.migrations import LOG
from audit.tables import AUDIT_FILE, metadata
from service.control import Control
from tenancy import archive, ledger, migrations, schema
from tenancy.database import ConnectionPools, Database
from tenancy.errors import Conflict
from tenancy.keys import KEY_BYTES
from tenancy.staging import staging
from tenancy.storage import DATA_FILE, AnyDatabase

MANIFEST: Final = "manifest.json"
LEDGER: Final = "ledger.jsonl"
VERSION: Final = 1

# An archive for a recovery key can be made by anybody who has its public half: nothing in it is taken on trust.
TenantId = Annotated[str, msgspec.Meta(pattern=r"\At_[0-9a-f]{32}\Z")]
Key = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9+/]{43}=\Z")]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first member of a backup. Times in UTC epoch seconds; keys in base64, safe in the encrypted archive alone.

    `file_key` opens the databases in the archive, `audit_key` is the tenant's own. `ledger` is the newest withdrawal
    that the documents know of, `audit_size` and `audit_root` (hexadecimal) are the state of the audit log.
    """

    tenant_id: TenantId
    name: str
    tenant_created: float
    contract: dict[str, Any]
    status: Literal["active", "suspended"]
    made: float
    file_key: Key
    audit_key: Key
    ledger: int
    audit_size: int
    audit_root: str
    counts: dict[str, int]
    version: int = VERSION


class LedgerManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The first member of a ledger: whose, how far it goes, and when the tenant was deleted if it was."""

    tenant_id: TenantId
    name: str
    made: float
    head: int
    deleted: float | None = None
    version: int = VERSION


def back_up(control: Control, tenant: str, path: Path, recovery: X25519PublicKey | None = None) -> dict[str, Any]:
    """Write a backup of `tenant` to the new file `path`; returns what is in it.

    Documents are of one moment, the audit log of one not before it. Raises `NotFound`, `AlreadyExists`, `Unavailable`.
    """
    record = control.tenants.show(tenant)
    principal = control.authenticator.operator(tenant)
    handle, log = control.tenants.open(principal, suspended=True), control.logs.of(principal)
    key = secrets.token_bytes(KEY_BYTES)
    with staging(control.tenants.data_dir) as folder:
        _copy(handle.data, folder / DATA_FILE, key, tenant)
        log.flush()
        _copy(log.database, folder / AUDIT_FILE, key, tenant)
        with detached(folder, key) as (data, trail):
            with data.reading() as connection:
                position = ledger.position(connection)
                counts = contents(connection)
            with trail.reading() as connection:
                head = read_head(connection)
        manifest = Manifest(
            tenant_id=record.id,
            name=record.name,
            tenant_created=record.created,
            contract=dict(record.contract),
            status="suspended" if record.status == "suspended" else "active",
            made=time.time(),
            file_key=base64.b64encode(key).decode(),
            audit_key=base64.b64encode(handle.keys.audit).decode(),
            ledger=position,
            audit_size=head.size,
            audit_root=head.root.hex(),
            counts=counts,
        )
        with archive.writing(path, "tenant", control.tenants.archive_key, recovery) as target:
            archive.add(target, MANIFEST, msgspec.json.encode(manifest))
            for file in (DATA_FILE, AUDIT_FILE):
                archive.add(target, file, folder / file)
    return {
        "tenant": record.name,
        "tenant_id": record.id,
        "file": str(path),
        "bytes": path.stat().st_size,
        **counts,
        "audit_events": head.size,
        "ledger": position,
        "recovery": recovery is not None,
    }


def write_ledger(control: Control, tenant: str, path: Path, recovery: X25519PublicKey | None = None) -> dict[str, Any]:
    """Write all that was ever withdrawn from `tenant` to the new file `path`: for a restore on another machine.

    `tenant` is a name, or the id of a tenant that is deleted. Raises `NotFound`, `AlreadyExists`.
    """
    tenant_id, name = control.tenants.resolve(tenant)
    known = control.tenants.adoption.known(tenant_id)
    with control.tenants.audit_files_of(tenant_id).ledger().reading() as connection:
        head = ledger.head(connection)
        manifest = LedgerManifest(
            tenant_id=tenant_id, name=name, made=time.time(), head=head, deleted=None if known.name else known.deleted
        )
        # Ids alone: some tens of bytes for each withdrawal.
        lines = b"".join(msgspec.json.encode(entry) + b"\n" for entry in ledger.since(connection, 0))
    with archive.writing(path, "ledger", control.tenants.archive_key, recovery) as target:
        archive.add(target, MANIFEST, msgspec.json.encode(manifest))
        archive.add(target, LEDGER, lines)
    return {"tenant": name, "tenant_id": tenant_id, "file": str(path), "withdrawals": head}


@contextmanager
def detached(folder: Path, key: bytes) -> Iterator[tuple[Database, Database]]:
    """The databases of a backup in `folder`, brought to this program's schema; closed when the block ends.

    Raises `SchemaTooNew`, `Corrupt`.
    """
    pools = ConnectionPools()
    try:
        yield (
            Database(folder / DATA_FILE, key, schema.tenant, pools, migrations=migrations.TENANT),
            Database(folder / AUDIT_FILE, key, metadata, pools, migrations=LOG),
        )
    finally:
        pools.close()


def contents(connection: Connection) -> dict[str, int]:
    """How many documents, chunks, users and groups a tenant's database holds."""
    return {
        table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
        for table in (schema.documents, schema.chunks, schema.users, schema.groups)
    }


def _copy(database: AnyDatabase, target: Path, key: bytes, tenant: str) -> None:
    if not isinstance(database, Database):
        raise Conflict(
            "the tenant's data lies in a database server", item=tenant, remedy="use that server's own backups"
        )
    database.copy_to(target, key)
