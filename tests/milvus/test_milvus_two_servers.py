"""Two server processes over one PostgreSQL database and one Milvus server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.test_two_servers import Pair, pair_of, test_what_one_does_holds_at_once_in_the_other
from tests.support.milvus_server import MilvusServer

__all__ = ["test_what_one_does_holds_at_once_in_the_other"]

pytestmark = [pytest.mark.milvus, pytest.mark.slow]


@pytest.fixture
def pair(server: MilvusServer, tmp_path: Path) -> Iterator[Pair]:
    with pair_of(tmp_path, f'kind = "milvus", url = "{server.url}"') as made:
        yield made
