"""What the processes on one PostgreSQL server share beside the tenants' data: the keyring, and who is alive."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from sqlalchemy import Column, Float, LargeBinary, MetaData, Table, delete, exc, insert, select, text, update
from sqlalchemy.engine import Connection

from tenancy.errors import Unavailable
from tenancy.postgres import PostgresDatabase, Server, explained, lock_key
from tenancy.presence import new_identity
from tenancy.types import Integer, Text

_SCHEMA: Final = "sr_control"
_TRY_SHARED: Final = text("SELECT pg_try_advisory_xact_lock_shared(:key)")
_HOLD: Final = text("SELECT pg_advisory_lock(:key)")
_RELEASE: Final = text("SELECT pg_advisory_unlock(:key)")

_Result = TypeVar("_Result")

_metadata = MetaData()
_keyring = Table(
    "keyring",
    _metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("data", LargeBinary, nullable=False),
)
_instances = Table(
    "instances", _metadata, Column("id", Text, primary_key=True), Column("started", Float, nullable=False)
)
_marks = Table(
    "marks",
    _metadata,
    Column("instance", Text, primary_key=True),
    Column("log", Text, primary_key=True),
)


def _tables(server: Server) -> PostgresDatabase:
    """Beside the control plane's tables, and of a version of their own."""
    server.make(_SCHEMA)
    return PostgresDatabase(server, _SCHEMA, _metadata, version_table="shared_version")


class PostgresKeyring:
    """The keyring as one row of `sr_control`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def read(self) -> bytes | None:
        with _tables(self._server).reading() as connection:
            found: bytes | None = connection.execute(select(_keyring.c.data)).scalar_one_or_none()
        return found

    def create(self, data: bytes) -> bool:
        with _tables(self._server).writing() as connection:
            if connection.execute(select(_keyring.c.one)).first() is not None:
                return False
            connection.execute(insert(_keyring).values(one=1, data=data))
        return True

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        key = {"key": lock_key("keyring")}
        with explained("keyring"), self._server.apart.connect() as connection:
            connection.execute(_HOLD, key)
            try:
                yield
            finally:
                connection.execute(_RELEASE, key)

    def replace(self, data: bytes) -> None:
        with _tables(self._server).writing() as connection:
            connection.execute(update(_keyring).values(data=data))


class PostgresPresence:
    """A session lock on a connection of its own, and a row, so that others can ask who ended.

    A connection that breaks is made again at the next call, under the same identity. Whoever looked in between took
    this process for one that ended; `audit.log` therefore writes no outcome of an intent that somebody else closed.
    """

    def __init__(self, server: Server) -> None:
        self.id = new_identity()
        self._server = server
        self._lock = threading.Lock()
        self._tables = _tables(server)
        self._connection = self._connected()

    def alive(self, writer: str) -> bool:
        return writer == self.id or not self._call(lambda connection: _released(connection, writer))

    def ended(self) -> list[str]:
        with self._tables.reading() as connection:
            known = [writer for writer in connection.execute(select(_instances.c.id)).scalars() if writer != self.id]
        return sorted(writer for writer in known if not self.alive(writer))

    def mark(self, log_id: str) -> None:
        with self._tables.writing() as connection:
            connection.execute(insert(_marks).values(instance=self.id, log=log_id))

    def unmark(self, log_ids: Iterable[str]) -> None:
        settled = list(log_ids)
        if settled:
            with self._tables.writing() as connection:
                connection.execute(delete(_marks).where(_marks.c.instance == self.id, _marks.c.log.in_(settled)))

    def marked(self, writer: str) -> list[str]:
        with self._tables.reading() as connection:
            return list(connection.execute(select(_marks.c.log).where(_marks.c.instance == writer)).scalars())

    def walked(self) -> bool:
        return True

    def set_walked(self) -> None:
        """Nothing: there were marks from the beginning."""

    def forget(self, writers: Iterable[str]) -> None:
        gone = list(writers)
        if gone:
            with self._tables.writing() as connection:
                connection.execute(delete(_marks).where(_marks.c.instance.in_(gone)))
                connection.execute(delete(_instances).where(_instances.c.id.in_(gone)))

    def close(self, *, settled: bool = True) -> None:
        # With the server away its lock is gone already, and others settle what is left here.
        if settled:
            with suppress(Unavailable):
                self.forget([self.id])
        with self._lock, suppress(exc.SQLAlchemyError):
            # Before the connection ends, which the server notices a moment later.
            self._connection.execute(_RELEASE, {"key": _key(self.id)})
        self._connection.close()

    def _call(self, ask: Callable[[Connection], _Result]) -> _Result:
        with self._lock:
            try:
                return ask(self._connection)
            except exc.OperationalError:
                self._connection.close()
                self._connection = self._connected()
                with explained("presence"):
                    return ask(self._connection)

    def _connected(self) -> Connection:
        with explained("presence"):
            held = self._server.apart.connect()
            held.execute(_HOLD, {"key": _key(self.id)})
        # Also behind a cut connection: whoever took this process for dead may have dropped its row.
        with self._tables.writing() as connection:
            if connection.execute(select(_instances.c.id).where(_instances.c.id == self.id)).first() is None:
                connection.execute(insert(_instances).values(id=self.id, started=time.time()))
        return held


def _released(connection: Connection, writer: str) -> bool:
    """Whether nobody holds the lock of `writer`. Shared, so that two who look do not take each other for the writer."""
    return bool(connection.execute(_TRY_SHARED, {"key": _key(writer)}).scalar())


def _key(writer: str) -> int:
    return lock_key("instance", writer)
