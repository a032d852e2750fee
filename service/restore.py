"""Restoring a tenant from a backup: all of it, or nothing; and nothing comes back that was withdrawn since.

The archive is read into a staging folder and checked to its end. There the withdrawals that are later than the backup
are applied: those of this data directory where it knows the tenant, else those of a ledger that was brought along.
Only then does the tenant get a place, under a fresh data key, with physical collections yet to be built and an empty
cache.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import insert, update
from sqlalchemy.engine import Connection

from audit.log import read_head
from audit.tables import AUDIT_FILE
from cache.certificate.reports import forget_withdrawn
from metering.tables import USAGE_FILE
from service.backup import LEDGER, MANIFEST, VERSION, LedgerManifest, Manifest, contents, detached
from service.control import Control
from tenancy import archive, ledger, schema
from tenancy.adoption import Arrival, Known, revive
from tenancy.archive import Unlock
from tenancy.contract import stored_contract
from tenancy.database import ConnectionPools, Database
from tenancy.errors import Conflict, Corrupt, InvalidInput, SchemaTooNew
from tenancy.names import tenant_name
from tenancy.rotation import server_collections
from tenancy.staging import staging
from tenancy.storage import DATA_FILE

T = TypeVar("T")

_MAX_MANIFEST: Final = 1 << 20
HERE: Final = "this data directory"
BROUGHT: Final = "brought along"
KNOWN: Final = frozenset({HERE, BROUGHT})
"""Where withdrawals come from that are complete."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How to restore: under another name, in the place of the tenant that is here, although it was deleted; with which
    recovery key, and with the withdrawals in which file.
    """

    name: str | None = None
    replace: bool = False
    deleted_on_purpose: bool = False
    key: X25519PrivateKey | None = field(default=None, repr=False)
    ledger: Path | None = None


@dataclass(frozen=True, slots=True)
class Withdrawals:
    """What was withdrawn, as entries of a ledger; `source` says where they come from, "unknown" or "lost" if from
    nowhere. `position` is the newest entry of the ledger that lies here afterwards.
    """

    source: str
    entries: tuple[tuple[int, float, list[Any]], ...] = ()
    position: int = 0


def restore_tenant(control: Control, path: Path, wish: Wish) -> dict[str, Any]:
    """Restore the tenant in the backup `path`; returns what was restored and what was withdrawn from it again.

    Raises `AlreadyExists` for a name that is taken, `Conflict` for a tenant that was deleted or is in use,
    `InvalidInput`, `Corrupt`, `SchemaTooNew`. Whatever it raises, nothing has changed.
    """
    tenants = control.tenants
    if tenants.storage.shared:
        raise Conflict(
            "the tenants lie in a database server", item="restore", remedy="restore into a data directory of files"
        )
    unlock = Unlock(tenants.archive_key, wish.key)
    with staging(tenants.data_dir) as folder, ExitStack() as stack:
        manifest = _extract(path, unlock, folder)
        known = tenants.adoption.known(manifest.tenant_id)
        brought = None if wish.ledger is None else _read_ledger(wish.ledger, unlock, manifest)
        _refuse_deleted(manifest, known, brought[0] if brought else None, wish)
        same = _keeps_id(manifest, known, wish)
        withdrawals = _withdrawals(control, manifest, known, brought)
        tenant_id = manifest.tenant_id if same else f"t_{secrets.token_hex(16)}"
        # By its id, whatever the archive says: the tenant that is suspended is the one that is replaced.
        name = str(known.name) if wish.replace else wish.name or manifest.name
        key = base64.b64decode(manifest.file_key)
        data, trail = stack.enter_context(detached(folder, key))
        with data.reading() as connection:
            named = server_collections(connection)
        summary = _prepare(data, manifest, withdrawals, withdrawals.position if same else 0, adapters=wish.replace)
        _check_log(trail, manifest)
        if wish.replace:

            def last() -> None:
                newer = _withdraw_newer(data, manifest, withdrawals, _withdrawals(control, manifest, known, None))
                summary["withdrawn_again"] = dict(Counter(summary["withdrawn_again"]) + newer)

            tenants.replace_data(name, data, named, last)
        else:
            tenant_name(name)
            stored_contract(manifest.contract, name)
            log: dict[str, Database] = {}
            if known.audit_key is None:
                log[AUDIT_FILE] = trail
                if brought is not None:
                    log[ledger.LEDGER_FILE] = _ledger_file(folder, key, withdrawals, stack)
            audit_key = known.audit_key or base64.b64decode(manifest.audit_key)
            tenants.adoption.adopt(
                Arrival(
                    tenant_id=tenant_id,
                    name=name,
                    created=manifest.tenant_created if same else time.time(),
                    contract=manifest.contract,
                    status=manifest.status,
                    audit_key=audit_key if same else secrets.token_bytes(len(audit_key)),
                    data=data,
                    log_owner=manifest.tenant_id,
                    log_key=audit_key,
                    log=log,
                    left=(USAGE_FILE,),
                ),
                folder,
            )
    if brought is not None and known.audit_key is not None:
        _keep(control, manifest, brought[1])
    return {"tenant": name, "tenant_id": tenant_id, "backup_of": manifest.tenant_id, **summary}


def _extract(path: Path, unlock: Unlock, folder: Path) -> Manifest:
    """Write the databases of the archive into `folder`. Everything is checked when this returns."""
    manifest: Manifest | None = None
    found = set()
    with archive.reading(path, "tenant", unlock) as members:
        for name, content in members:
            if name in found:
                raise Corrupt("the archive holds something twice", item=str(path), remedy="use another backup")
            if name == MANIFEST:
                manifest = _decoded(content.read(_MAX_MANIFEST), Manifest, path)
            elif name in {DATA_FILE, AUDIT_FILE}:
                with (folder / name).open("xb") as file:
                    shutil.copyfileobj(content, file, 1 << 20)
            else:
                raise Corrupt("the archive holds something unknown", item=str(path), remedy="use another backup")
            found.add(name)
    if manifest is None or found != {MANIFEST, DATA_FILE, AUDIT_FILE}:
        raise Corrupt("the archive is not complete", item=str(path), remedy="use another backup")
    return manifest


def _read_ledger(path: Path, unlock: Unlock, backup: Manifest) -> tuple[LedgerManifest, Withdrawals]:
    """The withdrawals in a ledger file. Raises `InvalidInput` for one of another tenant or from before the backup."""
    entries: list[tuple[int, float, list[Any]]] = []
    manifest: LedgerManifest | None = None
    with archive.reading(path, "ledger", unlock) as members:
        for name, content in members:
            if name == MANIFEST:
                manifest = _decoded(content.read(_MAX_MANIFEST), LedgerManifest, path)
            elif name == LEDGER:
                entries = [_entry(line, path) for line in content]
    if manifest is None:
        raise Corrupt("the ledger is not complete", item=str(path), remedy="make it again")
    if manifest.tenant_id != backup.tenant_id:
        raise InvalidInput("this ledger is of another tenant", item=str(path), remedy="bring the one of this tenant")
    if manifest.made < backup.made:
        raise InvalidInput("this ledger is older than the backup", item=str(path), remedy="make it again")
    return manifest, Withdrawals(BROUGHT, tuple(entries))


def _entry(line: bytes, path: Path) -> tuple[int, float, list[Any]]:
    try:
        entry = msgspec.json.decode(line, type=tuple[int, float, list[Any]])
    except msgspec.MsgspecError:
        raise Corrupt("the ledger cannot be read", item=str(path), remedy="make it again") from None
    if not ledger.known(entry[2]):
        raise Corrupt("the ledger holds something unknown", item=str(path), remedy="make it again")
    return entry


def _decoded(data: bytes, kind: type[T], path: Path) -> T:
    try:
        found = msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError:
        found = None
    version = getattr(found, "version", 0)
    if version > VERSION:
        raise SchemaTooNew("a newer program made this", item=str(path), remedy="restore it with that one")
    if found is None:
        raise Corrupt("its manifest cannot be read", item=str(path), remedy="use another backup")
    return found


def _refuse_deleted(manifest: Manifest, known: Known, brought: LedgerManifest | None, wish: Wish) -> None:
    deleted = known.deleted if known.name is None else None
    if deleted is None and brought is not None:
        deleted = brought.deleted
    if deleted is not None and not wish.deleted_on_purpose:
        raise Conflict(
            "this tenant was deleted on purpose after the backup was made",
            item=manifest.name,
            remedy="if it is to come back nevertheless: --although-deleted",
        )


def _keeps_id(manifest: Manifest, known: Known, wish: Wish) -> bool:
    """Whether the restored tenant is the same one, and not another with its contents."""
    if not wish.replace:
        return known.name is None and wish.name in (None, manifest.name)
    if wish.name is not None:
        raise InvalidInput("a replaced tenant keeps its name", item="--as", remedy="leave out --as or --replace")
    if known.name is None:
        raise Conflict("the tenant of this backup is not here", item=manifest.name, remedy="leave out --replace")
    if known.status != "suspended":
        raise Conflict(
            "the tenant is in use", item=known.name, remedy=f"suspend it first: strongroom tenant suspend {known.name}"
        )
    return True


def _withdrawals(
    control: Control, manifest: Manifest, known: Known, brought: tuple[LedgerManifest, Withdrawals] | None
) -> Withdrawals:
    """All that was ever withdrawn, as far as it is known here."""
    if known.audit_key is not None:
        try:
            with control.tenants.audit_files_of(manifest.tenant_id).ledger().reading() as connection:
                entries, position = tuple(ledger.since(connection, 0)), ledger.head(connection)
        except Corrupt:
            return Withdrawals("lost") if brought is None else brought[1]
        # Each may know what the other does not: the tenant lived in both places, or lived elsewhere meanwhile.
        return Withdrawals(HERE, entries + (() if brought is None else brought[1].entries), position)
    if brought is None:
        return Withdrawals("unknown")
    return replace(brought[1], position=brought[0].head)


def _prepare(
    data: Database, manifest: Manifest, withdrawals: Withdrawals, position: int, *, adapters: bool
) -> dict[str, Any]:
    """Withdraw again, and make the database fit to be served. `position` is the newest entry of the ledger that the
    tenant goes on with, 0 for a new one. Where the files of its `adapters` are not here, these are to be added again.
    """
    now = time.time()
    counts: Counter[str] = Counter()
    later = [what for seq, _, what in withdrawals.entries if seq > manifest.ledger]
    if any(what[0] == ledger.LOST for what in later):
        withdrawals = replace(withdrawals, source="lost in part")
    with data.writing() as connection:
        for what in later:
            if ledger.apply(connection, what):
                counts[what[0]] += 1
        _forget_people(connection, manifest, later)
        ledger.move_to(connection, position)
        lost = 0 if adapters else _revoke_adapters(connection, now)
        origin = {
            "tenant_id": manifest.tenant_id,
            "backup_made": manifest.made,
            "restored": now,
            "withdrawals": withdrawals.source,
        }
        revive(connection, origin, now)
        held = contents(connection)
    again = {"adapters_to_add_again": lost} if lost else {}
    return {**held, "withdrawals": withdrawals.source, "withdrawn_again": dict(counts), **again}


def _forget_people(connection: Connection, manifest: Manifest, later: Sequence[Sequence[Any]]) -> None:
    """Who was deleted or erased since is not to be told from what the evidence about hits holds, either."""
    people = [str(what[1]) for what in later if what[0] == "user"]
    forget_withdrawn(connection, base64.b64decode(manifest.audit_key), people)


def _revoke_adapters(connection: Connection, now: float) -> int:
    """No backup holds adapters' files: what is on record without them would be refused at every use."""
    adapters = schema.adapters
    return connection.execute(update(adapters).where(adapters.c.revoked.is_(None)).values(revoked=now)).rowcount


