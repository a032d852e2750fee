"""One real SGLang server per test run, shared by all its workers, for the slow tests that ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.sglang_server import RunningServer, SglangNotRunning, shared_server


@pytest.fixture(scope="session")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Salts must be fresh in each test: the server and its memory are everybody's."""
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    try:
        with shared_server(folder) as server:
            yield server
    except SglangNotRunning as failure:
        pytest.fail(str(failure), pytrace=False)
