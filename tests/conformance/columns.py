"""The engines that the suite runs against: one column each, the same behaviours in all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from indexing.catalogue import EMBEDDED
from indexing.engine import Engine
from indexing.engines.qdrant import QdrantEngine
from tenancy.control import Tenants
from tenancy.keys import MasterKey
from tests.support.postgres import fresh_database, postgres_storage
from tests.support.qdrant_edge import edge_engine

ENGINE: Final = "vectors"
"""What the deployment of these tests calls its server engine."""


def _never_missing() -> str | None:
    return None


@dataclass(frozen=True)
class Column:
    """`connect` opens the engine whose data are in a folder; None where FAISS in memory is the engine. With `postgres`
    the tenants are schemas of one database.

    `missing` says why the engine cannot run here; an `optional` one is left out of ordinary test runs then, and is
    red in the table.
    """

    name: str
    connect: Callable[[Path], Engine] | None
    missing: Callable[[], str | None] = _never_missing
    optional: bool = False
    postgres: bool = False

    @property
    def engine(self) -> str:
        return EMBEDDED if self.connect is None else ENGINE

    @contextmanager
    def database(self, folder: Path) -> Iterator[None]:
        """What holds the tenants of this folder: its own files, or a PostgreSQL database for as long as this lasts."""
        if not self.postgres:
            yield
            return
        with fresh_database() as url:
            (folder / "database").write_text(url)
            yield

    def tenants(self, folder: Path) -> Tenants:
        """As another process would open them too."""
        data, master = folder / "data", MasterKey(bytes(range(32)))
        url = (folder / "database").read_text() if self.postgres else None
        return Tenants(data, master, storage=postgres_storage(url, data) if url else None)

    def open(self, folder: Path) -> Mapping[str, Engine]:
        return {} if self.connect is None else {ENGINE: self.connect(folder)}


def _edge(folder: Path) -> Engine:
    return edge_engine(ENGINE, folder / "edge")


COLUMNS: Final[dict[str, Column]] = {
    column.name: column
    for column in (
        Column("faiss", None),
        Column("qdrant-local", lambda folder: QdrantEngine.local(ENGINE, folder / "qdrant")),
        Column("qdrant-edge", _edge),
        Column("faiss-postgres", None, postgres=True),
        Column("qdrant-edge-postgres", _edge, postgres=True),
    )
}
