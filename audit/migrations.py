"""Steps that bring an audit log's databases from one schema version to the next; the database runs them in one
transaction.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, DropIndex

from audit import spans, tables
from audit.merkle import Frontier, Node
from tenancy.database import Migration

_PAGE: Final = 10_000


def _proofs(connection: Connection) -> None:
    """Version 2: signed checkpoints, stored nodes, pruned ranges."""
    for table in (tables.signers, tables.checkpoints, tables.nodes, tables.prunings):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))
    _fill_nodes(connection)
    _reports(connection)


def _fill_nodes(connection: Connection) -> None:
    events = tables.events.c
    page = select(events.seq, events.leaf).order_by(events.seq).limit(_PAGE)
    frontier, rows = Frontier(), connection.execute(page).all()
    while rows:
        nodes: list[Node] = []
        for row in rows:
            nodes += frontier.append(row.leaf)
        if nodes:
            values = [{"level": node.level, "at": node.at, "hash": node.hash} for node in nodes]
            connection.execute(insert(tables.nodes), values)
        rows = connection.execute(page.where(events.seq > rows[-1].seq)).all()


def _reports(connection: Connection) -> None:
    """Indexes that answer queries by themselves, times by part of the log, and who touched a document."""
    connection.exec_driver_sql("DROP INDEX ix_events_ts")
    widened = ("events_by_action", "events_by_outcome", "events_by_actor", "events_by_cache_status")
    for index in sorted(tables.events.indexes, key=lambda index: str(index.name)):
        if index.name in widened:
            connection.execute(DropIndex(index))
            connection.execute(CreateIndex(index))
    touched, events = tables.event_documents, tables.events.c
    for column in (touched.c.actor, touched.c.outcome):
        declared = CreateColumn(column).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE event_documents ADD COLUMN {declared}")
        value = select(events[column.name]).where(events.seq == touched.c.seq).scalar_subquery()
        connection.execute(update(touched).values({column.name: value}))
    connection.execute(CreateTable(tables.spans))
    spans.rebuild(connection)


LOG: Final[tuple[Migration, ...]] = (_proofs,)
