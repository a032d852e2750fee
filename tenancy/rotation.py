"""A new data key for one tenant: its database is copied into a file of the next generation under the new key.

In this order, so that a crash anywhere leaves either generation whole, and nobody writes to the other one:

1. `next key`: the new key is wrapped and on record beside the present one.
2. `copied`: the copy is complete and durable, while the old file's write lock is held: nothing can be missing in it.
3. `retired`: the old file says that it is retired. From here on nobody reads or writes it, and whoever tries finishes
   the change first (`finished`).
4. `switched`: generation and key move on record in one transaction; the old key is gone with it.
5. The old files are removed.

A crash before 3 leaves everything as it was, and an unused copy, which `tidy` removes at a server's start. A crash
after it is finished by the next who opens the tenant.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, delete, insert, select
from sqlalchemy.engine import Connection

from tenancy.database import Database, Retired
from tenancy.errors import Conflict, Corrupt, NotFound, SchemaTooNew, StrongroomError
from tenancy.keyring import sync_directory
from tenancy.keys import KEY_BYTES, RootKey, TenantKeys
from tenancy.registry import FIRST, named, read_generation, write_generation
from tenancy.schema import collections, leftovers, wrapped_keys
from tenancy.storage import DATA_FILE, AnyDatabase
from tenancy.tenant import TenantHandle

NEXT: Final = "data.next"
EMBEDDED: Final = "faiss"
"""The engine whose collections exist in memory alone."""
_WAIT_S: Final = 60.0


def reached(point: str) -> None:
    """A place where tests let the process die."""


@dataclass(slots=True)
class _Upcoming:
    """The next generation. Once `settled` the old file may be retired, and the new one must not be forgotten. `orphans`
    are physical collections, by engine, that only the old file knows.
    """

    file: Path
    key: bytes = field(repr=False)
    settled: bool = False
    orphans: set[tuple[str, str]] = field(default_factory=set)


class Rotation:
    """Changes of data keys, with what it takes of the control plane."""

    def __init__(self, control: AnyDatabase, root: RootKey) -> None:
        self._control = control
        self._root = root

    def rotate(self, handle: TenantHandle) -> int:
        """Give `handle`'s tenant a new data key; returns the new generation.

        Writers wait meanwhile, readers do not. Raises `Unavailable` where writers or another change keep it waiting,
        `Conflict` where the documents are no file.
        """
        with handle.reading():
            # Finishes an earlier change, migrates the file, and says what is wrong with it.
            pass
        with self._alone(handle):
            old = _file(handle)
            with self._next(handle) as upcoming, old.writing() as connection:
                old.copy_to(upcoming.file, file_key(upcoming.key))
                sync_directory(handle.directory)
                reached("copied")
                upcoming.settled = True
                old.retire(connection)
        with handle.reading():
            return handle.generation

    def replace(
        self,
        handle: TenantHandle,
        data: Database,
        orphans: Iterable[tuple[str, str]] = (),
        last: Callable[[], None] = lambda: None,
    ) -> int:
        """Put a copy of `data` in the place of the tenant's database, whatever state that is in; returns the new
        generation. For a suspended tenant; who began to write before it was suspended waits, and goes on in the copy.

        `last` may change `data` when nobody writes any more. The collections at server engines that the old file names,
        and `orphans` (engine, physical), are put on record as left over: `data` does not know them.
        """
        with self._alone(handle):
            old = _file(handle)
            with self._next(handle) as upcoming:
                upcoming.orphans.update(orphans)
                try:
                    with old.writing() as connection:
                        upcoming.orphans |= server_collections(connection)
                        self._fill(handle, upcoming, data, last)
                        old.retire(connection)
                except StrongroomError as error:
                    # Where it opens for nobody, nobody needs to be told.
                    if not upcoming.settled:
                        if not isinstance(error, Corrupt | SchemaTooNew | Retired):
                            raise
                        self._fill(handle, upcoming, data, last)
        return self._generation(handle.tenant_id)

    @staticmethod
    def _fill(handle: TenantHandle, upcoming: _Upcoming, data: Database, last: Callable[[], None]) -> None:
        last()
        _remove(upcoming.file)
        data.copy_to(upcoming.file, file_key(upcoming.key))
        sync_directory(handle.directory)
        reached("copied")
        upcoming.settled = True

    @contextmanager
    def _next(self, handle: TenantHandle) -> Iterator[_Upcoming]:
        """The next generation, to be filled; put in place when the block ends, forgotten where it fails unsettled."""
        generation = self._generation(handle.tenant_id) + 1
        upcoming = _Upcoming(handle.directory / named(DATA_FILE, generation), secrets.token_bytes(KEY_BYTES))
        _remove(upcoming.file)
        with self._control.writing() as connection:
            self._store(connection, handle.tenant_id, NEXT, upcoming.key)
        reached("next key")
        try:
            yield upcoming
        except BaseException:
            if not upcoming.settled:
                self._forget_next(handle, generation)
            raise
        reached("retired")
        self._switch(handle, generation, upcoming.key, upcoming.orphans)

    def finished(self, handle: TenantHandle) -> tuple[int, bytes]:
        """The present generation and data key of a tenant whose file was retired; finishes a change that was cut short.

        Raises `Corrupt` where the file is retired and there is none to go on in.
        """
        with self._alone(handle):
            generation = self._generation(handle.tenant_id)
            if self._key(handle.tenant_id, "data") is None:
                raise NotFound("the tenant does not exist any more", item=handle.tenant_id)
            if generation == handle.generation:
                key = self._key(handle.tenant_id, NEXT)
                if key is None or not (handle.directory / named(DATA_FILE, generation + 1)).exists():
                    raise Corrupt(
                        "the file is retired, and the one in its place is missing",
                        item=named(DATA_FILE, generation),
                        remedy="restore the tenant from a backup",
                    )
                generation += 1
                self._switch(handle, generation, key)
            present = self._key(handle.tenant_id, "data")
        if present is None:
            raise NotFound("the tenant does not exist any more", item=handle.tenant_id)
        return generation, present

    def tidy(self, handle: TenantHandle) -> None:
        """Finish a change of the key that was cut short, or remove the copy that it left."""
        with handle.reading():
            pass
        with self._alone(handle):
            # Again, behind the lock, and without going on elsewhere: a retired file needs its successor.
            with handle.data.reading():
                pass
            self._forget_next(handle, self._generation(handle.tenant_id) + 1)
            remove_older(handle.directory, handle.generation)

    def _forget_next(self, handle: TenantHandle, generation: int) -> None:
        _remove(handle.directory / named(DATA_FILE, generation))
        with self._control.writing() as connection:
            connection.execute(delete(wrapped_keys).where(_of(handle.tenant_id, NEXT)))

    def _switch(
        self, handle: TenantHandle, generation: int, key: bytes, orphans: Iterable[tuple[str, str]] = ()
    ) -> None:
        with self._control.writing() as connection:
            self.put_in_place(connection, handle.tenant_id, generation, key)
            leave(connection, handle.tenant_id, orphans, time.time())
        self._control.truncate_wal()
        reached("switched")
        remove_older(handle.directory, generation)

    def put_in_place(self, connection: Connection, tenant_id: str, generation: int, key: bytes) -> None:
        """Put a tenant's generation and data key on record, and forget the key before."""
        connection.execute(delete(wrapped_keys).where(_of(tenant_id, NEXT)))
        self._store(connection, tenant_id, "data", key)
        write_generation(connection, tenant_id, DATA_FILE, generation)

    @staticmethod
    def _alone(handle: TenantHandle) -> AbstractContextManager[None]:
        return handle.exclusive("generation", _WAIT_S)

    def _generation(self, tenant_id: str) -> int:
        with self._control.reading() as connection:
            return read_generation(connection, tenant_id, DATA_FILE) or FIRST

    def _key(self, tenant_id: str, purpose: str) -> bytes | None:
        with self._control.reading() as connection:
            found = connection.execute(select(wrapped_keys.c.wrapped).where(_of(tenant_id, purpose)))
            wrapped: bytes | None = found.scalar_one_or_none()
        return None if wrapped is None else self._root.unwrap(tenant_id, purpose, wrapped)

    def _store(self, connection: Connection, tenant_id: str, purpose: str, key: bytes) -> None:
        connection.execute(delete(wrapped_keys).where(_of(tenant_id, purpose)))
        wrapped = self._root.wrap(tenant_id, purpose, key)
        connection.execute(insert(wrapped_keys).values(tenant_id=tenant_id, purpose=purpose, wrapped=wrapped))


