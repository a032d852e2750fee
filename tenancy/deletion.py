"""Deleting a tenant, and the signed certificate of what was destroyed, what is retained and why.

The certificate is canonical JSON: sorted keys, no white space, UTF-8, whole numbers and text alone. Its signature is
Ed25519 (RFC 8032) over that without the `signature` field; `examples/verify_certificate.py` checks it by itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from sqlalchemy import Select, delete, func, insert, select
from sqlalchemy.engine import Connection

from tenancy import credentials, schema
from tenancy.database import Database
from tenancy.errors import NotFound, StrongroomError, Unavailable
from tenancy.keys import RootKey
from tenancy.names import enc
from tenancy.records import TenantRecord
from tenancy.rotation import leave, server_collections
from tenancy.storage import AnyDatabase
from tenancy.tenant import TenantHandle

VERSION: Final = 1
UNNAMED: Final = "the database that names them could not be read: what an engine still holds is not known"
RETAINED: Final = "evidence of who saw what; kept for the retention time of its class, or until a legal hold ends"

Drop = Callable[[str, str], None]
"""Drops a collection at an engine, by the engine's name and the physical name. Raises `StrongroomError`."""


@dataclass(frozen=True, slots=True)
class Witness:
    """What the certificate has to say about things that other packages keep. `log` is the audit log's size and root
    (hexadecimal) as far as it goes; `cache` counts the remembered answers, `adapters` lists the files of adapters.
    """

    log: Callable[[], tuple[int, str]] | None = None
    cache: Callable[[TenantHandle], Mapping[str, Any]] | None = None
    adapters: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    drop: Drop | None = None


@dataclass(slots=True)
class _Collections:
    """What became of a tenant's collections; `known` once its database has named them."""

    known: bool = False
    dropped: list[dict[str, str]] = field(default_factory=list)
    pending: list[dict[str, str]] = field(default_factory=list)

    def drop(self, held: Iterable[tuple[str, str]], drop: Drop | None) -> None:
        """Drop collections (engine, physical name) at their engines; what cannot be reached stays pending."""
        for engine, physical in sorted(held):
            try:
                if drop is None:
                    raise Unavailable("nobody here reaches the engine", item=engine)
                drop(engine, physical)
            except StrongroomError as error:
                self.pending.append({"engine": engine, "physical": physical, "reason": error.code})
            else:
                self.dropped.append({"engine": engine, "physical": physical})


