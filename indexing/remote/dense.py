"""The dense leg of a collection that a server engine holds: asked with the labels, checked against the snapshot.

An engine may be a moment ahead of the snapshot, behind it after a write that it delayed, or wrong. What it returns
counts only as far as the snapshot knows the rows as readable, and an answer that is not whole is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.collection import EngineDisagrees, Scored
from indexing.engine import Engine, Hit
from indexing.filters import SealedFilter
from tenancy.errors import NotFound

MOST_ASKED: Final = 10_000
"""Where more chunks than this tie with the last one, the engine chooses among them."""

_MOST_ID: Final = 2**63 - 1

IsReadable = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.bool_]]
"""Which of some chunk ids (n,) the searcher may read in the snapshot, and the filter describes: flags (n,)."""


def nearest(
    engine: Engine,
    physical: str,
    vector: npt.NDArray[np.float32],
    labels: frozenset[int],
    where: SealedFilter | None,
    k: int,
    *,
    readable: int,
    is_readable: IsReadable,
) -> list[Scored]:
    """The best `k` of the `readable` chunks by falling score and then rising chunk id.

    Raises `EngineDisagrees` where the engine returns a chunk that is not readable, or fewer than there are, or does
    not know the collection; `Unavailable` where it is away.
    """
    if not readable:
        return []
    wanted = min(k, readable)
    asked = min(k + 1, readable)
    while True:
        hits = _whole(engine, physical, vector, labels, where, asked, readable)
        _require_readable(hits, physical, is_readable)
        hits.sort(key=lambda hit: (-hit.score, hit.chunk_id))
        # One more than needed shows whether the last one ties with others that did not come back.
        if asked >= min(readable, MOST_ASKED) or hits[-1].score < hits[wanted - 1].score:
            return [Scored(*hit) for hit in hits[:wanted]]
        asked = min(4 * asked, readable, MOST_ASKED)


def _whole(
    engine: Engine,
    physical: str,
    vector: npt.NDArray[np.float32],
    labels: frozenset[int],
    where: SealedFilter | None,
    asked: int,
    readable: int,
) -> list[Hit]:
    """As many hits as were asked for: where the graph finds fewer, all points are compared."""
    try:
        hits = engine.nearest(physical, vector, labels, where, asked, readable=readable)
        if len(hits) < asked:
            hits = engine.nearest(physical, vector, labels, where, asked, readable=0)
    except NotFound as error:
        raise EngineDisagrees("the engine does not know the collection", item=physical, lost=True) from error
    if len(hits) < asked:
        raise EngineDisagrees("the engine returned fewer chunks than there are", item=physical)
    return list(hits)


def _require_readable(hits: Sequence[Hit], physical: str, is_readable: IsReadable) -> None:
    if not all(abs(hit.chunk_id) <= _MOST_ID and math.isfinite(hit.score) for hit in hits):
        # Neither can be ordered or looked up, and neither is anything that was ever stored.
        raise EngineDisagrees("the engine returned an id or a score that is none", item=physical)
    ids = np.fromiter((hit.chunk_id for hit in hits), dtype=np.int64, count=len(hits))
    foreign = ids[~is_readable(ids)]
    if len(foreign):
        raise EngineDisagrees(
            "the engine returned chunks that are not readable", item=physical, chunk_ids=tuple(foreign.tolist())
        )
    if len(np.unique(ids)) != len(ids):
        raise EngineDisagrees("the engine returned a chunk twice", item=physical)
