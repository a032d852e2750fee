"""The port of vector engines: servers that hold physical collections beside the tenants' own databases.

An engine's collection is derived: the tenant's database holds the same vectors, labels and metadata, decides what is
right, and can build the collection again. An engine sees numbers alone: chunk, document and label ids, vectors, and
metadata whose text values are keyed hashes; no text, no name and nothing that a user chose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from indexing.filters import SealedFilter


MARK: Final = 0
"""Id of a point that is no chunk (`indexing.remote.mark`); those of chunks and documents begin at 1."""


class Hit(NamedTuple):
    """A chunk that an engine found, and its inner product with the question's vector."""

    chunk_id: int
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """One chunk as an engine stores it: `vector` (dimension,) float32, label ids of its document's access list.

    `metadata` is by typed key (`indexing.filters`), so that one field may hold values of several types.
    """

    chunk_id: int
    document_id: int
    vector: npt.NDArray[np.float32]
    allow: tuple[int, ...]
    deny: tuple[int, ...]
    metadata: Mapping[str, int] = field(default_factory=dict)


class Engine(Protocol):
    """One server (or pair of address and credentials). Safe from any number of threads.

    Every call ends within the engine's timeout and raises `Unavailable` where the server is away, too slow or full.
    Only calls that may be repeated are retried; every call here may be, since chunk ids are never used again.
    """

    @property
    def name(self) -> str:
        """How the settings and the tenants' contracts call it."""
        ...

    def create(self, physical: str, dimension: int) -> None:
        """Make an empty collection ready for search; nothing where it is there already."""
        ...

    def put(self, physical: str, points: Sequence[Point]) -> None:
        """Write points in place of those of the same chunk ids; returns when a search from now on sees them."""
        ...

    def remove(self, physical: str, chunk_ids: Sequence[int]) -> None:
        """Remove points; ids that are not there are no error."""
        ...

    def prune(self, physical: str, document_ids: Sequence[int], keep: Sequence[int]) -> None:
        """Remove the points of `document_ids` other than the chunks in `keep`: what older versions left behind.

        By the document id that each point carries, since the ids of chunks that are gone are known to nobody.
        """
        ...

    def nearest(
        self,
        physical: str,
        vector: npt.NDArray[np.float32],
        labels: frozenset[int],
        where: SealedFilter | None,
        k: int,
        *,
        readable: int,
    ) -> list[Hit]:
        """The nearest `k` of the points that `labels` may read and that match `where`, best first, any order in ties.

        The filter acts inside the search. `readable` is how many such points there are at most; below the engine's
        threshold it searches exactly. `labels` is never empty: that is decided before.
        """
        ...

    def chunk_ids(self, physical: str) -> Iterator[Sequence[int]]:
        """The ids of all points but the mark, in pieces: to compare with the database. Raises `NotFound`."""
        ...

    def drop(self, physical: str) -> None:
        """Destroy a collection; nothing where it is gone already."""
        ...

    def collections(self) -> Sequence[str]:
        """Physical names of the collections of this deployment on the server: what `doctor` compares."""
        ...

    def version(self) -> str:
        """The server's version: the cheapest question that shows that it is there."""
        ...

    def close(self) -> None:
        """Release connections and the event loop."""
        ...
