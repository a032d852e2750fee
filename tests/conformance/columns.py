"""The engines that the suite runs against: one column each, the same behaviours in all."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from indexing.catalogue import EMBEDDED
from indexing.engine import Engine
from indexing.engines.milvus import MilvusEngine
from indexing.engines.qdrant import QdrantEngine
from tenancy.control import Tenants
from tenancy.keys import MasterKey
from tests.support import milvus_server
from tests.support.postgres import fresh_database, postgres_storage
from tests.support.qdrant_edge import edge_engine

ENGINE: Final = "vectors"
"""What the deployment of these tests calls its server engine."""

MILVUS_URL: Final = "STRONGROOM_TEST_MILVUS"
"""Where the running Milvus server of the tests is."""


def _never_missing() -> str | None:
    return None


@dataclass(frozen=True)
class Column:
    """`connect` opens the engine whose data are in a folder; None where FAISS in memory is the engine. With `postgres`
    the tenants are schemas of one database.

    `missing` says why the engine cannot run here; its tests are skipped then, and red in the table. `marks` are
    pytest's.
    """

    name: str
    connect: Callable[[Path], Engine] | None
    missing: Callable[[], str | None] = _never_missing
    postgres: bool = False
    marks: tuple[str, ...] = ()

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


def _milvus(_: Path) -> Engine:
    """The one server of this machine, started when it is first needed; processes of a test find it by its address."""
    url = os.environ.get(MILVUS_URL)
    if url is None:
        folder = Path(tempfile.mkdtemp(prefix="strongroom-milvus-"))
        server = milvus_server.MilvusServer(folder)
        with warnings.catch_warnings():
            # The package looks for free ports with sockets that it leaves to be collected.
            warnings.simplefilter("ignore", ResourceWarning)
            server.start()
        url = os.environ[MILVUS_URL] = server.url
        atexit.register(lambda: (server.kill(), shutil.rmtree(folder, ignore_errors=True)))
    return MilvusEngine.server(ENGINE, url)


COLUMNS: Final[dict[str, Column]] = {
    column.name: column
    for column in (
        Column("faiss", None),
        Column("qdrant-local", lambda folder: QdrantEngine.local(ENGINE, folder / "qdrant")),
        Column("qdrant-edge", _edge),
        Column("milvus", _milvus, missing=milvus_server.missing, marks=("milvus",)),
        Column("faiss-postgres", None, postgres=True, marks=("slow",)),
        Column("qdrant-edge-postgres", _edge, postgres=True, marks=("slow",)),
    )
}
