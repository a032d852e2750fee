"""Tables beside one audit log that no backup holds: subjects' keys, legal holds, what was erased and the receipts."""

from __future__ import annotations

from typing import Final

from sqlalchemy import JSON, CheckConstraint, Column, Float, Index, LargeBinary, MetaData, Table
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateIndex, CreateTable

from tenancy.database import Migration
from tenancy.types import Text, partial_index

SUBJECTS_FILE: Final = "subjects.sqlite"

metadata = MetaData()

subject_keys = Table(
    "subject_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("wrapped", LargeBinary),
    Column("created", Float, nullable=False),
    Column("destroyed", Float),
)
partial_index("one_live_key_per_subject", subject_keys.c.subject, where=subject_keys.c.destroyed.is_(None), unique=True)
Index("keys_of_subject", subject_keys.c.subject)

# Whom nothing is kept readable of, ever again. `name` (a keyed hash) and `user` (the id) serve to finish an erasure
# that was cut short, and go when there is a receipt.
erasures = Table(
    "erasures",
    metadata,
    Column("subject", Text, primary_key=True),
    Column("at", Float, nullable=False),
    Column("name", Text),
    Column("user", Text),
)

# A hold is on one subject, or on the records of a time: `since` (inclusive) to `until` (exclusive), open where null.
holds = Table(
    "holds",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, CheckConstraint("kind IN ('subject', 'window')"), nullable=False),
    Column("subject", Text),
    Column("since", Float),
    Column("until", Float),
    Column("reason", Text, nullable=False),
    Column("placed", Float, nullable=False),
    Column("placed_by", Text, nullable=False),
    Column("released", Float),
    Column("released_by", Text),
)

receipts = Table(
    "receipts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("subject", Text, nullable=False),
    Column("made", Float, nullable=False),
    Column("receipt", JSON, nullable=False),
)
Index("receipts_by_subject", receipts.c.subject, receipts.c.made)


def _holds_and_receipts(connection: Connection) -> None:
    """Version 2: legal holds, finished and unfinished erasures, receipts."""
    for table in (erasures, holds, receipts):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))


SUBJECTS: Final[tuple[Migration, ...]] = (_holds_and_receipts,)
