"""Faults of the cache's Redis server, over the whole path: every question is answered, and never from what is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tenancy.identity import Role
from tests.faults.rows import row
from tests.service.house import House
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

QUESTION = {"query": "How long is the notice period?"}
OLD, NEW = "The notice period is three months.", "The notice period is four weeks."


class Two:
    """Two tenants of one document each over one Redis, which is `server`."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.server = server
        self.house = House(
            folder,
            STRONGROOM_CACHE__STORE="redis",
            STRONGROOM_CACHE__REDIS__URL=server.url,
            STRONGROOM_CACHE__REDIS__PASSWORD_FILE=str(server.password_file),
            STRONGROOM_CACHE__REDIS__TIMEOUT_S="2",
            STRONGROOM_CACHE__REDIS__RETRY_S="0.05",
        )
        for tenant in ("acme", "globex"):
            self.write(OLD, tenant)
        # Both have something to lose.
        assert self.statuses("acme", 2) == self.statuses("globex", 2) == ["miss", "hit"]

    def write(self, text: str, tenant: str = "acme") -> None:
        key = self.house.key(tenant, "loader", Role.INGEST)
        body = {"text": text, "allow": ["tenant"]}
        assert self.house.send("PUT", "/v1/documents/notice.md", key, body).status_code == 200

    def ask(self, tenant: str = "acme") -> dict[str, Any]:
        reply = self.house.post("/v1/answers", self.house.key(tenant, "ana"), QUESTION)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    def statuses(self, tenant: str, times: int) -> list[str]:
        return [str(self.ask(tenant)["cache"]["status"]) for _ in range(times)]

    def answers_afresh(self) -> None:
        """Both tenants, several times, and what changes meanwhile is told as it is now."""
        for tenant in ("acme", "globex"):
            assert self.statuses(tenant, 3) == ["miss"] * 3
        self.write(NEW)
        assert "four weeks" in self.ask()["answer"]

    def resumes(self) -> None:
        """What was there before the change is not served; new answers are remembered again."""
        answers = [self.ask()]
        while answers[-1]["cache"]["status"] == "miss":
            answers.append(self.ask())
        assert all("four weeks" in answer["answer"] for answer in answers)
        assert "three months" in self.ask("globex")["answer"]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    server = RedisServer(tmp_path / "redis", persistent=True)
    server.start()
    try:
        made = Two(tmp_path / "house", server)
        with made.house.client:
            yield made
        made.house.close()
    finally:
        server.kill()


def _kill(server: RedisServer) -> Callable[[], None]:
    server.kill()
    return server.start


def _hang(server: RedisServer) -> Callable[[], None]:
    server.pause()
    return server.resume


def _refuse(server: RedisServer) -> Callable[[], None]:
    """Another password than the one that the service knows; open connections are closed."""
    with server.client() as client:
        client.config_set("requirepass", "another")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def back() -> None:
        with server.client(password="another") as client:
            client.config_set("requirepass", server.password)

    return back


@row("redis cache", "killed, with a log", caller="200, answered afresh", others="the same", recovery="start it")
@row(
    "redis cache", "hangs with open connections", caller="200, answered afresh, two timeouts later than otherwise",
    others="the same", recovery="by itself when it answers again",
)  # fmt: skip
@row(
    "redis cache", "password changed", caller="200, answered afresh", others="the same",
    recovery="the old password, or a restart with the new one",
)  # fmt: skip
@pytest.mark.parametrize("fault", [_kill, _hang, _refuse])
def test_a_cache_server_that_is_away(two: Two, fault: Callable[[RedisServer], Callable[[], None]]) -> None:
    mend = fault(two.server)
    try:
        two.answers_afresh()
    finally:
        mend()
    two.resumes()
    # What nobody changed is still remembered: the log has it.
    assert two.statuses("globex", 1) == ["hit"]


@row(
    "redis cache", "full (maxmemory)", caller="200; hits go on, new answers are not remembered",
    others="the same", recovery="more memory, or lower quotas",
)  # fmt: skip
def test_a_cache_server_that_is_full(two: Two) -> None:
    with two.server.client() as client:
        client.config_set("maxmemory", "1mb")
        assert two.statuses("acme", 2) == ["hit", "hit"]
        two.write(NEW)
        assert two.statuses("acme", 2) == ["miss", "miss"]
        assert "four weeks" in two.ask()["answer"]
        assert two.statuses("globex", 1) == ["hit"]
        client.config_set("maxmemory", "0")
    two.resumes()


@row(
    "redis cache", "a replica, or read-only", caller="200; hits go on, new answers are not remembered",
    others="the same", recovery="name the primary",
)  # fmt: skip
def test_a_cache_server_that_takes_no_writes(two: Two) -> None:
    with two.server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert two.statuses("acme", 2) == ["hit", "hit"]
        two.write(NEW)
        assert two.statuses("acme", 2) == ["miss", "miss"]
        assert "four weeks" in two.ask()["answer"]
        client.execute_command("REPLICAOF", "NO", "ONE")
    two.resumes()


@row(
    "redis cache", "emptied", caller="200, answered afresh", others="the same", lost="remembered answers",
    recovery="by itself",
)  # fmt: skip
def test_a_cache_server_that_was_emptied(two: Two) -> None:
    with two.server.client() as client:
        client.flushall()
    two.write(NEW)
    two.resumes()


@row(
    "redis cache", "a tenant's keys damaged", caller="200, answered afresh", lost="remembered answers",
    recovery="`strongroom cache repair`, or `strongroom cache invalidate --all`",
)  # fmt: skip
def test_damaged_keys_of_one_tenant(two: Two) -> None:
    tenant_id = two.house.services.control.tenants.show("acme").id
    with two.server.client() as client:
        for key in client.keys(f"sr:{{{tenant_id}}}:*"):
            client.delete(key)
            client.set(key, b"damaged", ex=600)
        assert two.statuses("acme", 3) == ["miss"] * 3
        assert two.statuses("globex", 1) == ["hit"]
        two.write(NEW)
        assert "four weeks" in two.ask()["answer"]
        services = two.house.services
        services.path.cache.purge(services.control.tenants.open(services.control.authenticator.operator("acme")))
        client.delete(f"sr:{{{tenant_id}}}:state")
    two.resumes()
