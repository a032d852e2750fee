"""Page-encrypted SQLite files: the only module that opens a database driver.

Every transaction is explicit. The driver's implicit ones are off, because with them two SELECTs in one block
may see two states: readers issue BEGIN and so hold one snapshot, writers issue BEGIN IMMEDIATE and so never
upgrade a read lock. All files share one SQLAlchemy engine (one compiled-statement cache); each file has a small
connection pool, and the least recently used pools are emptied so that open files stay bounded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import MetaData, create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlcipher3 import dbapi2 as driver

from tenancy.errors import Corrupt, NotFound, SchemaTooNew, Unavailable

BUSY_TIMEOUT_MS = 10_000
PAGE_CACHE_KIB = 256
"""Memory for pages per connection, in KiB; many tenants are open at once."""

# Parameters hold text of documents: they must not stand in the message of an error.
_engine = create_engine("sqlite://", module=driver, query_cache_size=2_000, hide_parameters=True)

# Result codes (https://sqlite.org/rescode.html): CORRUPT, NOTADB; BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN.
_DAMAGED = frozenset({11, 26})
_OUT_OF_REACH = frozenset({5, 6, 8, 10, 13, 14})

Migration = Callable[[Connection], None]


class ConnectionPools:
    """Connection pools by file, at most `limit` of them with idle connections open."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._pools: OrderedDict[Path, QueuePool] = OrderedDict()
        self._lock = threading.Lock()

    def pool(self, path: Path, creator: Callable[[], Any]) -> QueuePool:
        with self._lock:
            pool = self._pools.get(path)
            if pool is None:
                pool = QueuePool(creator, pool_size=2, max_overflow=62, timeout=30, dialect=_engine.dialect)
                self._pools[path] = pool
            self._pools.move_to_end(path)
            stale = [self._pools.popitem(last=False)[1] for _ in range(len(self._pools) - self._limit)]
        for evicted in stale:
            evicted.dispose()
        return pool

    def close(self, directory: Path | None = None) -> None:
        """Close the idle connections of all files, or of those below `directory`."""
        with self._lock:
            paths = [path for path in self._pools if directory is None or directory in path.parents]
            pools = [self._pools.pop(path) for path in paths]
        for pool in pools:
            pool.dispose()


class Database:
    """One encrypted SQLite file with a schema version.

    `seed` fills a new file. `migrations[n]` takes a file from version n + 1 to n + 2, so that the current version
    is `len(migrations) + 1`.
    Raises `SchemaTooNew` for a file of a newer program, `Corrupt` where the key does not fit.
    """

    def __init__(
        self,
        path: Path,
        key: bytes,
        metadata: MetaData,
        pools: ConnectionPools,
        *,
        seed: Migration | None = None,
        migrations: tuple[Migration, ...] = (),
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        page_cache: int = PAGE_CACHE_KIB,
    ) -> None:
        self.path = path
        self._key = key
        self._metadata = metadata
        self._pools = pools
        self._seed = seed
        self._migrations = migrations
        self._synchronous = synchronous
        self._page_cache = page_cache
        self._prepared = False
        self._prepare_lock = threading.Lock()

    @property
    def version(self) -> int:
        return len(self._migrations) + 1

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction: all its statements see one state of the file, that of the first of them."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back on any exception."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def truncate_wal(self) -> None:
        """Move all of the write-ahead log into the file and empty it, so that erased text is gone from both."""
        with self._connected() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        self._prepare()
        with self._explained(), self._connected() as connection:
            try:
                connection.exec_driver_sql(begin)
            except DBAPIError as error:
                raise Unavailable("the database is busy or out of reach", item=self.path.name) from error
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what is wrong with the file or its disk; an error of a statement stays what it is."""
        try:
            yield
        except DBAPIError as error:
            code = _primary(error.orig)
            if code in _DAMAGED:
                raise Corrupt("the file is damaged", item=self.path.name, remedy="restore it from a backup") from error
            if code in _OUT_OF_REACH:
                raise self._out_of_reach() from error
            raise

    def _out_of_reach(self) -> Unavailable:
        return Unavailable(
            "the file cannot be read or written",
            item=self.path.name,
            remedy="check the disk (space, permissions, health) and the limit of open files",
        )

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            pooled = self._pools.pool(self.path, self._connect).connect()
        except driver.Error as error:
            if not self.path.parent.exists():
                raise NotFound("the data was deleted", item=self.path.name) from None
            if _primary(error) in _OUT_OF_REACH:
                raise self._out_of_reach() from error
            raise Corrupt(
                "the file does not open with its key", item=self.path.name, remedy="restore it from a backup"
            ) from error
        with Connection(_engine, connection=pooled) as connection:
            yield connection

    def _connect(self) -> Any:
        connection = driver.connect(
            str(self.path), isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_MS / 1000
        )
        try:
            connection.execute(f"PRAGMA key = \"x'{self._key.hex()}'\"")
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{self._page_cache}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        """Create or migrate the file, once per process."""
        if self._prepared:
            return
        with self._prepare_lock:
            if self._prepared:
                return
            with self._explained(), self._connected() as connection:
                found = self._user_version(connection)
                if found != self.version:
                    self._migrate(connection)
            self._prepared = True

    def _migrate(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            found = self._user_version(connection)
            if found > self.version:
                raise SchemaTooNew(
                    f"the file has schema version {found}, this program knows {self.version}",
                    item=self.path.name,
                    remedy="run the newer program that wrote it",
                )
            if found == 0:
                self._create(connection)
            for migration in self._migrations[max(found - 1, 0) :] if found else ():
                migration(connection)
            connection.exec_driver_sql(f"PRAGMA user_version = {self.version}")
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _create(self, connection: Connection) -> None:
        for table in self._metadata.sorted_tables:
            connection.execute(CreateTable(table))
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                connection.execute(CreateIndex(index))
        if self._seed is not None:
            self._seed(connection)

    @staticmethod
    def _user_version(connection: Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA user_version").scalar_one())


def _primary(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
