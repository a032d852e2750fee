"""Tables of one tenant's `cache.sqlite`. The file is derived data: losing it costs answers, not truth."""

from __future__ import annotations

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
    insert,
)
from sqlalchemy.engine import Connection

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
