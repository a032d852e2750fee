"""A table of what was used most recently, bounded, in which nothing that somebody still holds is ever made twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Keeps the `limit` most recently used values; one that was dropped is found for as long as somebody holds it.

    Safe from several threads.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._alive: WeakValueDictionary[K, V] = WeakValueDictionary()
        self._lock = threading.RLock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._alive.get(key)
            if found is not None:
                self._keep(key, found)
            return found

    def add(self, key: K, value: V) -> V:
        """Put `value` in, unless there is one by now; returns the one that is there."""
        with self._lock:
            found = self._alive.setdefault(key, value)
            self._keep(key, found)
            return found

    def replace(self, key: K, value: V) -> None:
        """Put `value` in the place of what is there; those who hold that keep it."""
        with self._lock:
            self._alive[key] = value
            before = self._kept.pop(key, None)
            self._keep(key, value)
        # What was there may end here, outside the lock.
        del before

    def pop(self, key: K) -> V | None:
        """Take a value out, also for those who hold it."""
        with self._lock:
            # Held until it is returned: nobody else may.
            kept = self._kept.pop(key, None)
            return self._alive.pop(key, kept)

    def drop(self) -> bool:
        """Stop keeping what was used least recently; False where nothing is kept."""
        with self._lock:
            dropped = self._kept.popitem(last=False) if self._kept else None
        # Its end may take long, and comes outside the lock.
        return dropped is not None

    def keys(self) -> set[K]:
        """The keys of all values that are alive."""
        with self._lock:
            return set(self._alive.keys())

    def values(self) -> list[V]:
        """All values that are alive."""
        with self._lock:
            return list(self._alive.values())

    def __len__(self) -> int:
        """How many are kept."""
        with self._lock:
            return len(self._kept)

    def _keep(self, key: K, value: V) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)