def _file(handle: TenantHandle) -> Database:
    data = handle.data
    if isinstance(data, Database):
        return data
    raise Conflict(
        "the documents lie in a database server, which holds the keys to its disk",
        item=handle.name,
        remedy="use the server's own means",
    )


def server_collections(tenant: Connection) -> set[tuple[str, str]]:
    """Engine and physical name of each collection at a server engine that a tenant's database names."""
    held = collections.c
    rows = tenant.execute(select(held.engine, held.physical).where(held.engine != EMBEDDED))
    return {(row.engine, row.physical) for row in rows}


def leave(control: Connection, tenant_id: str, orphans: Iterable[tuple[str, str]], now: float) -> None:
    """Put collections on record that nothing names any more, for a server to drop. `now` is in UTC epoch seconds."""
    for engine, physical in sorted(orphans):
        control.execute(delete(leftovers).where(leftovers.c.physical == physical))
        control.execute(insert(leftovers).values(engine=engine, physical=physical, tenant_id=tenant_id, since=now))


def file_key(data_key: bytes) -> bytes:
    """The key of the tenant's database file under a data key."""
    return TenantKeys(data_key, b"").purpose(f"file/{DATA_FILE}")


def remove_older(directory: Path, generation: int) -> list[str]:
    """Remove the files of generations before `generation`, whose keys are gone; returns their names."""
    if generation == FIRST:
        return []
    older = [path for path in sorted(directory.glob("*.sqlite*")) if f".{generation}." not in path.name]
    for path in older:
        path.unlink(missing_ok=True)
    return [path.name for path in older]


def _of(tenant_id: str, purpose: str) -> ColumnElement[bool]:
    return (wrapped_keys.c.tenant_id == tenant_id) & (wrapped_keys.c.purpose == purpose)


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
