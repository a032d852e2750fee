"""An engine that tells what it was asked, and is away, wrong or deadly when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from indexing.engine import MARK, Engine, Hit, Point
from indexing.remote.mark import LABELS
from tenancy.errors import Unavailable


class Watched:
    """Hands every call to `inner` after `before`, and calls `after` behind it; `calls` are the names of the methods.

    What has to do with the mark of a collection is in `calls` alone.
    """

    def __init__(self, inner: Engine) -> None:
        self.inner = inner
        self.calls: list[str] = []
        self.points: list[Point] = []
        self.filters: list[tuple[frozenset[int], Any]] = []
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.answer: Callable[[list[Hit]], list[Hit]] = lambda hits: hits

    @property
    def name(self) -> str:
        return self.inner.name

    def away(self) -> None:
        """From now on every call fails, until `back`."""

        def refuse(_: str) -> None:
            raise Unavailable("the vector engine cannot be reached", item=self.name, remedy="start it")

        self.before = refuse

    def back(self) -> None:
        self.before = lambda _: None

    def create(self, physical: str, dimension: int) -> None:
        self._call("create", physical, dimension)

    def put(self, physical: str, points: Sequence[Point]) -> None:
        self.points += [point for point in points if point.chunk_id != MARK]
        # The other way round, so that the order in which an engine got points is not that of their ids.
        self._call("put", physical, points[::-1])

    def remove(self, physical: str, chunk_ids: Sequence[int]) -> None:
        self._call("remove", physical, chunk_ids)

    def prune(self, physical: str, document_ids: Sequence[int], keep: Sequence[int]) -> None:
        self._call("prune", physical, document_ids, keep)

    def nearest(
        self, physical: str, vector: np.ndarray, labels: frozenset[int], where: Any, k: int, *, readable: int
    ) -> list[Hit]:
        found: list[Hit] = self._call("nearest", physical, vector, labels, where, k, readable=readable)
        if min(labels) >= LABELS:
            return found
        self.filters.append((labels, where))
        return self.answer(found)

    def chunk_ids(self, physical: str) -> Iterator[Sequence[int]]:
        found: Iterator[Sequence[int]] = self._call("chunk_ids", physical)
        return found

    def drop(self, physical: str) -> None:
        self._call("drop", physical)

    def collections(self) -> Sequence[str]:
        found: Sequence[str] = self._call("collections")
        return found

    def version(self) -> str:
        found: str = self._call("version")
        return found

    def close(self) -> None:
        self.inner.close()

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.before(name)
        self.calls.append(name)
        result = getattr(self.inner, name)(*arguments, **named)
        self.after(name)
        return result
