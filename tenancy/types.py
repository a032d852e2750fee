"""Column types and list parameters that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

Integer: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""64 bits on both; SQLite counts an id up only in a column that is declared as INTEGER."""

Text: Final = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared and ordered by code point on both, whatever the language of the database."""


def partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool], unique: bool = False) -> sa.Index:
    """An index of the rows that fulfil `where` alone."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


class Listed(sa.types.TypeDecorator[Collection[Any]]):
    """A list as one parameter, so that a statement has one text whatever the number of its values."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, item: Literal["integer", "text"]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> sa.types.TypeEngine[Any]:
        if dialect.name == "postgresql":
            return postgresql.ARRAY(sa.BigInteger() if self.item == "integer" else sa.Text())
        return sa.Text()

    def process_bind_param(self, value: Collection[Any] | None, dialect: Dialect) -> Any:
        values = sorted(value or ())
        return values if dialect.name == "postgresql" else json.dumps(values)


class _Values(FunctionElement[Any]):
    inherit_cache = True


def among(column: sa.ColumnElement[Any], parameter: str) -> sa.ColumnElement[bool]:
    """Whether `column` is one of the values of the list parameter `parameter`, which may be empty."""
    item: Literal["integer", "text"] = "integer" if isinstance(column.type, sa.Integer) else "text"
    return column.bool_op("IN")(_Values(sa.bindparam(parameter, type_=Listed(item))))


@compiles(_Values, "sqlite")
def _values_sqlite(element: _Values, compiler: SQLCompiler, **options: Any) -> str:
    return f"(SELECT value FROM json_each({compiler.process(element.clauses, **options)}))"  # noqa: S608


@compiles(_Values, "postgresql")
def _values_postgresql(element: _Values, compiler: SQLCompiler, **options: Any) -> str:
    return f"(SELECT unnest({compiler.process(element.clauses, **options)}))"
