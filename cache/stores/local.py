"""The local store: one tenant's entries in its own encrypted file, vectors of a namespace in memory.

The file decides. Every lookup reads it, so what another process wrote or invalidated holds at once; the memory
only tells which rows to read. Several threads and processes may use one file.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Final

from sqlalchemy import (
    ColumnElement,
    bindparam,
    delete,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from cache.entry import Entry, Vector, decode_dependencies, encode_dependencies
from cache.key import Namespace
from cache.policy import CachePolicy
from cache.stores import rows, tables
from cache.stores.port import CacheStats, EntryRecord, StoreHealth
from cache.stores.selector import Selector
from cache.stores.tables import FILE
from cache.stores.uses import Uses
from cache.stores.vectors import VectorIndexes
from tenancy.database import Database
from tenancy.errors import Corrupt, InvalidInput, Unavailable
from tenancy.tenant import TenantHandle

_logger = logging.getLogger(__name__)
# Entries that one transaction of a sweep removes.
_STEP: Final = 1_000
# Eviction goes this far below the quota, so that a full cache does not evict at every write.
_HEADROOM = 0.95


class LocalStore:
    """A `CacheStore`: entries of every tenant, each tenant's in its own file.

    A damaged file is `Corrupt`. Where `renews` is set, as in the one server of a data directory, the next question
    finds an empty one in its place; not in commands, since the server would stay with the old one.
    """

    renews = False

    def __init__(
        self,
        policy: CachePolicy | None = None,
        *,
        memory_bytes: int = 256 << 20,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy = policy or CachePolicy()
        self.clock = clock
        self._indexes = VectorIndexes(memory_bytes)
        self._uses = Uses()

    def get(self, tenant: TenantHandle, namespace: Namespace, exact: bytes) -> Entry | None:
        """The entry under an exact key; whether it may be served is the caller's to decide."""
        _own(tenant, namespace)
        with self._reading(tenant) as connection:
            return rows.by_exact(connection, namespace.value, exact)

    def nearest(self, tenant: TenantHandle, namespace: Namespace, vector: Vector) -> list[tuple[Entry, float]]:
        """The policy's `nearest` entries of the namespace by cosine, best first; expired ones hide no other.

        `vector` (dim,) float32, L2-normalised. The similarity is computed from the row that was read, not from
        the index in memory, which therefore cannot lend its score to another entry.
        """
        _own(tenant, namespace)
        index = self._indexes.get(tenant.tenant_id, namespace.value, len(vector))
        with self._reading(tenant) as connection:
            found = rows.nearest(connection, index, namespace.value, vector, self.policy.nearest, self.clock())
        scored = [(entry, similarity) for entry in found if (similarity := entry.similarity(vector)) is not None]
        return sorted(scored, key=lambda candidate: -candidate[1])

    def put(self, tenant: TenantHandle, entry: Entry, *, allowed: Callable[[], str | None]) -> str | None:
        """Write a sealed entry, in place of an older one of the same exact key; returns None, or why it did not.

        `allowed` is asked inside the write transaction, just before the row is written. Evicts only this
        tenant's entries: expired ones, then the least recently used.
        """
        size = (
            sum(map(len, (entry.payload, entry.vector, entry.question.encode()))) + 64 * len(entry.dependencies) + 512
        )
        if size > self.policy.max_bytes:
            return "larger than the quota"
        with self._writing(tenant) as connection:
            if refused := allowed():
                return refused
            self._flush_use(tenant, connection)
            same = (tables.entries.c.namespace == entry.namespace) & (tables.entries.c.exact == entry.exact)
            _delete(connection, same)
            values = {field.name: getattr(entry, field.name) for field in fields(entry)}
            values |= {"dependencies": encode_dependencies(entry.dependencies), "bytes": size, "used": self.clock()}
            seq = connection.execute(insert(tables.entries).values(values)).lastrowid
            documents = {document for document, _ in entry.dependencies}
            connection.execute(
                insert(tables.dependencies), [{"document_id": document, "seq": seq} for document in sorted(documents)]
            )
            _add(connection, 1, size)
            self._evict(connection, keep=seq)
        return None

    def touch(self, tenant: TenantHandle, entry: Entry) -> None:
        """Note that an entry served; written with the next `put`, since a hit should not cost a write."""
        self._uses.note(tenant.tenant_id, entry.id, self.clock())

    def confirm(self, tenant: TenantHandle, entry: Entry) -> bool:
        """Replace the count of confirmations, and the checksum over it, of the entry of this id."""
        values = {"confirmed": entry.confirmed, "checksum": entry.checksum}
        with self._writing(tenant) as connection:
            change = update(tables.entries).where(tables.entries.c.id == entry.id).values(values)
            return connection.execute(change).rowcount == 1

    def holds(self, tenant: TenantHandle, entry: Entry) -> bool:
        with self._reading(tenant) as connection:
            return rows.holds(connection, entry)

    def discard(self, tenant: TenantHandle, entry: Entry) -> None:
        """Remove one entry, for instance a corrupt one."""
        with self._writing(tenant) as connection:
            _delete(connection, tables.entries.c.id == entry.id)

    def sweep(self, tenant: TenantHandle) -> int:
        """Remove what has expired; returns how many. In steps, so that no writer waits long."""
        columns = tables.entries.c
        removed = 0
        while True:
            with self._writing(tenant) as connection:
                self._flush_use(tenant, connection)
                expired = select(columns.seq).where(columns.expires <= self.clock())
                # In an order, since both statements of the deletion have to mean the same ones.
                gone = _delete(connection, columns.seq.in_(expired.order_by(columns.expires, columns.seq).limit(_STEP)))
            removed += gone
            if gone < _STEP:
                return removed

    def askers(self, tenant: TenantHandle) -> set[str]:
        """The ids of the users whose questions are remembered."""
        with self._reading(tenant) as connection:
            return set(connection.execute(select(tables.entries.c.origin_user).distinct()).scalars())

    def repair(self, tenant: TenantHandle) -> int:
        """Sweep, and count anew what the totals say; the rest the file's own constraints hold."""
        removed = self.sweep(tenant)
        with self._writing(tenant) as connection:
            counted = select(func.count(), func.coalesce(func.sum(tables.entries.c.bytes), 0))
            count, size = connection.execute(counted.select_from(tables.entries)).one()
            connection.execute(update(tables.totals).values(entries=count, bytes=size))
        return removed

    def invalidate(self, tenant: TenantHandle, selector: Selector) -> int:
        """Remove the selected entries, their text also from the write-ahead log; returns how many."""
        with self._writing(tenant) as connection:
            removed = _delete(connection, _condition(selector, self.clock()))
        # Also where nothing was left to remove: whoever removed it may have died before this.
        with self._reachable(tenant):
            _database(tenant).truncate_wal()
        return removed

    def purge(self, tenant: TenantHandle) -> int:
        """Nothing to do: the file is destroyed with the tenant's directory. Returns what is in it."""
        return self.stats(tenant).entries if tenant.holds(FILE) else 0

    def health(self) -> StoreHealth:
        return StoreHealth("local", available=True, detail="", counts={})

    def shutdown(self) -> None:
        """Nothing to close: connections are the tenants' own."""

    def stats(self, tenant: TenantHandle) -> CacheStats:
        columns = tables.entries.c
        with self._reading(tenant) as connection:
            count, size = connection.execute(select(tables.totals.c.entries, tables.totals.c.bytes)).one()
            namespaces, users = connection.execute(
                select(func.count(columns.namespace.distinct()), func.count(columns.origin_user.distinct()))
            ).one()
            expired = connection.execute(
                select(func.count()).select_from(tables.entries).where(columns.expires <= self.clock())
            ).scalar_one()
        return CacheStats(count, size, namespaces, users, expired, self.policy.max_entries, self.policy.max_bytes)

    def inspect(
        self, tenant: TenantHandle, *, limit: int = 50, offset: int = 0, selector: Selector | None = None
    ) -> list[EntryRecord]:
        """Entries, newest first; `limit` at most 1000."""
        if not (1 <= limit <= 1000 and 0 <= offset < 2**63):
            raise InvalidInput("limit is 1 to 1000 and offset 0 to 2**63 - 1", item="limit")
        condition = true() if selector is None else _condition(selector, self.clock())
        shown = [tables.entries.c[field.name] for field in fields(EntryRecord)]
        query = select(*shown).where(condition).order_by(tables.entries.c.seq.desc()).limit(limit).offset(offset)
        with self._reading(tenant) as connection:
            rows = connection.execute(query).mappings().all()
        return [EntryRecord(**{**row, "dependencies": decode_dependencies(row["dependencies"])}) for row in rows]

    def close(self, tenant_id: str) -> None:
        """Forget what is in memory of a tenant that was closed or deleted."""
        self._indexes.drop(tenant_id)
        self._uses.take(tenant_id)

    @property
    def tenants(self) -> set[str]:
        """The ids of tenants of which something is in memory."""
        return self._indexes.tenants | self._uses.tenants

    @property
    def nbytes(self) -> int:
        """Bytes of all vectors in memory."""
        return self._indexes.nbytes

    def _evict(self, connection: Connection, keep: int) -> None:
        count, size = connection.execute(select(tables.totals.c.entries, tables.totals.c.bytes)).one()
        if count <= self.policy.max_entries and size <= self.policy.max_bytes:
            return
        _delete(connection, (tables.entries.c.expires <= self.clock()) & (tables.entries.c.seq != keep))
        count, size = connection.execute(select(tables.totals.c.entries, tables.totals.c.bytes)).one()
        if count <= self.policy.max_entries and size <= self.policy.max_bytes:
            return
        surplus = max(1, count - max(1, int(_HEADROOM * self.policy.max_entries)))
        excess = size - int(_HEADROOM * self.policy.max_bytes)
        doomed = []
        query = select(tables.entries.c.seq, tables.entries.c.bytes).order_by(
            tables.entries.c.used, tables.entries.c.seq
        )
        for seq, bytes_ in connection.execute(query.where(tables.entries.c.seq != keep)):
            if surplus <= 0 and excess <= 0:
                break
            doomed.append(seq)
            surplus, excess = surplus - 1, excess - bytes_
        for start in range(0, len(doomed), 500):
            _delete(connection, tables.entries.c.seq.in_(doomed[start : start + 500]))

    def _flush_use(self, tenant: TenantHandle, connection: Connection) -> None:
        used = self._uses.take(tenant.tenant_id)
        if used:
            connection.execute(
                update(tables.entries).where(tables.entries.c.id == bindparam("served")).values(used=bindparam("at")),
                [{"served": entry_id, "at": at} for entry_id, at in used.items()],
            )

    @contextmanager
    def _reading(self, tenant: TenantHandle) -> Iterator[Connection]:
        with self._reachable(tenant), _database(tenant).reading() as connection:
            yield connection

    @contextmanager
    def _writing(self, tenant: TenantHandle) -> Iterator[Connection]:
        with self._reachable(tenant), _database(tenant).writing() as connection:
            yield connection

    @contextmanager
    def _reachable(self, tenant: TenantHandle) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise Unavailable("the cache file cannot be used", item=FILE, remedy="delete it: it is derived") from error
        except Corrupt as error:
            database = _database(tenant)
            if self.renews and error.item == database.path.name:
                _logger.error("the cache of tenant %s is damaged and begins again, empty", tenant.tenant_id)
                self.close(tenant.tenant_id)
                database.begin_again()
            raise


