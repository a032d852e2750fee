"""Connections to SQLite files, kept for reuse within the number of files that this process may have open.

An open connection takes three descriptors: the file, its write-ahead log and the memory that its readers share. Those
in use count as well as the idle ones. Where a new connection does not fit, idle ones of the file that was used least
recently are closed; where all are in use, the caller waits a bounded time and is then refused.
"""

from __future__ import annotations

import resource
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sqlalchemy.engine import Dialect
from sqlalchemy.exc import TimeoutError
from sqlalchemy.pool import PoolProxiedConnection, QueuePool

from tenancy.errors import InvalidInput, Unavailable

DESCRIPTORS_A_CONNECTION: Final = 3
MOST_CONNECTIONS: Final = 1_024
"""However many descriptors there are: each connection also takes memory, about 0.1 to 0.3 MiB."""

LEAST_RESERVE: Final = 64
"""Descriptors left to everything else: sockets, models, logs. A quarter of the limit where that is more."""

WAIT_S: Final = 5.0
_MOST_DESCRIPTORS: Final = 65_536
_IDLE_A_FILE: Final = 2
_MOST_A_FILE: Final = 64


def raise_limit() -> int:
    """Raise this process's limit of open files as far as it may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft
        return wanted
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def connections_within(descriptors: int) -> int:
    """How many connections may be open in a process that may open so many files."""
    free = descriptors - max(LEAST_RESERVE, descriptors // 4)
    return max(4, min(MOST_CONNECTIONS, free // DESCRIPTORS_A_CONNECTION))


class ConnectionPools:
    """At most `limit` open connections over all files, those in use included; by default what the process's limit
    of open files permits. A caller waits up to `wait_s` seconds for one.
    """

    def __init__(self, limit: int | None = None, *, wait_s: float = WAIT_S) -> None:
        if limit is None:
            limit = connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if limit < 1:
            raise InvalidInput("at least one connection must be allowed", item="limit")
        self.limit = limit
        self._wait_s = wait_s
        self._pools: OrderedDict[Path, QueuePool] = OrderedDict()
        self._open = 0
        # Reentrant: a connection may be collected, and so counted, while this thread is in here.
        self._state = threading.Condition(threading.RLock())

    @property
    def open(self) -> int:
        """Connections that are open, in use or idle."""
        return self._open

    def take(self, path: Path, creator: Callable[[], Any], dialect: Dialect) -> tuple[QueuePool, PoolProxiedConnection]:
        """A connection to `path`, which the caller hands to `give_back` however its work ends. `creator` opens one,
        which permits weak references to it.

        Raises `Unavailable` where all that may be open are in use, and whatever `creator` raises.
        """
        pool = self._pool(path, creator, dialect)
        try:
            return pool, pool.connect()
        except TimeoutError:
            raise self._refusal(path) from None

    def give_back(self, path: Path, pool: QueuePool, pooled: PoolProxiedConnection) -> None:
        pooled.close()
        with self._state:
            dropped = self._pools.get(path) is not pool
            self._state.notify_all()
        if dropped:
            pool.dispose()

    def close(self, directory: Path | None = None) -> None:
        """Close the idle connections of all files, or of those below `directory`."""
        with self._state:
            paths = [path for path in self._pools if directory is None or directory in path.parents]
            pools = [self._pools.pop(path) for path in paths]
        for pool in pools:
            pool.dispose()

    def close_file(self, path: Path) -> None:
        """Close the idle connections of one file; those in use are closed as they come back."""
        with self._state:
            pool = self._pools.pop(path, None)
        if pool is not None:
            pool.dispose()

    def directories(self) -> set[Path]:
        """The directories of files with open connections."""
        with self._state:
            return {path.parent for path in self._pools}

    def _pool(self, path: Path, creator: Callable[[], Any], dialect: Dialect) -> QueuePool:
        with self._state:
            pool = self._pools.get(path)
            if pool is None:
                overflow = _MOST_A_FILE - _IDLE_A_FILE

                def admitted() -> Any:
                    return self._admitted(path, creator)

                pool = QueuePool(
                    admitted, pool_size=_IDLE_A_FILE, max_overflow=overflow, timeout=self._wait_s, dialect=dialect
                )
                self._pools[path] = pool
            self._pools.move_to_end(path)
            return pool

    def _admitted(self, path: Path, creator: Callable[[], Any]) -> Any:
        """A new connection, counted until it is closed and gone."""
        self._admit(path)
        try:
            connection = creator()
        except BaseException:
            with self._state:
                self._pools.pop(path, None)
            self._left()
            raise
        weakref.finalize(connection, self._left).atexit = False
        return connection

    def _admit(self, path: Path) -> None:
        until = time.monotonic() + self._wait_s
        while True:
            with self._state:
                if self._open < self.limit:
                    self._open += 1
                    return
                idle = self._take_idle()
                if idle is None and not self._state.wait(max(0.0, until - time.monotonic())):
                    raise self._refusal(path)
            if idle is not None:
                # Outside the lock: the last connection of a file moves its write-ahead log into it.
                idle.dispose()

    def _take_idle(self) -> QueuePool | None:
        """The pool of the least recently used file with idle connections; the file's next ones come from another."""
        found = next((path for path, pool in self._pools.items() if pool.checkedin()), None)
        return None if found is None else self._pools.pop(found)

    def _left(self) -> None:
        with self._state:
            self._open -= 1
            self._state.notify_all()

    def _refusal(self, path: Path) -> Unavailable:
        return Unavailable(
            f"the {self.limit} connections to databases that may be open are all in use",
            item=path.name,
            remedy="try again; a higher limit of open files (ulimit -n) permits more of them",
        )
