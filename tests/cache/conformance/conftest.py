"""The same tests over every store. `redis` keeps memory alone, `redis-log` a log, `redis-cluster` enforces slots."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from cache.stores.port import CacheStore
from tests.cache.conformance.rig import Rig, running
from tests.cache.desk import Clock
from tests.support.redis_server import RedisServer


@pytest.fixture
def clock() -> Clock:
    """Starts now: Redis has a clock of its own, by which keys expire."""
    return Clock(time.time())


@pytest.fixture(scope="session")
def redis_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis-log"), persistent=True) as server:
        yield server


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running(tmp_path_factory.mktemp("redis-cluster"), cluster=True) as server:
        yield server


SERVERS = {"redis": "redis_memory", "redis-log": "redis_log", "redis-cluster": "redis_cluster"}


# The fast suite has one of each; the log and the slots are slow, together.
KINDS = ["local", "redis", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("redis-log", "redis-cluster"))]


@pytest.fixture(params=KINDS)
def rig(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Rig]:
    kind: str = request.param
    server = request.getfixturevalue(SERVERS[kind]) if kind in SERVERS else None
    made = Rig(kind, clock, server)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def store(rig: Rig) -> CacheStore:
    return rig.open()