def _database(tenant: TenantHandle) -> Database:
    return tables.database(tenant)


def _own(tenant: TenantHandle, namespace: Namespace) -> None:
    if namespace.tenant_id != tenant.tenant_id:
        raise InvalidInput("the namespace belongs to another tenant", item="namespace")


def _condition(selector: Selector, now: float) -> ColumnElement[bool]:
    columns = tables.entries.c
    condition: ColumnElement[bool] = true()
    if selector.document is not None:
        resting = select(tables.dependencies.c.seq).where(tables.dependencies.c.document_id == selector.document)
        condition &= columns.seq.in_(resting)
    if selector.entry is not None:
        condition &= columns.id == selector.entry
    if selector.user is not None:
        condition &= columns.origin_user == selector.user
    if selector.template is not None:
        condition &= columns.template == selector.template
    if selector.older_than is not None:
        condition &= columns.created <= now - selector.older_than
    return condition


def _delete(connection: Connection, condition: ColumnElement[bool]) -> int:
    count, size = connection.execute(
        select(func.count(), func.coalesce(func.sum(tables.entries.c.bytes), 0)).where(condition)
    ).one()
    if count:
        connection.execute(delete(tables.entries).where(condition))
        _add(connection, -count, -size)
    return int(count)


def _add(connection: Connection, count: int, size: int) -> None:
    connection.execute(
        update(tables.totals).values(entries=tables.totals.c.entries + count, bytes=tables.totals.c.bytes + size)
    )
