"""The engines that the suite runs against: one column each, the same behaviours in all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from indexing.catalogue import EMBEDDED
from indexing.engine import Engine
from indexing.engines.qdrant import QdrantEngine
from tests.support.qdrant_edge import edge_engine

ENGINE: Final = "vectors"
"""What the deployment of these tests calls its server engine."""


def _never_missing() -> str | None:
    return None


@dataclass(frozen=True)
class Column:
    """`connect` opens the engine whose data are in a folder; None where FAISS in memory is the engine.

    `missing` says why the engine cannot run here; an `optional` one is left out of ordinary test runs then, and is
    red in the table.
    """

    name: str
    connect: Callable[[Path], Engine] | None
    missing: Callable[[], str | None] = _never_missing
    optional: bool = False

    @property
    def engine(self) -> str:
        return EMBEDDED if self.connect is None else ENGINE

    def open(self, folder: Path) -> Mapping[str, Engine]:
        return {} if self.connect is None else {ENGINE: self.connect(folder)}


COLUMNS: Final[dict[str, Column]] = {
    column.name: column
    for column in (
        Column("faiss", None),
        Column("qdrant-local", lambda folder: QdrantEngine.local(ENGINE, folder / "qdrant")),
        Column("qdrant-edge", lambda folder: edge_engine(ENGINE, folder / "edge")),
    )
}