class Deletion:
    """Deletes tenants from the control plane `control`, and signs for it."""

    def __init__(self, control: AnyDatabase, root: RootKey, clock: Callable[[], float]) -> None:
        self._control = control
        self._key = signing_key(root)
        self._clock = clock

    def delete(self, record: TenantRecord, handle: TenantHandle, witness: Witness) -> dict[str, Any]:
        """Destroy a tenant's keys and credentials, and let its database be used by nobody again; returns the signed
        certificate. The caller removes the files, which no key opens any more.

        All is counted and all goes under the database's write lock: an ingestion ends with what is in the certificate.
        """
        with ExitStack() as stack:
            contents, collections = _contents(stack, handle, witness)
            with self._control.reading() as connection:
                keys = [key.id for key in credentials.of_tenant(connection, record.id)]
                earlier = _left(connection, record.id)
            adapter_files = [] if witness.adapters is None else list(witness.adapters())
            collections.drop(earlier, witness.drop)
            now = self._clock()
            certificate = sign(
                {
                    "version": VERSION,
                    "tenant": record.name,
                    "tenant_id": record.id,
                    "created": _iso(record.created),
                    "deleted": _iso(now),
                    "destroyed": {
                        **contents,
                        "queue_items": {"count": 0, "note": "an ingestion is not queued: it ended with an error"},
                        "temporary_files": {
                            "note": "none: unfinished backups and restores are under keys never stored"
                        },
                        "files": artefacts(handle.directory),
                        "adapter_files": adapter_files,
                        "collections": {
                            "dropped": collections.dropped,
                            "pending": collections.pending,
                            **({} if collections.known else {"note": UNNAMED}),
                        },
                        "api_keys": {"count": len(keys), "sha256": _digest(sorted(keys))},
                        "keys": ["data"],
                    },
                    "audit_log": _log(witness),
                    "retained": {
                        "audit_log": str(record.contract.get("retention") or RETAINED),
                        "deletion_certificate": "proof of the deletion",
                        "withdrawals": "ids of what was taken away, so that no older backup brings it back",
                    },
                },
                self._key,
            )
            self._forget(record, certificate, collections, now)
        self._control.truncate_wal()
        return certificate

    def certificate(self, tenant: str) -> dict[str, Any]:
        """The newest certificate of a deleted tenant by its id or name. Raises `NotFound`."""
        deletions = schema.deletions.c
        query = (
            select(deletions.certificate)
            .where((deletions.tenant_id == tenant) | (deletions.name == tenant))
            .order_by(deletions.deleted.desc())
        )
        with self._control.reading() as connection:
            found: dict[str, Any] | None = connection.execute(query).scalars().first()
        if found is None:
            raise NotFound("no tenant of this name or id was deleted", item=tenant[:100])
        return found

    def signed(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        """`statement` under the signature of this deployment, as a certificate is."""
        return sign(statement, self._key)

    def forget_user(self, tenant_id: str, user_id: str) -> int:
        """Remove the API keys of a user with the name that stands in them, revoked ones too; returns how many."""
        keys = schema.api_keys
        with self._control.writing() as connection:
            own = delete(keys).where(keys.c.tenant_id == tenant_id, keys.c.user_id == user_id)
            gone = connection.execute(own).rowcount
        self._control.truncate_wal()
        return gone

    def certificates(self) -> list[dict[str, Any]]:
        """The certificates of all tenants that were deleted, the newest first."""
        query = select(schema.deletions.c.certificate).order_by(schema.deletions.c.deleted.desc())
        with self._control.reading() as connection:
            return list(connection.execute(query).scalars())

    def leave(self, tenant_id: str, engine: str, physical: str) -> None:
        """Put a collection on record that nothing of its tenant names any more, for a server to drop."""
        with self._control.writing() as connection:
            leave(connection, tenant_id, {(engine, physical)}, self._clock())

    def leftovers(self, drop: Drop) -> list[str]:
        """Drop the collections that could not be dropped with their tenants; returns the physical names of those that
        are gone now.
        """
        leftovers = schema.leftovers.c
        with self._control.reading() as connection:
            rows = connection.execute(select(leftovers.engine, leftovers.physical)).all()
        gone = []
        for engine, physical in rows:
            try:
                drop(engine, physical)
            except StrongroomError:
                continue
            with self._control.writing() as connection:
                connection.execute(delete(schema.leftovers).where(leftovers.physical == physical))
            gone.append(physical)
        return gone

    def _forget(
        self, record: TenantRecord, certificate: Mapping[str, Any], collections: _Collections, now: float
    ) -> None:
        with self._control.writing() as connection:
            if not connection.execute(delete(schema.tenants).where(schema.tenants.c.id == record.id)).rowcount:
                raise NotFound("no such tenant", item=record.name)
            keys = schema.wrapped_keys
            connection.execute(delete(keys).where(keys.c.tenant_id == record.id, keys.c.purpose != "audit"))
            connection.execute(delete(schema.deletions).where(schema.deletions.c.tenant_id == record.id))
            connection.execute(
                insert(schema.deletions).values(
                    tenant_id=record.id, name=record.name, deleted=now, certificate=certificate
                )
            )
            left = schema.leftovers
            connection.execute(delete(left).where(left.c.tenant_id == record.id))
            leave(connection, record.id, {(one["engine"], one["physical"]) for one in collections.pending}, now)


def signing_key(root: RootKey) -> Ed25519PrivateKey:
    """The service's signing key, derived from the root key."""
    return Ed25519PrivateKey.from_private_bytes(root.purpose("signing"))


def public_key(root: RootKey) -> str:
    """The service's public key, base64 of 32 bytes: what certificates are checked with."""
    return base64.b64encode(signing_key(root).public_key().public_bytes_raw()).decode()


def artefacts(directory: Path) -> list[dict[str, Any]]:
    """Every file below `directory`: name, bytes and SHA-256, sorted by name."""
    found = []
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found.append({"file": str(path.relative_to(directory)), "bytes": path.stat().st_size, "sha256": digest})
    return found


def canonical(certificate: Mapping[str, Any]) -> bytes:
    """The bytes that are signed: the certificate without its signature."""
    body = {name: value for name, value in certificate.items() if name != "signature"}
    return msgspec.json.encode(body, order="sorted")


def sign(certificate: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The certificate with `public_key` and `signature` (base64) added."""
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    body = {**certificate, "public_key": public}
    return {**body, "signature": base64.b64encode(key.sign(canonical(body))).decode()}


def verify(certificate: Mapping[str, Any], public: bytes) -> bool:
    """True where `certificate` was signed by the holder of the raw Ed25519 public key `public`, unaltered."""
    try:
        signature = base64.b64decode(str(certificate.get("signature", "")), validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(signature, canonical(certificate))
    except (InvalidSignature, ValueError):
        return False
    return True


def _contents(stack: ExitStack, handle: TenantHandle, witness: Witness) -> tuple[dict[str, Any], _Collections]:
    """What the tenant's database holds, under its write lock, which `stack` keeps; a damaged one is only named."""
    collections = _Collections()
    try:
        with handle.reading():
            # Finishes a change of the key that was cut short.
            pass
        # Left by an error on its way out, the transaction says what is wrong with the file.
        with ExitStack() as own:
            connection = own.enter_context(handle.data.writing())
            # They are derived: where the deletion fails afterwards they are built anew.
            collections.drop(server_collections(connection), witness.drop)
            collections.known = True
            counted = _census(connection)
            counted["cache_entries"] = {"count": 0} if witness.cache is None else dict(witness.cache(handle))
            _retire(handle, connection)
            stack.push(own.pop_all())
    except NotFound:
        raise
    except StrongroomError as error:
        with suppress(StrongroomError), handle.data.writing() as connection:
            _retire(handle, connection)
        return {"unreadable": error.code}, collections
    return counted, collections


def _retire(handle: TenantHandle, connection: Connection) -> None:
    """Behind this transaction everybody who still holds the tenant is refused."""
    if isinstance(handle.data, Database):
        handle.data.retire(connection)


def _census(connection: Connection) -> dict[str, Any]:
    """Count, bytes and SHA-256 of documents (name, version), chunks (text) and vectors, each in the order of ids."""
    documents, chunks, vectors = schema.documents.c, schema.chunks.c, schema.vectors.c
    queries: dict[str, Select[Any]] = {
        "documents": select(documents.name, documents.version).order_by(documents.id),
        "chunks": select(chunks.text).order_by(chunks.id),
        "vectors": select(vectors.vector).order_by(vectors.chunk_id, vectors.model_id),
    }
    return {name: _counted(connection, query) for name, query in queries.items()} | {
        name: {"count": int(connection.execute(select(func.count()).select_from(table)).scalar_one())}
        for name, table in (
            ("users", schema.users),
            ("groups", schema.groups),
            ("access_lists", schema.acl),
            ("adapters", schema.adapters),
            ("templates", schema.templates),
        )
    }


def _counted(connection: Connection, query: Select[Any]) -> dict[str, Any]:
    digest, count, size = hashlib.sha256(), 0, 0
    for row in connection.execute(query, execution_options={"yield_per": 1_000}):
        encoded = enc(*row)
        digest.update(encoded)
        size += sum(len(part.encode()) if isinstance(part, str) else len(part) for part in row)
        count += 1
    return {"count": count, "bytes": size, "sha256": digest.hexdigest()}


def _left(control: Connection, tenant_id: str) -> set[tuple[str, str]]:
    """The collections that a tenant left behind before, when its database was replaced."""
    left = schema.leftovers.c
    rows = control.execute(select(left.engine, left.physical).where(left.tenant_id == tenant_id))
    return {(row.engine, row.physical) for row in rows}


def _log(witness: Witness) -> dict[str, Any]:
    if witness.log is None:
        return {}
    size, root = witness.log()
    return {"size": size, "root": root}


def _digest(names: Sequence[str]) -> str:
    return hashlib.sha256(enc(*names)).hexdigest()


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
