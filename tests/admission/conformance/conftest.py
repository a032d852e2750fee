"""The same tests over every store of counters: in memory, and at a real Redis, also as a node of a cluster, which
refuses what crosses slots.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.counters import Counters
from admission.local import LocalCounters
from admission.redis import RedisCounters
from admission.redis_link import Link
from tenancy.redis_settings import RedisSettings
from tests.admission.conformance.rig import Clock
from tests.support.redis_server import RedisServer

KINDS = ("local", "redis", "redis-cluster")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def redis_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis-cluster"), cluster=True)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=KINDS)
def counters(request: pytest.FixtureRequest, clock: Clock) -> Counters:
    """Empty, and by `clock`."""
    kind: str = request.param
    if kind == "local":
        return LocalCounters(clock)
    server: RedisServer = request.getfixturevalue("redis_memory" if kind == "redis" else "redis_cluster")
    with server.client() as client:
        client.flushall()
    return RedisCounters(Link(settings_of(server)), clock=clock)


def settings_of(server: RedisServer) -> RedisSettings:
    """Patient: the machine may be busy."""
    return RedisSettings(
        url=server.url, password_file=str(server.password_file), timeout_s=5, connect_timeout_s=5, retry_s=0.05
    )
