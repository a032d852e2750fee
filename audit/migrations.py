"""Steps that bring an audit log's databases from one schema version to the next; the database runs them in one
transaction.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Float, MetaData, Table, insert, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateTable, DropIndex, ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler

from audit import spans, tables
from audit.merkle import Frontier, Node
from tenancy.database import Migration

_PAGE: Final = 10_000
_by_time = Table("events", MetaData(), Column("ts", Float, index=True))
"""The table of version 1, as far as its index of times goes."""


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
    connection.execute(DropIndex(next(iter(_by_time.indexes))))
    widened = ("events_by_action", "events_by_outcome", "events_by_actor", "events_by_cache_status")
    for index in sorted(tables.events.indexes, key=lambda index: str(index.name)):
        if index.name in widened:
            connection.execute(DropIndex(index))
            connection.execute(CreateIndex(index))
    touched, events = tables.event_documents, tables.events.c
    of_record = {}
    for column in (touched.c.actor, touched.c.outcome):
        connection.execute(_AddColumn(column))
        of_record[column.name] = select(events[column.name]).where(events.seq == touched.c.seq).scalar_subquery()
    connection.execute(update(touched).values(of_record))
    connection.execute(CreateTable(tables.spans))
    spans.rebuild(connection)


class _AddColumn(ExecutableDDLElement):
    """As DDL, since text would not name the log's schema at a server."""

    inherit_cache = False

    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(_AddColumn)
def _add_column(element: _AddColumn, compiler: DDLCompiler, **_: Any) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


LOG: Final[tuple[Migration, ...]] = (_proofs,)
