"""Faults of the Redis server that counts what was spent, over the whole path: nothing is admitted that no contract
permits, and what was admitted meanwhile is counted afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from admission.limits import Amounts
from admission.scopes import tenant_scope
from tenancy.contract import check_contract
from tenancy.errors import NotFound
from tenancy.identity import Role
from tests.faults.rows import row
from tests.service.house import House, problem
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow

QUESTION = {"query": "How long is the notice period?"}
TEXT = "The notice period is three months."
CAREFUL, ALLOWED = "careful", "allowed"


class Two:
    """Two tenants over one Redis, one of whose contracts has an allowance of two requests."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.server = server
        self.house = House(
            folder,
            STRONGROOM_ADMISSION__STORE="redis",
            STRONGROOM_ADMISSION__REDIS__URL=server.url,
            STRONGROOM_ADMISSION__REDIS__PASSWORD_FILE=str(server.password_file),
            STRONGROOM_ADMISSION__REDIS__TIMEOUT_S="2",
            STRONGROOM_ADMISSION__REDIS__RETRY_S="0.000001",
            STRONGROOM_CACHE__ENABLED="false",
        )
        allowance = {"policy": "allowance", "requests": 2}
        self.house.services.control.tenants.create(
            ALLOWED, check_contract({"admission": {"user": {"requests_per_minute": 5}, "away": allowance}})
        )

    def write(self) -> None:
        for tenant in (CAREFUL, ALLOWED):
            self.house.put(tenant, "notice.md", TEXT, allow=["tenant"])

    def ask(self, tenant: str) -> Any:
        return self.house.post("/v1/answers", self.house.key(tenant, "ana"), QUESTION)

    def await_back(self) -> None:
        """Until a question has reached the server again, whose breaker lets one through after a moment."""
        while self.house.get("/healthz/ready").json()["limits_away"]:
            self.ask(CAREFUL)

    def use(self, tenant: str) -> Any:
        counters = self.house.services.path.admission.counters
        try:
            tenant_id = self.house.services.control.tenants.show(tenant).id
        except NotFound:
            pytest.fail("no such tenant")
        return self.house.client.blocking_portal.call(counters.use, tenant_scope(tenant_id))

    def answers(self, tenant: str) -> list[dict[str, Any]]:
        return [event for event in self.house.events(tenant) if event["action"] == "answer"]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    server = RedisServer(tmp_path / "redis", persistent=True)
    server.start()
    try:
        made = Two(tmp_path / "house", server)
        # One event loop for all requests, since the connections belong to it.
        with made.house.client:
            made.write()
            yield made
            made.house.client.blocking_portal.call(made.house.services.path.admission.counters.aclose)
        made.house.close()
    finally:
        server.kill()


def _kill(server: RedisServer) -> Callable[[], None]:
    server.kill()
    return server.start


def _refuse(server: RedisServer) -> Callable[[], None]:
    with server.client() as client:
        client.config_set("requirepass", "another")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def back() -> None:
        with server.client(password="another") as client:
            client.config_set("requirepass", server.password)

    return back


@row(
    "redis counters", "killed, with a log", caller="503 limits-unavailable, or what the contract allows meanwhile",
    others="the same, by their contracts", recovery="start it; what was admitted meanwhile is then counted",
)  # fmt: skip
@row(
    "redis counters", "password changed", caller="503 limits-unavailable, or what the contract allows meanwhile",
    others="the same, by their contracts", recovery="the old password, or a restart with the new one",
)  # fmt: skip
@pytest.mark.parametrize("fault", [_kill, _refuse])
def test_counters_that_are_away(two: Two, fault: Callable[[RedisServer], Callable[[], None]]) -> None:
    for tenant in (CAREFUL, ALLOWED):
        assert two.ask(tenant).status_code == 200
    before = {tenant: two.use(tenant).minute for tenant in (CAREFUL, ALLOWED)}
    mend = fault(two.server)
    try:
        told = problem(two.ask(CAREFUL), 503, "limits-unavailable")
        assert "redis" not in str(told), "who asks learns nothing of the deployment"
        assert [two.ask(ALLOWED).status_code for _ in range(3)] == [200, 200, 503]
        ready = two.house.get("/healthz/ready").json()
        assert (ready["status"], ready["limits_away"]) == ("degraded", True)
        assert ready["limits_refused"] >= 2
    finally:
        mend()
    two.await_back()
    assert two.ask(ALLOWED).status_code == 200
    use = two.use(ALLOWED)
    assert use.minute.requests == before[ALLOWED].requests + 3
    assert use.minute.tokens == 4 * before[ALLOWED].tokens
    assert (use.held, use.flight) == (Amounts(), Amounts())
    # All limits go on where they were: four of five were the one user's.
    assert [two.ask(ALLOWED).status_code for _ in range(2)] == [200, 429]
    assert two.house.get("/healthz/ready").json()["status"] == "ok"

    on_allowance = [event.get("detail", {}).get("admission") for event in two.answers(ALLOWED)]
    assert on_allowance.count("allowance") == 2 * 2, "the intent and the outcome of two"
    reasons = [event.get("reason") for event in two.answers(ALLOWED) + two.answers(CAREFUL)]
    assert reasons.count("limits-unavailable") >= 2


@row(
    "redis counters", "full (maxmemory)", caller="503 limits-unavailable, or what the contract allows meanwhile",
    others="the same, by their contracts", recovery="more memory",
)  # fmt: skip
def test_counters_that_are_full(two: Two) -> None:
    with two.server.client() as client:
        client.config_set("maxmemory", "1")
        problem(two.ask(CAREFUL), 503, "limits-unavailable")
        assert two.ask(ALLOWED).status_code == 200
        client.config_set("maxmemory", "0")
    assert two.ask(CAREFUL).status_code == 200


def test_an_ingestor_is_told_the_same(two: Two) -> None:
    mend = _kill(two.server)
    try:
        document = {"text": TEXT, "allow": ["tenant"]}
        key = two.house.key(CAREFUL, "loader", Role.INGEST)
        problem(two.house.send("PUT", "/v1/documents/new.md", key, document), 503, "limits-unavailable")
    finally:
        mend()
    two.await_back()
    assert two.house.send("PUT", "/v1/documents/new.md", key, document).status_code == 200
