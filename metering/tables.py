"""Tables of one tenant's usage ledger, in a file beside its audit log. Rows are added and never changed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Boolean, Column, Float, Index, MetaData, Table, insert
from sqlalchemy.engine import Connection

from tenancy.types import Integer, Text, partial_index

USAGE_FILE: Final = "usage.sqlite"

metadata = MetaData()

# One column for each field of `metering.events.UsageEvent`.
usage = Table(
    "usage",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", Integer, nullable=False),
    Column("at", Float, nullable=False),
    Column("month", Text, nullable=False),
    Column("request", Text, nullable=False),
    Column("hop", Text, nullable=False),
    Column("feature", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("adapter", Text, nullable=False),
    Column("prices", Text, nullable=False),
    Column("basis", Text, nullable=False),
    Column("computed_input", Integer, nullable=False),
    Column("computed_output", Integer, nullable=False),
    Column("served_input", Integer, nullable=False),
    Column("served_output", Integer, nullable=False),
    Column("milliseconds", Integer, nullable=False),
    Column("microunits", Integer, nullable=False),
    Column("saved", Integer, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("corrects", Text, nullable=False),
)
Index("usage_by_time", usage.c.at)
Index("usage_by_record", usage.c.seq, usage.c.id)
partial_index("usage_by_corrected", usage.c.corrects, where=usage.c.corrects != "")

# How far the log has been booked: the number of the next record. `missed` records were pruned before they were read,
# `conflicts` events came again and said something else than what stands here.
position = Table(
    "usage_position",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("next", Integer, nullable=False),
    Column("missed", Integer, nullable=False),
    Column("conflicts", Integer, nullable=False),
)


def seed(connection: Connection) -> None:
    """The position of a new ledger: before the first record."""
    connection.execute(insert(position).values(one=1, next=0, missed=0, conflicts=0))
