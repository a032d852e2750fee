"""A PostgreSQL server in the place of files: one schema a database, one engine and pool a process.

Readers run REPEATABLE READ, READ ONLY: like BEGIN on a file, the snapshot is that of the first statement. Writers of
a schema exclude each other by a transaction advisory lock, taken by the very first statement of a READ COMMITTED
transaction. Under REPEATABLE READ that statement would fix the snapshot before the wait, so that the writer would
go on with the state from before its predecessor's commit; under READ COMMITTED each statement behind the lock sees
all that was committed before. So a writer sees one state here too: nobody else changes its schema meanwhile.

Schema names are put into statements by `schema_translate_map`. The search path of a pooled connection is never set:
what one tenant set would be there for the next.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import psycopg
from sqlalchemy import (
    Column,
    Executable,
    MetaData,
    NullPool,
    Row,
    Table,
    create_engine,
    event,
    exc,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable

from tenancy.database import Mark, Migration
from tenancy.errors import Corrupt, InvalidInput, NotFound, SchemaTooNew, StrongroomError, Unavailable
from tenancy.postgres_url import PostgresSettings, connect_arguments, server_url
from tenancy.types import Integer

_LOCK: Final = text("SELECT pg_advisory_xact_lock(:key)")
_LEAST: Final = text("SELECT 1")
_ABOUT: Final = text("""
SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS pages,
       (SELECT version FROM pg_catalog.pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl) AS tls,
       current_setting('max_connections')::int - (SELECT count(*) FROM pg_catalog.pg_stat_activity)::int AS free
