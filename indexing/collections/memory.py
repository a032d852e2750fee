"""The memory that open collections may take: reserved before a load, counted until the last user lets go.

What counts is held by objects (segments, access lists, sets of readable rows), some shared by several snapshots. Each
counts once, from when it is held here until it is collected: a snapshot that was dropped but is still searched counts
on. Objects may be collected in any thread at any moment, also inside of the code below, so their bytes come back
through a queue that permits that.

Who waits for room holds none: a thread that waits belongs to a question whose collection is not in memory. But those
who hold collections need threads to end, so at most `waiters` wait at one time; one more is refused at once.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from tenancy.errors import InvalidInput, Unavailable

_LOOK_S: Final = 0.05
"""Between two looks at what may be closed: memory that became idle, but was not given back, tells nobody."""


class Measured(Protocol):
    """Something whose memory counts."""

    @property
    def nbytes(self) -> int: ...


class NoRoom(Exception):
    """`nbytes` do not fit beside what is in use; see `Memory.wait`."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


class Memory:
    """`budget` bytes over all tenants. `close_one` drops what was used least recently; False where nothing is left."""

    def __init__(
        self, budget: int, close_one: Callable[[], bool], *, wait_s: float, waiters: int, setting: str
    ) -> None:
        if budget < 0 or wait_s < 0 or waiters < 0:
            raise InvalidInput("the memory budget and its waiting time are not negative", item=setting)
        self.budget = budget
        self._close_one = close_one
        self._wait_s = wait_s
        self._setting = setting
        self._waiters = threading.BoundedSemaphore(waiters) if waiters else None
        self._given_back: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._counted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._by_tenant: Counter[str] = Counter()
        self._used = 0
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """Bytes that are held or reserved."""
        with self._lock:
            return self._settled()

    def of(self, tenant_id: str) -> int:
        """Bytes that are held or reserved for one tenant."""
        with self._lock:
            self._settled()
            return self._by_tenant[tenant_id]

    @property
    def tenants(self) -> set[str]:
        """Tenants that hold memory, also such as were closed and are still searched."""
        with self._lock:
            self._settled()
            return set(self._by_tenant)

    @contextmanager
    def reserved(self, tenant_id: str, nbytes: int, largest: int) -> Iterator[None]:
        """Reserve `nbytes` for the time of a load that will keep `largest`.

        Raises `NoRoom` where that does not fit beside what is in use, `Unavailable` where the tenant alone is larger
        than the budget. A tenant that is in memory already does not wait: its searches may be waiting for this.
        """
        if largest > self.budget:
            raise self._too_large(largest)
        nbytes = min(nbytes, self.budget)
        if not self._reserve(tenant_id, nbytes):
            raise NoRoom(nbytes)
        try:
            yield
        finally:
            self._given_back.put((tenant_id, -nbytes))

    def hold(self, tenant_id: str, *pieces: Measured) -> None:
        """Count `pieces` until each is collected; one that counts already stays as it is."""
        with self._lock:
            for piece in pieces:
                if piece not in self._counted:
                    self._counted.add(piece)
                    nbytes = piece.nbytes
                    self._book(tenant_id, nbytes)
                    weakref.finalize(piece, self._given_back.put, (tenant_id, -nbytes)).atexit = False

    def grown(self, tenant_id: str, nbytes: int) -> None:
        """Count `nbytes` more (or fewer) at once; from any thread, and from finalizers."""
        self._given_back.put((tenant_id, nbytes))

    def require_fitting(self, nbytes: int) -> None:
        """Raise `Unavailable` where one tenant of `nbytes` is larger than the budget."""
        if nbytes > self.budget:
            raise self._too_large(nbytes)

    def shrink(self) -> None:
        """Close what was used least recently until the rest fits, or nothing is left to close."""
        while self.used > self.budget and self._close_one():
            pass

    def wait(self, nbytes: int, until: float) -> None:
        """Wait until `nbytes` may fit, at most until `until` (monotonic seconds). Raises `Unavailable`."""
        if self._waiters is None or not self._waiters.acquire(blocking=False):
            raise self._full()
        try:
            while not self._fits(nbytes):
                left = until - time.monotonic()
                if left <= 0:
                    raise self._full()
                try:
                    self._book_back(self._given_back.get(timeout=min(left, _LOOK_S)))
                except queue.Empty:
                    continue
        finally:
            self._waiters.release()

    def deadline(self) -> float:
        """Until when somebody who asks now may wait, in monotonic seconds."""
        return time.monotonic() + self._wait_s

    def _reserve(self, tenant_id: str, nbytes: int) -> bool:
        while True:
            with self._lock:
                used = self._settled()
                if used + nbytes <= self.budget:
                    self._book(tenant_id, nbytes)
                    return True
            if self._close_one():
                continue
            with self._lock:
                # Closing what another thread loaded just now may have been somebody else's success.
                if self._settled() + nbytes <= self.budget or self._by_tenant[tenant_id] > 0:
                    self._book(tenant_id, nbytes)
                    return True
            return False

    def _fits(self, nbytes: int) -> bool:
        while self.used + nbytes > self.budget:
            if not self._close_one():
                return self.used + nbytes <= self.budget
        return True

    def _settled(self) -> int:
        """What is used, with all that came back. The caller holds the lock."""
        while True:
            try:
                self._book(*self._given_back.get_nowait())
            except queue.Empty:
                return self._used

    def _book_back(self, given: tuple[str, int]) -> None:
        with self._lock:
            self._book(*given)

    def _book(self, tenant_id: str, nbytes: int) -> None:
        self._used += nbytes
        self._by_tenant[tenant_id] += nbytes
        if not self._by_tenant[tenant_id]:
            del self._by_tenant[tenant_id]

    def _full(self) -> Unavailable:
        return Unavailable(
            f"the memory for open collections ({_mib(self.budget)}) is in use by other questions",
            item=self._setting,
            remedy=f"try again; where this happens often, raise {self._setting}",
        )

    def _too_large(self, nbytes: int) -> Unavailable:
        return Unavailable(
            f"the collection needs about {_mib(nbytes)} of memory, and all of them together may take "
            f"{_mib(self.budget)}",
            item=self._setting,
            remedy=f"raise {self._setting} above {nbytes} bytes, or move the tenant to a server engine",
        )


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"
