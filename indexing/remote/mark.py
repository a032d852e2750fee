"""A mark in a physical collection: up to which change it holds the database.

What an engine acknowledged it may lose, when its operator restores an older backup. Rows that came back from the dead
are noticed when a search returns them, rows that are missing only by somebody who counts. So each state of a collection
carries its number, as a point of its own under an id that no chunk has: a question finds it by a label that no document
has, as it finds any other point.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.engine import MARK, Engine, Point
from tenancy.errors import NotFound

LABELS: Final = 1 << 52
"""Above all ids of labels, and below 2^53, which JSON keeps exactly."""
_ASKED: Final = 1_000


def put_mark(engine: Engine, physical: str, dimension: int, number: int) -> None:
    """Say that the collection holds everything up to change `number`, in place of what it said before."""
    engine.put(physical, [Point(MARK, MARK, _vector(dimension), (LABELS + number,), ())])


def is_marked(engine: Engine, physical: str, dimension: int, least: int, most: int) -> bool:
    """Whether the collection says so of a number from `least` to `most`; False where the engine does not know it.

    Of many numbers only the first thousand are asked for. Raises `Unavailable`.
    """
    labels = frozenset(LABELS + number for number in range(least, min(most, least + _ASKED) + 1))
    try:
        found = engine.nearest(physical, _vector(dimension), labels, None, 1, readable=1)
    except NotFound:
        return False
    return [hit.chunk_id for hit in found] == [MARK]


def _vector(dimension: int) -> npt.NDArray[np.float32]:
    vector = np.zeros(dimension, dtype=np.float32)
    vector[0] = 1.0
    return vector