""")
_SCHEMA: Final = text("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = :schema")
_TABLE: Final = text("SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = :schema AND tablename = :table")

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_DAMAGED: Final = frozenset({"XX001", "XX002"})
_GONE: Final = frozenset({"3F000", "42P01"})
_REFUSED: Final = frozenset({"28", "3D"})
_BUSY: Final = {
    "55P03": "another writer holds the lock",
    "57014": "a statement took too long",
    "53300": "the server has no connection to spare",
    "53100": "the server's disk is full",
    "25006": "the server takes no writes",
}


Tier = Literal["tenants", "logs", "control"]
"""A transaction of a tenant's database may hold its connection while it needs one of a log, and both one of the control
plane. With a pool for each, whoever waits waits for somebody who can go on.
"""


@dataclass(frozen=True, slots=True)
class About:
    """`unsafe` names a setting of the server that is off and must not be; `tls` is the version in use."""

    version: str
    round_trip_ms: float
    tls: str | None
    unsafe: str | None
    free_connections: int


class Server:
    """The connections of this process to one PostgreSQL database."""

    def __init__(self, settings: PostgresSettings) -> None:
        """Opens nothing yet. Raises `InvalidInput` for an address or a password file that cannot be used."""
        url, arguments = server_url(settings), connect_arguments(settings)
        options: dict[str, Any] = {"connect_args": arguments, "hide_parameters": True}
        self.tiers: Mapping[Tier, Engine] = {
            tier: create_engine(
                url,
                pool_size=settings.pool_size if tier == "tenants" else max(2, settings.pool_size // 4),
                max_overflow=0,
                pool_timeout=settings.lock_timeout_s,
                pool_use_lifo=True,
                query_cache_size=2_000,
                **options,
            )
            for tier in ("tenants", "logs", "control")
        }
        # For locks that outlive a transaction and for what is rare: a connection each, so that no pool runs out of it.
        self.apart = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **options)
        self.rare = create_engine(url, poolclass=NullPool, **options)
        for engine in (*self.tiers.values(), self.apart, self.rare):
            event.listen(engine, "connect", _durable)

    def examine(self, probes: int) -> About:
        """What the server is like; `probes` statements are timed. Raises `Unavailable`."""
        with explained("database"), begun(self.rare, _ABOUT) as (connection, (row,)):
            start = time.perf_counter()
            for _ in range(probes):
                connection.execute(_LEAST)
            taken = time.perf_counter() - start
        off = [setting for setting, value in (("fsync", row.fsync), ("full_page_writes", row.pages)) if value != "on"]
        return About(row.version, 1000 * taken / probes, row.tls, off[0] if off else None, max(0, row.free))

    def make(self, schema: str) -> None:
        """Create a schema where there is none."""
        with explained(schema), begun(self.rare, _SCHEMA, {"schema": schema}) as (connection, found):
            if not found:
                # Two that create one schema at the same time fail in spite of IF NOT EXISTS.
                connection.execute(_LOCK, {"key": lock_key("schema", schema)})
                connection.execute(CreateSchema(schema, if_not_exists=True))

    def close(self) -> None:
        for engine in (*self.tiers.values(), self.apart, self.rare):
            engine.dispose()


class PostgresDatabase:
    """One schema with a version, as `tenancy.database.Database` is one file with a version.

    The schema has to be there already; its tables are made at the first use. Raises `SchemaTooNew`; `NotFound` where
    the schema was dropped; `Corrupt` where `mark` knows that the tables were made and they are not there;
    `Unavailable` where the server is away, overloaded, or another writer does not end.
    """

    def __init__(
        self,
        server: Server,
        schema: str,
        metadata: MetaData,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        mark: Mark | None = None,
        version_table: str = "schema_version",
        tier: Tier = "tenants",
    ) -> None:
        self.schema = schema
        self._metadata = metadata
        self._seed = seed
        self._migrations = migrations
        self._mark = mark
        self._version = Table(version_table, MetaData(), Column("version", Integer, nullable=False))
        self._select_version = select(self._version.c.version)
        translate: dict[str, Any] = {"schema_translate_map": {None: schema}}
        pooled = server.tiers[tier]
        self._readers: Engine = pooled.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True, **translate
        )
        self._writers: Engine = pooled.execution_options(isolation_level="READ COMMITTED", **translate)
        self._key = {"key": lock_key("writer", schema)}
        self._prepared = False
        self._prepare_lock = threading.Lock()

    @property
    def version(self) -> int:
        return len(self._migrations) + 1

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction: all its statements see one state of the schema, that of the first of them."""
        self._prepare()
        with self._explained(), begun(self._readers, self._select_version) as (connection, found):
            self._check(found)
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back on any exception."""
        self._prepare()
        with self._explained(), self._locked() as connection:
            self._check(connection.execute(self._select_version).all())
            yield connection

    def truncate_wal(self) -> bool:
        """Nothing: the server's log, its vacuum and its encryption at rest are the operator's."""
        return True

    @contextmanager
    def _locked(self) -> Iterator[Connection]:
        with begun(self._writers, _LOCK, self._key) as (connection, _):
            yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained(self.schema):
            try:
                yield
            except exc.DBAPIError as error:
                if _state(error) in _GONE and not self._is_there():
                    raise self._deleted() from None
                raise

    def _is_there(self) -> bool:
        with begun(self._writers, _SCHEMA, {"schema": self.schema}) as (_, found):
            return bool(found)

    def _deleted(self) -> NotFound:
        return NotFound("the data was deleted", item=self.schema)

    def _prepare(self) -> None:
        """Create or migrate the tables, once per process."""
        if self._prepared:
            return
        with self._prepare_lock:
            if self._prepared:
                return
            made = self._mark is not None and self._mark.made()
            with self._explained():
                with begun(self._writers, _LEAST) as (connection, _):
                    found = self._found(connection)
                if found == 0 and made:
                    raise Corrupt("the tables are missing", item=self.schema, remedy="restore them from a backup")
                if found != self.version:
                    with self._locked() as connection:
                        self._migrate(connection)
            if self._mark is not None and not made:
                self._mark.make()
            self._prepared = True

    def _found(self, connection: Connection) -> int:
        """The version of the tables, 0 where there are none yet."""
        here = {"schema": self.schema, "table": self._version.name}
        if connection.execute(_TABLE, here).first() is not None:
            return int(connection.execute(self._select_version).scalar_one())
        if connection.execute(_SCHEMA, {"schema": self.schema}).first() is None:
            raise self._deleted()
        return 0

    def _check(self, rows: Sequence[Row[Any]]) -> None:
        """Refuse a schema that a newer program has migrated since it was opened."""
        found = int(rows[0].version)
        if found > self.version:
            raise SchemaTooNew(
                f"the schema has version {found}, this program knows {self.version}",
                item=self.schema,
                remedy="run the newer program that wrote it",
            )

    def _migrate(self, connection: Connection) -> None:
        found = self._found(connection)
        if found == 0:
            self._create(connection)
            return
        self._check(connection.execute(self._select_version).all())
        for migration in self._migrations[found - 1 :]:
            migration(connection)
        connection.execute(update(self._version).values(version=self.version))

    def _create(self, connection: Connection) -> None:
        for table in (self._version, *self._metadata.sorted_tables):
            connection.execute(CreateTable(table))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                connection.execute(CreateIndex(index))
        connection.execute(insert(self._version).values(version=self.version))
        if self._seed is not None:
            self._seed(connection)


@contextmanager
def begun(
    engine: Engine, first: Executable, parameters: Mapping[str, Any] | None = None
) -> Iterator[tuple[Connection, Sequence[Row[Any]]]]:
    """A transaction that begins with the statement `first`, and its rows: committed at the end, or rolled back.

    After a restart of the server every pooled connection is dead. That shows at the first statement, and another
    connection takes the place: nothing was done on that one yet.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(engine.connect())
        try:
            rows = connection.execute(first, parameters).all()
        except exc.DBAPIError as error:
            connection.close()
            if not error.connection_invalidated:
                raise
            connection = stack.enter_context(engine.connect())
            rows = connection.execute(first, parameters).all()
        yield connection, rows
        connection.commit()


