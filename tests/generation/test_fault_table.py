"""Every case of the fault table through the HTTP API: what the asker sees, what is on record, sent and freed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from tests.generation.fault_cases import CASES, Case, speak
from tests.generation.fault_table import PAGE, markdown
from tests.generation.stage import VAULT, Stage, events, stage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", CASES, ids=[case.fault for case in CASES])
def test_a_fault_is_as_the_table_says(shared: Stage, case: Case, streamed: bool) -> None:
    shared.fresh()
    case.prepare(shared)
    question = shared.question() | {"stream": streamed}
    for _ in range(case.asks):
        seen = left(shared, question) if case.leaves else asked(shared, question)
        assert seen == (case.streamed if streamed else case.whole)
        question = question if case.again else shared.question() | {"stream": streamed}
    assert recorded(shared.last()) == case.audit
    assert f"{sum(shared.sent)}, {shared.aborts}" == case.sent
    assert shared.at_rest(), "a slot or a lease is still taken"
    assert not shared.servers[VAULT].received, "a request left its trust level"
    for server in shared.servers:
        server.usual = speak
    assert asked(shared, shared.question()) == case.then
    assert shared.at_rest()


def test_readiness_counts_pools_that_are_away(shared: Stage) -> None:
    for away in (0, 1, 2):
        shared.fresh()
        for pool in list(shared.pools.values())[:away]:
            for replica in pool.replicas:
                replica.breaker.trip()
        told = shared.house.get("/healthz/ready").json()
        assert (told["pools_away"], told["status"]) == (away, "degraded" if away else "ok")


def test_the_page_holds_the_table_of_today() -> None:
    assert markdown() in PAGE.read_text(encoding="utf-8"), "python -m tests.generation.fault_table --write"


def asked(stage: Stage, question: dict[str, Any]) -> str:
    """What the asker sees: the status and how it ended, or the kinds of events."""
    response = stage.ask(question)
    assert "secret" not in response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        found = events(response)
        kinds = [name for name, _ in groupby(name for name, _ in found)]
        name, data = found[-1]
        return ", ".join(kinds) + (f" {data['code']}" if name == "error" else "")
    body = response.json()
    return f"{response.status_code} {body['finish'] if response.status_code == 200 else body['code']}"


def left(stage: Stage, question: dict[str, Any]) -> str:
    """The asker goes away as soon as the engine has begun to answer."""
    key = stage.house.key("acme", "ana")
    scope = {
        "type": "http", "method": "POST", "path": "/v1/answers", "raw_path": b"/v1/answers", "query_string": b"",
        "root_path": "", "scheme": "http", "http_version": "1.1", "client": ("192.0.2.1", 1), "server": ("x", 80),
        "headers": [(b"authorization", f"Bearer {key}".encode()), (b"content-type", b"application/json")],
        "extensions": {},
    }  # fmt: skip

    async def visit() -> None:
        messages = asyncio.Queue[dict[str, Any]]()
        messages.put_nowait({"type": "http.request", "body": json.dumps(question).encode(), "more_body": False})
        ended: list[Any] = []

        async def send(message: Any) -> None:
            ended.append(message)

        task = asyncio.create_task(stage.house.app(scope, messages.get, send))  # type: ignore[arg-type]
        for _ in range(4_000):
            if any(one.load.requests and not one.load.prefill for one in stage.pools["main"].replicas):
                break
            await asyncio.sleep(0.002)
        messages.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(task, 20)

    stage.within(visit)
    return "gone"


def recorded(event: dict[str, Any]) -> str:
    """The outcome in the tenant's log, with the pool that answered and what was booked."""
    said: str = event["outcome"] + (f", {event['reason']}" if event.get("reason") else "")
    detail = event.get("detail") or {}
    if "failed_at" in detail:
        said += f", at {detail['failed_at']}"
    used = event.get("generation")
    if not used:
        return said
    pool = used["pool"] + (f" for {detail['fallback_from']}" if "fallback_from" in detail else "")
    tokens = f"{used['input']} in, {used['output']} out"
    if used["finish"] == "error":  # then both are estimates
        tokens = "tokens booked" if used["input"] and used["output"] else "nothing booked"
    return f"{said}; {pool}, {used['finish']}, {tokens}"
