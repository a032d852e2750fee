"""Budgets' alerts: posted once, tried a bounded number of times, never in anybody's way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from admission.counters import Crossing
from admission.scopes import tenant_scope
from admission.settings import AlertSettings
from service.alerts import WAITING, Alerts
from tenancy.errors import InvalidInput

CROSSING = Crossing(tenant_scope("t1"), 0.8, 1_000, 812, "2026-11")


async def delivered(replies: list[int | None], tmp_path: Path, attempts: int = 3) -> list[httpx.Request]:
    """The requests that one alert made, of which each got the next reply; `None` is a broken connection."""
    seen: list[httpx.Request] = []

    async def receive(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        status = replies[len(seen) - 1]
        if status is None:
            raise httpx.ConnectError("away")
        return httpx.Response(status)

    token = tmp_path / "token"
    token.write_text("secret\n", encoding="utf-8")
    settings = AlertSettings(webhook="https://hooks.example/b", token_file=str(token), attempts=attempts)
    alerts = Alerts(settings, transport=httpx.MockTransport(receive), first_pause_s=0.001)
    running = asyncio.create_task(alerts.run())
    alerts(CROSSING)
    await alerts._waiting.join()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return seen


@pytest.mark.parametrize(
    ("replies", "attempts"), [([200], 3), ([None, 503, 204], 3), ([500, 500], 2), ([400], 3), ([429, 200], 3)]
)
def test_an_alert_is_tried_until_it_is_taken_or_refused_for_good(
    replies: list[int | None], attempts: int, tmp_path: Path
) -> None:
    seen = asyncio.run(delivered(replies, tmp_path, attempts))
    assert len(seen) == len(replies)
    bodies = [json.loads(request.content) for request in seen]
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0] | {"alert": ""} == {
        "kind": "budget",
        "alert": "",
        "tenant": "t1",
        "scope": "tenant",
        "id": "t1",
        "share": 0.8,
        "limit": 1_000,
        "used": 812,
        "month": "2026-11",
    }
    assert {request.headers["authorization"] for request in seen} == {"Bearer secret"}


def test_nobody_waits_for_a_webhook_that_hangs() -> None:
    alerts = Alerts(AlertSettings(webhook="https://hooks.example/b"))
    for _ in range(WAITING + 5):
        alerts(CROSSING)
    Alerts(AlertSettings())(CROSSING)


def test_alerts_are_not_sent_in_the_clear(tmp_path: Path) -> None:
    Alerts(AlertSettings(webhook="http://127.0.0.1:9/hook"))
    for settings in (
        AlertSettings(webhook="http://hooks.example/b"),
        AlertSettings(webhook="ftp://hooks.example/b"),
        AlertSettings(webhook="https://hooks.example:port/b"),
        AlertSettings(webhook="https://hooks.example:99999/b"),
        AlertSettings(webhook="https://[::1/b"),
        AlertSettings(webhook="https://hooks.example/b", token_file=str(tmp_path / "none")),
    ):
        with pytest.raises(InvalidInput):
            Alerts(settings)
