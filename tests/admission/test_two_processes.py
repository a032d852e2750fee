"""Two processes count at one Redis: together they never exceed a limit, and reach it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from admission.counters import Refused
from admission.limits import NO_AMOUNTS, Amounts
from admission.redis import RedisCounters
from admission.redis_link import Link
from admission.scopes import tenant_scope
from tests.admission.conformance.conftest import settings_of
from tests.admission.conformance.rig import amounts, ask, run
from tests.admission.counting_process import FOUR, MONEY, PRICE
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis")
    made.start()
    yield made
    made.kill()


@contextmanager
def processes(server: RedisServer, work: str, *names: str) -> Iterator[list[subprocess.Popen[str]]]:
    """They begin when all are ready."""
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.admission.counting_process", server.url, server.password_file, work, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for one in begun:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in begun:
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        yield begun
    finally:
        for one in begun:
            one.kill()
            one.wait()
            for pipe in (one.stdin, one.stdout):
                assert pipe is not None
                pipe.close()


def told(server: RedisServer, work: str) -> list[dict[str, Any]]:
    with processes(server, work, "one", "two") as both:
        found = []
        for one in both:
            assert one.stdout is not None
            found.append(json.loads(one.stdout.readline()))
            assert one.wait(60) == 0
        return found


def test_forty_clients_of_two_processes_are_never_five(server: RedisServer) -> None:
    spans = [span for one in told(server, "concurrent") for span in one["spans"]]
    assert len(spans) == 200
    # At one instant those that end are gone before others begin.
    changes = sorted((at, change) for begun, ended in spans for at, change in ((begun, 1), (ended, -1)))
    inside, most = 0, Counter[int]()
    for _, change in changes:
        inside += change
        most[inside] += 1
    assert max(most) == 4


def test_windows_and_money_are_exact_and_alerts_are_told_once(server: RedisServer) -> None:
    begun = time.monotonic()
    both = told(server, "exact")
    took = time.monotonic() - begun
    granted = sum((Counter(one["granted"]) for one in both), Counter[str]())
    if took < 55:
        assert (granted["windowed"], granted["tokens"]) == (150, 100)
    assert granted["money"] == 3_700 // PRICE == 100
    crossed = sorted(crossing for one in both for crossing in one["crossed"])
    assert crossed == [[0.8, 80 * PRICE], [1.0, 100 * PRICE]]
    assert all(all(one["granted"].values()) for one in both), "both had a share of it"

    async def main() -> None:
        assert (await counters.use(tenant_scope("money"))).month.money == 3_700
        assert isinstance(await counters.take(ask(MONEY, need=amounts(0, 0, 1), tenant="money")), Refused)

    counters = RedisCounters(Link(settings_of(server)))
    run(main(), counters)


def test_what_a_killed_process_held_is_free_again(server: RedisServer) -> None:
    with processes(server, "held", "one") as (one,):
        assert one.stdout is not None
        assert json.loads(one.stdout.readline()) == {"held": 5}
        one.kill()
        one.wait()

    async def main() -> None:
        use = await counters.use(tenant_scope("acme"))
        assert (use.held, use.flight.requests) == (amounts(200, 200), 4)
        assert isinstance(await counters.take(ask(FOUR)), Refused)
        # The one that lives looks every ten seconds.
        for now["ahead"] in (0, 10, 20):
            assert await counters.reap() == ()
        now["ahead"] = 31
        reaped = await counters.reap()
        assert sorted(one.tenant for one in reaped) == ["acme"] * 5
        assert {one.used for one in reaped} == {Amounts(0, 20, 3)}
        for scope, requests in ((tenant_scope("acme"), 4), (tenant_scope("other"), 1)):
            use = await counters.use(scope)
            assert (use.held, use.flight) == (NO_AMOUNTS, NO_AMOUNTS)
            assert use.minute == Amounts(requests, 20 * requests, 3 * requests)
        assert not isinstance(await counters.take(ask(FOUR)), Refused)
        with server.client() as client:
            kept = {key: client.ttl(key) for key in client.keys("*")}
        in_use = {"s:tenant:acme:acme", "l:", "leases", "epoch"}
        assert all(0 < ttl <= 86_400 for key, ttl in kept.items() if not any(part in key.decode() for part in in_use))

    now = {"ahead": 0.0}
    counters = RedisCounters(Link(settings_of(server)), clock=lambda: time.time() + now["ahead"])

    run(main(), counters)
