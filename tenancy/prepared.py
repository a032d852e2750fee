"""Statements of every question, compiled once and run at SQLite's driver: of a small query, SQLAlchemy takes most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import LargeBinary, Select
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlcipher3 import dbapi2 as driver

_DIALECT: Final = sqlite.dialect(paramstyle="named")


class Prepared:
    """A SELECT with named parameters. Its columns are numbers, text or bytes: the driver's values are handed on as
    they are. On other databases it runs through SQLAlchemy, where the way to the server takes longer anyway.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self._statement = statement
        compiled = statement.compile(dialect=_DIALECT)
        self._sql = str(compiled)
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}
        self._encoders: dict[str, Callable[[Any], Any]] = {}
        for name, parameter in compiled.binds.items():
            if encoder := parameter.type.dialect_impl(_DIALECT).bind_processor(_DIALECT):
                self._encoders[name] = encoder
        for column in statement.selected_columns:
            kind = column.type.dialect_impl(_DIALECT)
            # SQLite gives bytes as bytes; the processor is for drivers that do not.
            if not isinstance(kind, LargeBinary) and kind.result_processor(_DIALECT, None) is not None:
                raise TypeError(f"the column {column.name} needs a conversion, so this statement cannot be prepared")

    def rows(self, connection: Connection, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        """All rows. Raises `DBAPIError` as `Connection.execute` does."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, parameters).all()
        given = {**self._fixed, **parameters}
        for name, encoder in self._encoders.items():
            given[name] = encoder(given[name])
        raw: Any = connection.connection.driver_connection
        try:
            rows: list[tuple[Any, ...]] = raw.execute(self._sql, given).fetchall()
        except driver.Error as error:
            # Without the parameters, which hold text of questions and documents.
            raise DBAPIError("prepared", None, error) from error
        return rows
