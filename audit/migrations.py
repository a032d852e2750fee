"""Steps that bring an audit log's databases from one schema version to the next; the database runs them in one
transaction.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateIndex, CreateTable

from audit import tables
from tenancy.database import Migration


def _proofs(connection: Connection) -> None:
    """Version 2: signed checkpoints, stored nodes, pruned ranges."""
    for table in (tables.signers, tables.checkpoints, tables.nodes, tables.prunings):
        connection.execute(CreateTable(table))
        for index in table.indexes:
            connection.execute(CreateIndex(index))


LOG: Final[tuple[Migration, ...]] = (_proofs,)
