"""A real Milvus server for each file of this folder, with data of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexing.engines.milvus import MilvusEngine
from tests.support.milvus_server import MilvusServer, missing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    if reason := missing():
        pytest.skip(reason)
    started = MilvusServer(tmp_path_factory.mktemp("milvus"))
    started.start()
    yield started
    started.kill()


@pytest.fixture
def engine(server: MilvusServer) -> Iterator[MilvusEngine]:
    opened = MilvusEngine.server("milvus", server.url)
    yield opened
    opened.close()
