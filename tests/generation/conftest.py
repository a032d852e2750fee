"""One real SGLang server per test run, for the slow tests that ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.sglang_server import RunningServer, SglangNotRunning, running_server


@pytest.fixture(scope="session")
def sglang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    try:
        with running_server(tmp_path_factory.mktemp("sglang")) as server:
            yield server
    except SglangNotRunning as failure:
        pytest.fail(str(failure), pytrace=False)
