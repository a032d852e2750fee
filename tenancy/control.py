"""The control plane: which tenants there are, their wrapped keys and API keys, in `control.sqlite`."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.engine import Connection

from tenancy import credentials, directory, migrations, records, schema
from tenancy.adoption import Adoption
from tenancy.apikeys import MintedKey
from tenancy.contract import Contract
from tenancy.credentials import KeyRecord, NewKey
from tenancy.database import ConnectionPools, Database
from tenancy.deletion import Deletion, Witness, public_key
from tenancy.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    NotFound,
    StrongroomError,
    TenantSuspended,
)
from tenancy.identity import Principal, Role
from tenancy.keyring import KEYRING_FILE, create_root, open_root
from tenancy.keys import KEY_BYTES, MasterKey, RootKey, TenantKeys
from tenancy.limits import WorkClass
from tenancy.names import nfc_name, tenant_name
from tenancy.recent import Recent
from tenancy.records import MOST_LISTED
from tenancy.records import TenantRecord as TenantRecord
from tenancy.registry import FIRST, Registry, named
from tenancy.rotation import NEXT, Rotation
from tenancy.staging import sweep_staging
from tenancy.storage import CONTROL, CONTROL_FILE, DATA_FILE, AnyDatabase, SqliteStorage, Storage
from tenancy.tenant import _SEAL, AuditFiles, TenantHandle

_logger = logging.getLogger(__name__)

SYSTEM: Final = "system"
HANDLES: Final = 1_024
"""Handles kept for tenants that nobody is using right now."""

# Made once: for a few rows, making a statement takes longer than running it.
_WRAPPED: Final = select(schema.wrapped_keys.c.wrapped).where(
    schema.wrapped_keys.c.tenant_id == bindparam("tenant"), schema.wrapped_keys.c.purpose == bindparam("use")
)
_DATA: Final = (schema.files.c.owner == schema.tenants.c.id) & (schema.files.c.file == DATA_FILE)
_OPENED: Final = (
    select(schema.tenants.c.status, schema.tenants.c.contract, schema.files.c.generation)
    .select_from(schema.tenants.outerjoin(schema.files, _DATA))
    .where(schema.tenants.c.id == bindparam("tenant"))
)

_CHANGED_KEYS: Final = (
    select(schema.files.c.owner, schema.files.c.generation)
    .select_from(schema.tenants.join(schema.files, _DATA))
    .where(schema.files.c.generation > FIRST)
)
_CHANGING_KEYS: Final = select(schema.wrapped_keys.c.tenant_id).where(schema.wrapped_keys.c.purpose == NEXT)


class Tenants:
    """The directory of tenants in `storage` (files below `data_dir`), and the only producer of `TenantHandle`."""

    def __init__(
        self,
        data_dir: Path,
        master: MasterKey,
        *,
        pools: ConnectionPools | None = None,
        storage: Storage | None = None,
        environment: str = "live",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data_dir = data_dir
        self._pools = pools or ConnectionPools()
        self._environment = environment
        self._clock = clock
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.storage = storage or SqliteStorage(data_dir, self._pools)
        self._root, self._control = self._opened(master)
        self._registry = Registry(self._control)
        self._rotation = Rotation(self._control, self._root)
        self.adoption = Adoption(self._control, self._root, data_dir)
        self.deletion = Deletion(self._control, self._root, clock)
        self.public_key = public_key(self._root)
        self.archive_key = self._root.purpose("archive")
        self.key_hash_key = self._root.purpose("api-key-hash")
        self._handles: Recent[str, TenantHandle] = Recent(HANDLES)
        self._system: AuditFiles | None = None
        self._lock = threading.Lock()

    def _opened(self, master: MasterKey) -> tuple[RootKey, AnyDatabase]:
        """The root key and the control plane. A directory from before there were keyrings gets one here."""
        store, there = self.storage.keyring, self.storage.holds(CONTROL)
        root = open_root(store, master)
        if not there and self.storage.holds_tenants():
            raise Corrupt("the control plane is missing", item=CONTROL_FILE, remedy="restore it from a backup")
        if root is None and there:
            # Before there were keyrings the master key was the root: true where it opens what is in the control plane.
            root = RootKey(master.value)
            try:
                with self._control_plane(root).reading() as connection:
                    for row in connection.execute(select(schema.wrapped_keys).limit(1)):
                        root.unwrap(row.tenant_id, row.purpose, row.wrapped)
            except Corrupt:
                raise Corrupt(
                    "the keyring is missing, and the master key alone does not open the control plane",
                    item=KEYRING_FILE,
                    remedy="put the keyring back from a copy",
                ) from None
            root = create_root(store, master, root)
        root = root or create_root(store, master)
        return root, self._control_plane(root)

    def _control_plane(self, root: RootKey) -> AnyDatabase:
        return self.storage.database(CONTROL, root.purpose("control"), schema.control, migrations=migrations.CONTROL)

    # Tenants

    def create(self, name: str, contract: Contract | None = None) -> TenantRecord:
        """Create an empty tenant with fresh random keys. Raises `AlreadyExists`, `InvalidInput`."""
        tenant_name(name)
        tenant_id = f"t_{secrets.token_hex(16)}"
        record = TenantRecord(tenant_id, name, "active", self._clock(), (contract or Contract()).stored())
        with self._control.writing() as connection:
            if records.find(connection, name) is not None:
                raise AlreadyExists("a tenant of this name exists", item=name)
            connection.execute(
                insert(schema.tenants).values(
                    id=record.id, name=name, status="active", created=record.created, contract=record.contract
                )
            )
            for purpose in ("data", "audit"):
                self._store_key(connection, tenant_id, purpose)
            self.storage.add_tenant(tenant_id, connection)
        return record

    def all(self) -> Sequence[TenantRecord]:
        """All tenants by name, without opening any."""
        with self._control.reading() as connection:
            rows = connection.execute(select(schema.tenants).order_by(schema.tenants.c.name)).all()
        return [TenantRecord(*row) for row in rows]

    def page(self, after: str = "", limit: int = MOST_LISTED) -> Sequence[TenantRecord]:
        """At most `limit` tenants whose names come after `after`, by name, without opening any."""
        with self._control.reading() as connection:
            return records.page(connection, after, limit)

    def listed(self, after: str = "") -> Iterator[TenantRecord]:
        """All tenants behind `after` by name, page by page: each page in a transaction of its own."""
        while page := self.page(after):
            yield from page
            after = page[-1].name

    def count(self) -> tuple[int, int]:
        """How many tenants there are, and how many of them are active."""
        with self._control.reading() as connection:
            return records.count(connection)

    def ping(self) -> None:
        """Read one row of the control plane. Raises `Unavailable`, `Corrupt`."""
        with self._control.reading() as connection:
            connection.execute(select(schema.tenants.c.id).limit(1)).first()

    def show(self, name: str) -> TenantRecord:
        with self._control.reading() as connection:
            record = records.find(connection, name)
        if record is None:
            raise NotFound("no such tenant", item=name, remedy="`strongroom tenant list` shows the tenants")
        return record

    def set_status(self, name: str, status: str) -> TenantRecord:
        """Suspend ("suspended") or resume ("active") a tenant; holds from the next request on."""
        with self._control.writing() as connection:
            record = records.find(connection, name)
            if record is None:
                raise NotFound("no such tenant", item=name)
            connection.execute(update(schema.tenants).where(schema.tenants.c.id == record.id).values(status=status))
        return self.show(name)

    def set_contract(self, name: str, contract: Contract | Callable[[Contract], Contract]) -> TenantRecord:
        """Put another contract in place, or what a function makes of the present one; holds from the next request on.

        No change beside it is lost on a function, and nothing changes where it raises.
        """
        with self._control.writing() as connection:
            records.agree(connection, name, contract)
        return self.show(name)

    def delete(self, name: str, witness: Witness | None = None) -> dict[str, Any]:
        """Destroy a tenant's keys, credentials and directory; returns the signed deletion certificate.

        The keys go first, in one transaction with its row, so that a crash afterwards leaves only files that no key
        opens; `sweep` removes those. The audit log is retained.
        """
        record = self.show(name)
        certificate = self.deletion.delete(record, self._handle(record.id, record.name), witness or Witness())
        self._handles.pop(record.id)
        self.storage.remove_tenant(record.id)
        return certificate

    def rotate_key(self, name: str) -> int:
        """Give a tenant's documents a new random key, beside a server and an ingestion; returns the new generation.

        Its remembered answers are dropped, its audit log keeps its key. Raises `NotFound`, `Unavailable`.
        """
        record = self.show(name)
        return self._rotation.rotate(self._handle(record.id, record.name))

    def replace_data(
        self, name: str, data: Database, orphans: Iterable[tuple[str, str]], last: Callable[[], None]
    ) -> int:
        """Put a copy of `data` in the place of a suspended tenant's database; see `Rotation.replace`."""
        record = self.show(name)
        if record.status != "suspended":
            raise Conflict("the tenant is in use", item=name, remedy=f"suspend it: strongroom tenant suspend {name}")
        return self._rotation.replace(self._handle(record.id, record.name), data, orphans, last)

    def resolve(self, tenant: str) -> tuple[str, str]:
        """Id and name of a tenant by its name, or of a deleted one by its id. Raises `NotFound`."""
        with self._control.reading() as connection:
            return records.resolve(connection, tenant)

    def sweep(self) -> list[str]:
        """Remove directories of tenants that are deleted, and finish changes of keys that were cut short; returns the
        ids of the deleted ones. For start-up.
        """
        still_there = select(schema.tenants.c.id)
        with self._control.reading() as connection:
            gone = select(schema.deletions.c.tenant_id).where(schema.deletions.c.tenant_id.not_in(still_there))
            deleted = set(connection.execute(gone).scalars())
            unfinished = set(connection.execute(_CHANGING_KEYS).scalars())
            changed = connection.execute(_CHANGED_KEYS).all()
        unfinished |= {tenant_id for tenant_id, generation in changed if self._beside(tenant_id, generation)}
        for tenant_id in sorted(unfinished):
            try:
                self._rotation.tidy(self._handle(tenant_id))
            except StrongroomError as error:
                # One damaged tenant does not keep the others from being served.
                _logger.error("a change of the key of %s is not finished: %s", tenant_id, error.code)
        self.adoption.sweep()
        sweep_staging(self.data_dir)
        left = self.storage.leftovers(deleted)
        for tenant_id in left:
            self.storage.remove_tenant(tenant_id)
        return left

    def _beside(self, tenant_id: str, generation: int) -> bool:
        """Whether a file of the generation before or after lies beside the present one; the tenant stays closed."""
        directory = self.data_dir / "tenants" / tenant_id
        return any((directory / named(DATA_FILE, near)).exists() for near in (generation - 1, generation + 1))

    def forget_deleted(self, among: Iterable[str] = ()) -> list[str]:
        """Drop the keys and close the files of tenants that another process deleted; returns their ids. For a server,
        which would otherwise keep the keys in memory and the removed files on the disk.

        Looked for are those that are open here and those `among` which the caller keeps something of; the others cost
        nothing.
        """
        ours = self._handles.keys() | self.storage.open_tenants() | set(among)
        with self._control.reading() as connection:
            gone = records.absent(connection, ours)
        for tenant_id in gone:
            self._handles.pop(tenant_id)
            self.storage.forget_tenant(tenant_id)
        return gone

    def open(self, principal: Principal, *, suspended: bool = False) -> TenantHandle:
        """The handle of the principal's own tenant, with its present contract; for a backup also a `suspended` one.

        Raises `TenantSuspended`, `NotFound` (deleted), `Corrupt` for a contract that this version does not know.
        """
        with self._control.reading() as connection:
            row = connection.execute(_OPENED, {"tenant": principal.tenant_id}).one_or_none()
        if row is None:
            raise NotFound("the tenant does not exist any more", item=principal.tenant)
        if row.status != "active" and not suspended:
            raise TenantSuspended("the tenant is suspended", item=principal.tenant, remedy="ask its operator")
        handle = self._handle(principal.tenant_id, principal.tenant)
        handle.agree(principal.tenant, row.contract)
        handle.follow(row.generation or FIRST)
        return handle

    def audit_files(self, principal: Principal) -> AuditFiles:
        """The audit log of the principal's tenant, also of a suspended one."""
        return self.audit_files_of(principal.tenant_id)

    def audit_files_of(self, tenant_id: str) -> AuditFiles:
        """The audit log of a tenant by its id, also of a deleted one: for closing what a crash left open in it.

        Raises `NotFound` where its keys are gone.
        """
        if tenant_id == SYSTEM:
            return self.system_audit()
        handle = self._handles.get(tenant_id)
        if handle is not None:
            return handle.audit
        return self._audit_files(tenant_id, self._key(tenant_id, "audit"))

    def system_audit(self) -> AuditFiles:
        """The log of what belongs to no tenant: failed authentications, tenants created and deleted."""
        with self._lock:
            if self._system is None:
                key = self._root.purpose("system-audit")
                self._system = self._audit_files(SYSTEM, key)
            return self._system

    # API keys

    def create_key(
        self,
        tenant: str,
        user: str,
        roles: Sequence[Role],
        *,
        groups: Sequence[str] = (),
        expires: float | None = None,
        work: WorkClass = "interactive",
    ) -> MintedKey:
        """Mint a key for `user`, creating the user and adding it to `groups`; the secret is returned once."""
        user, record = nfc_name(user, "user"), self.show(tenant)
        with self._handle(record.id, record.name).writing() as view:
            user_id = directory.ensure_user(view, user, self._clock())
            for group in groups:
                directory.add_members(view, group, [f"user:{user}"], self._clock())
        wanted = NewKey(record.id, user_id, user, frozenset(roles), self._clock(), expires, work)
        with self._control.writing() as connection:
            return credentials.add(connection, self.key_hash_key, self._environment, wanted)

    def find_key(self, key_id: str) -> KeyRecord | None:
        """One key with its live secrets, or None; read afresh, so that a revocation holds at the next request."""
        with self._control.reading() as connection:
            return credentials.find(connection, key_id)

    def list_keys(self, tenant: str) -> Sequence[KeyRecord]:
        record = self.show(tenant)
        with self._control.reading() as connection:
            return credentials.of_tenant(connection, record.id)

    def revoke_key(self, tenant: str, key_id: str) -> None:
        """Revoke a key of `tenant` for good. Raises `NotFound`, also for another tenant's key."""
        record = self.show(tenant)
        with self._control.writing() as connection:
            credentials.revoke(connection, record.id, key_id, self._clock())

    # Users, for authentication

    def find_user(self, tenant_id: str, user: str) -> str | None:
        """The id of an existing user of a tenant, by name."""
        with self._handle(tenant_id).reading() as view:
            return directory.find_user(view, user)

    def provision_user(self, tenant_id: str, user: str) -> str:
        """The id of a user whom a trusted issuer names; created at first sight."""
        found = self.find_user(tenant_id, user)
        if found is not None:
            return found
        with self._handle(tenant_id).writing() as view:
            return directory.ensure_user(view, nfc_name(user, "user"), self._clock())

    def close(self) -> None:
        self._pools.close()
        self.storage.close()

    def _handle(self, tenant_id: str, name: str = "") -> TenantHandle:
        found = self._handles.get(tenant_id)
        if found is not None:
            return found
        keys = TenantKeys(self._key(tenant_id, "data"), self._key(tenant_id, "audit"))
        path = self.data_dir / "tenants" / tenant_id
        audit = self._audit_files(tenant_id, keys.audit)
        finished = self._rotation.finished
        made = TenantHandle(
            tenant_id, name, path, keys, audit, self._pools, self.storage, self._registry, finished, _SEAL
        )
        return self._handles.add(tenant_id, made)

    def _audit_files(self, tenant_id: str, key: bytes) -> AuditFiles:
        return AuditFiles(tenant_id, self.data_dir / "audit" / tenant_id, key, self.storage, self._registry, _SEAL)

    def _key(self, tenant_id: str, purpose: str) -> bytes:
        with self._control.reading() as connection:
            wrapped = connection.execute(_WRAPPED, {"tenant": tenant_id, "use": purpose}).scalar_one_or_none()
        if wrapped is None:
            raise NotFound("the tenant does not exist any more", item=tenant_id)
        return self._root.unwrap(tenant_id, purpose, wrapped)

    def _store_key(self, connection: Connection, tenant_id: str, purpose: str) -> None:
        wrapped = self._root.wrap(tenant_id, purpose, secrets.token_bytes(KEY_BYTES))
        connection.execute(insert(schema.wrapped_keys).values(tenant_id=tenant_id, purpose=purpose, wrapped=wrapped))
