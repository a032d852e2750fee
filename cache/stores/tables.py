"""Tables of one tenant's `cache.sqlite`. The file is derived data: losing it costs answers, not truth."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    update,
)
from sqlalchemy.engine import Connection

from tenancy.database import Database
from tenancy.tenant import TenantHandle

FILE: Final = "cache.sqlite"

metadata = MetaData()

# `seq` is never used twice (AUTOINCREMENT) and grows in the order of commits, since writers exclude each other:
# a process that has read up to n needs to read only what lies above n. `used` is when the entry last served,
# `bytes` its size for the quota.
entries = Table(
    "entries",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("namespace", LargeBinary, nullable=False),
    Column("exact", LargeBinary, nullable=False),
    Column("template", Text, nullable=False),
    Column("question", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("dependencies", Text, nullable=False),
    Column("acl_epoch", Integer, nullable=False),
    Column("corpus_epoch", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("origin_seq", Integer, nullable=False),
    Column("origin_user", Text, nullable=False),
    Column("confirmed", Integer, nullable=False, server_default="0"),
    Column("checksum", LargeBinary, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("used", Float, nullable=False),
    UniqueConstraint("namespace", "exact"),
    Index("entries_by_namespace", "namespace", "seq"),
    Index("entries_by_use", "used", "bytes"),
    Index("entries_by_expiry", "expires"),
    Index("entries_by_user", "origin_user"),
    Index("entries_by_template", "template"),
    sqlite_autoincrement=True,
)

# The reverse index: which entries rest on a document.
dependencies = Table(
    "dependencies",
    metadata,
    Column("document_id", Integer, primary_key=True),
    Column("seq", Integer, ForeignKey("entries.seq", ondelete="CASCADE"), primary_key=True),
    Index("dependencies_by_entry", "seq"),
    sqlite_with_rowid=False,
)

# One row, moved in the transaction of every write, so that a quota check reads one row.
totals = Table(
    "totals",
    metadata,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
    Column("entries", Integer, nullable=False),
    Column("bytes", Integer, nullable=False),
)


def first_totals(connection: Connection) -> None:
    connection.execute(insert(totals).values(one=1, entries=0, bytes=0))


def _count_confirmations(connection: Connection) -> None:
    """The checksum of an entry covers its confirmations, so that entries from before would count as corrupt."""
    connection.execute(delete(entries))
    connection.execute(update(totals).values(entries=0, bytes=0))
    connection.exec_driver_sql("ALTER TABLE entries ADD COLUMN confirmed INTEGER NOT NULL DEFAULT 0")


def database(tenant: TenantHandle) -> Database:
    """The tenant's file of remembered answers."""
    return tenant.database(FILE, metadata, seed=first_totals, migrations=(_count_confirmations,), synchronous="NORMAL")