def lock_key(*names: str) -> int:
    """The 64-bit number of an advisory lock, from what it stands for."""
    digest = hashlib.blake2b("\0".join(names).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@contextmanager
def explained(item: str) -> Iterator[None]:
    """Turn errors of the server and of the way to it into what they mean; those of a statement stay what they are."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        meaning = _explain(error, item)
        if meaning is None:
            raise
        raise meaning from error


def _explain(error: exc.SQLAlchemyError, item: str) -> StrongroomError | None:
    """What is wrong with the server, or with what was sent; None for an error of the statement itself."""
    state = _state(error)
    if isinstance(error, exc.TimeoutError):
        return Unavailable(
            "no connection of this process's pool was free", item=item, remedy="try again, or raise database.pool_size"
        )
    if state in _DAMAGED:
        return Corrupt("the server reports damaged data", item=item, remedy="restore it from a backup")
    if state in _BUSY:
        return Unavailable(_BUSY[state], item=item, remedy="try again")
    if state[:2] in _REFUSED:
        return Unavailable("the server refuses to connect", item=item, remedy="check database.url and its password")
    # Connection errors of the client library carry no state; classes 08, 53, 57, 58 and 40 come from the server.
    if state[:2] in {"08", "53", "57", "58", "40"} or (not state and isinstance(error, exc.OperationalError)):
        return Unavailable("the database server is away or cannot answer", item=item, remedy="try again")
    if isinstance(error, exc.DataError) and not state and "NUL" in str(error.orig):
        return InvalidInput("text must not hold the character U+0000", item=item)
    return None


def _state(error: exc.SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    return (original.sqlstate or "") if isinstance(original, psycopg.Error) else ""


def _durable(connection: psycopg.Connection[Any], _record: object) -> None:
    """A commit that was acknowledged must be on disk, whatever the server's or the role's default says."""
    automatic, connection.autocommit = connection.autocommit, True
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.autocommit = automatic