def _withdraw_newer(data: Database, manifest: Manifest, known: Withdrawals, newest: Withdrawals) -> Counter[str]:
    """Withdraw what a writer withdrew who began before the tenant was suspended, and ended after `known` was read."""
    counts: Counter[str] = Counter()
    fresh = [entry for entry in newest.entries if entry[0] > known.position]
    if fresh:
        with data.writing() as connection:
            for _, _, what in fresh:
                counts[what[0]] += ledger.apply(connection, what)
            _forget_people(connection, manifest, [what for _, _, what in fresh])
            ledger.move_to(connection, newest.position)
    return counts


def _keep(control: Control, manifest: Manifest, brought: Withdrawals) -> None:
    """Let the ledger that lies here know of what was brought along, for later restores."""
    own = control.tenants.audit_files_of(manifest.tenant_id).ledger()
    try:
        with own.reading() as connection:
            here = [what for _, _, what in ledger.since(connection, 0)]
    except Corrupt:
        here = []
    fresh: list[ledger.Entry] = [(what[0], what[1:]) for _, _, what in brought.entries if what not in here]
    if fresh:
        own.append(fresh, 0)


def _check_log(trail: Database, manifest: Manifest) -> None:
    with trail.reading() as connection:
        head = read_head(connection)
    if (head.size, head.root.hex()) != (manifest.audit_size, manifest.audit_root):
        raise Corrupt("the audit log in the archive is not the one that it names", item=manifest.name)


def _ledger_file(folder: Path, key: bytes, withdrawals: Withdrawals, stack: ExitStack) -> Database:
    pools = ConnectionPools()
    stack.callback(pools.close)
    made = Database(folder / ledger.LEDGER_FILE, key, ledger.metadata, pools)
    rows = [{"seq": seq, "at": at, "what": what} for seq, at, what in withdrawals.entries]
    with made.writing() as connection:
        if rows:
            connection.execute(insert(ledger.withdrawals), rows)
    return made
