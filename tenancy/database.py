"""Page-encrypted SQLite files: the only module that opens a database driver.

Every transaction is explicit. The driver's implicit ones are off, because with them two SELECTs in one block
may see two states: readers issue BEGIN and so hold one snapshot, writers issue BEGIN IMMEDIATE and so never
upgrade a read lock. All files share one SQLAlchemy engine (one compiled-statement cache), and their connections come
from `tenancy.pools`, which bounds the open files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from sqlalchemy import MetaData, create_engine
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlcipher3 import dbapi2 as driver

from tenancy.errors import Corrupt, NotFound, SchemaTooNew, StrongroomError, Unavailable
from tenancy.pools import ConnectionPools as ConnectionPools

BUSY_TIMEOUT_MS = 10_000
_WAL_PAUSE_S = 0.005
PAGE_CACHE_KIB = 256
"""Memory for pages per connection, in KiB; many tenants are open at once."""

# Parameters hold text of documents: they must not stand in the message of an error.
_engine = create_engine("sqlite://", module=driver, query_cache_size=2_000, hide_parameters=True)

# Result codes (https://sqlite.org/rescode.html): CORRUPT, NOTADB; BUSY, LOCKED; READONLY, IOERR, FULL, CANTOPEN.
_DAMAGED = frozenset({11, 26})
_HELD = frozenset({5, 6})
_OUT_OF_REACH = frozenset({8, 10, 13, 14})
_FULL = 13

Migration = Callable[[Connection], None]

RETIRED: Final = 0x7FFFFFFF
"""The schema version of a file whose contents have moved to another file: nobody reads or writes it again."""


class Retired(Unavailable):
    """The contents moved to another file in the meantime, under another key. Open the tenant again."""

    def __init__(self, item: str) -> None:
        super().__init__("the data moved to another file", item=item, remedy="try again")


class Mark(Protocol):
    """What is known of a file outside of it, so that one that is lost is not taken for one that is new."""

    def made(self) -> bool:
        """Whether the file was made before."""

    def make(self) -> None:
        """Remember that it is made now."""

    def moved(self) -> bool:
        """Whether its contents lie in another file by now."""


class _Connection(driver.Connection):  # type: ignore[misc]
    """One that permits weak references, by which the open ones are counted."""


class Database:
    """One encrypted SQLite file with a schema version.

    `seed` fills a new file. `migrations[n]` takes a file from version n + 1 to n + 2, so that the current version
    is `len(migrations) + 1`.
    Raises `SchemaTooNew` for a file of a newer program, `Corrupt` where the key does not fit, or where `mark` knows
    that the file was made and it is missing or empty; `Retired` where its contents have moved.
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
        mark: Mark | None = None,
    ) -> None:
        self.path = path
        self._key = key
        self._metadata = metadata
        self._pools = pools
        self._seed = seed
        self._migrations = migrations
        self._synchronous = synchronous
        self._page_cache = page_cache
        self._mark = mark
        self._prepared = False
        self._prepare_lock = threading.Lock()
        self._turn = threading.Lock()

    @property
    def version(self) -> int:
        return len(self._migrations) + 1

    def reading(self) -> AbstractContextManager[Connection]:
        """One read transaction: all its statements see one state of the file, that of the first of them."""
        return self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction: committed at the end of the block, rolled back on any exception.

        Writers of one process take turns here: SQLite lets whoever asks at the right moment in, so that with dozens of
        writers one may wait past its time. And who waits here holds no connection.
        """
        if not self._turn.acquire(timeout=BUSY_TIMEOUT_MS / 1000):
            raise self._busy()
        try:
            with self._transaction("BEGIN IMMEDIATE") as connection:
                yield connection
        finally:
            self._turn.release()

    def truncate_wal(self) -> bool:
        """Move all of the write-ahead log into the file and empty it, so that erased text is gone from both.

        Who reads is waited for, not for ever; False where somebody still did.
        """
        self._prepare()
        with self._explained(), self._connected() as connection:
            return not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]

    def begin_again(self) -> None:
        """Remove a damaged file of what may get lost; the next transaction makes an empty one in its place.

        For one process at a time: another one that has the file open stays with the old one.
        """
        with self._prepare_lock:
            self._pools.close_file(self.path)
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self._prepared = False

    def retire(self, connection: Connection) -> None:
        """Let the write transaction of `connection` be the file's last: from its commit on everybody gets `Retired`."""
        connection.exec_driver_sql(f"PRAGMA user_version = {RETIRED}")

    def copy_to(self, target: Path, key: bytes) -> None:
        """Write one committed state of the file to the new file `target` under `key`, beside readers and writers.

        The copy is durable when this returns, and has no write-ahead log.
        """
        self._prepare()
        with self._explained(), closing(self._connect()) as connection:
            try:
                connection.execute(f"ATTACH DATABASE ? AS copy KEY \"x'{key.hex()}'\"", (str(target),))
                connection.execute("BEGIN")
                self._check(int(connection.execute("PRAGMA user_version").fetchone()[0]))
                connection.execute("SELECT sqlcipher_export('copy')")
                connection.execute(f"PRAGMA copy.user_version = {self.version}")
                connection.execute("COMMIT")
                connection.execute("DETACH DATABASE copy")
            except driver.Error as error:
                raise DBAPIError("copy", None, error) from error

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        self._prepare()
        with self._explained(), self._connected() as connection:
            # Past SQLAlchemy, whose share of a transaction's ends would be most of their time.
            raw: Any = connection.connection.driver_connection
            try:
                raw.execute(begin)
            except driver.Error as error:
                raise self._busy() from error
            try:
                self._check_version(raw)
                yield connection
            except BaseException:
                connection.rollback()
                _ended(raw.rollback)
                raise
            try:
                connection.commit()
                _ended(raw.commit)
            except MemoryError as error:
                # What SQLCipher says where a page that is to be changed is damaged.
                raise self._out_of_reach(error) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what is wrong with the file or its disk; an error of a statement stays what it is."""
        try:
            yield
        except DBAPIError as error:
            code = _primary(error.orig)
            if code in _DAMAGED:
                # A connection that met a damaged page fails at every later one.
                self._pools.close_file(self.path)
                raise Corrupt("the file is damaged", item=self.path.name, remedy="restore it from a backup") from error
            if code in _HELD:
                raise self._busy() from error
            if code in _OUT_OF_REACH:
                raise self._out_of_reach(error) from error
            raise

    def _busy(self) -> Unavailable:
        return Unavailable("the database is busy or out of reach", item=self.path.name)

    def _out_of_reach(self, error: BaseException) -> Unavailable:
        if _primary(getattr(error, "orig", error)) == _FULL:
            return Unavailable("the disk is full", item=self.path.name, remedy="make room, and do it again")
        return Unavailable(
            "the file cannot be read or written",
            item=self.path.name,
            remedy="check the disk (space, permissions, health) and the limit of open files",
        )

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            pool, pooled = self._pools.take(self.path, self._connect, _engine.dialect)
        except driver.Error as error:
            if not self.path.parent.exists():
                raise NotFound("the data was deleted", item=self.path.name) from None
            if not self.path.exists():
                raise self._lost() from None
            if _primary(error) in _HELD:
                raise self._busy() from error
            if _primary(error) in _OUT_OF_REACH:
                raise self._out_of_reach(error) from error
            raise Corrupt(
                "the file does not open with its key", item=self.path.name, remedy="restore it from a backup"
            ) from error
        try:
            with Connection(_engine, connection=pooled) as connection:
                yield connection
        finally:
            self._pools.give_back(self.path, pool, pooled)

    def _connect(self) -> Any:
        # Behind the first time a missing file is a loss: nothing is created in its place.
        mode = "rw" if self._prepared and self._mark is not None else "rwc"
        connection = driver.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            factory=_Connection,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1000,
        )
        try:
            connection.execute(f"PRAGMA key = \"x'{self._key.hex()}'\"")
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            _keep_wal(connection)
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
            made = self._mark is not None and self._mark.made()
            if made and not self._filled():
                raise self._lost()
            with self._explained(), self._connected() as connection:
                found = self._user_version(connection)
                if found == RETIRED or (found == 0 and made):
                    self._check(found)
                if found != self.version:
                    self._migrate(connection)
            if self._mark is not None and not made:
                self._mark.make()
            self._prepared = True

    def _filled(self) -> bool:
        try:
            return self.path.stat().st_size > 0
        except FileNotFoundError:
            return False

    def _lost(self) -> StrongroomError:
        """Why a file that was made is not there."""
        if not self.path.parent.exists():
            return NotFound("the data was deleted", item=self.path.name)
        if self._mark is not None and self._mark.moved():
            return Retired(self.path.name)
        return Corrupt("the file is missing or empty", item=self.path.name, remedy="restore it from a backup")

    def _check_version(self, raw: Any) -> None:
        try:
            found = int(raw.execute("PRAGMA user_version").fetchone()[0])
        except driver.Error as error:
            raise DBAPIError("version", None, error) from error
        self._check(found)

    def _check(self, found: int) -> None:
        """Refuse a file that another process has retired, emptied or migrated since it was opened."""
        if found == self.version:
            return
        if found == RETIRED:
            raise Retired(self.path.name)
        if found > self.version:
            raise self._too_new(found)
        raise self._lost()

    def _too_new(self, found: int) -> SchemaTooNew:
        return SchemaTooNew(
            f"the file has schema version {found}, this program knows {self.version}",
            item=self.path.name,
            remedy="run the newer program that wrote it",
        )

    def _migrate(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            found = self._user_version(connection)
            if found == RETIRED:
                raise Retired(self.path.name)
            if found > self.version:
                raise self._too_new(found)
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


def _ended(end: Callable[[], None]) -> None:
    try:
        end()
    except driver.Error as error:
        raise DBAPIError("end of a transaction", None, error) from error


def _keep_wal(connection: Any) -> None:
    """Let the file have a write-ahead log. To change the mode SQLite needs the file for itself and does not wait for
    it, so two processes that open a new one at once would disturb each other; the mode lasts, so only new ones change.
    """
    until = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except driver.OperationalError as error:
            if _primary(error) not in _HELD or time.monotonic() >= until:
                raise
            time.sleep(_WAL_PAUSE_S)


def _primary(error: BaseException | None) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
