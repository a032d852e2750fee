"""What a server does for its logs by itself: checkpoints and verifications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from audit.checkpoints import latest
from audit.log import AuditLog
from audit.tables import events
from service import log_care
from service.log_care import ACTION, LogCare
from tests.service.house import House

DAY = 86_400.0


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


@pytest.fixture
def clock(house: House) -> Clock:
    clock = Clock()
    house.services.control.logs._clock = clock
    return clock


@pytest.fixture
def care(house: House) -> Iterator[LogCare]:
    made = LogCare(house.services.control, DAY)
    yield made
    made.close()


def log_of(house: House, tenant: str) -> AuditLog:
    control = house.services.control
    return control.logs.of(control.authenticator.operator(tenant))


def verified(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [event for event in found if event["action"] == ACTION]


def test_each_log_is_verified_once_its_time_has_come(house: House, clock: Clock, care: LogCare) -> None:
    for tenant in ("acme", "globex"):
        house.put(tenant, "a.md", "Notice is three months.", allow=["tenant"])
    assert care.look() == []
    clock.now += DAY - 1
    assert care.look() == []
    clock.now += 1
    found = care.look()
    assert {one.log for one in found if one.ok} == {log_of(house, name).log_id for name in ("acme", "globex")}
    for tenant in ("acme", "globex"):
        (event,) = verified(house.events(tenant))
        assert (event["outcome"], event["phase"]) == ("allowed", "outcome")
        assert event["detail"]["size"] == event["seq"]  # type: ignore[index]
    assert care.look() == []
    clock.now += DAY
    assert len(care.look()) == 2
    assert [len(verified(house.events(name))) for name in ("acme", "globex")] == [2, 2]
    assert verified(house.system_events()) == []


def test_a_log_that_does_not_verify_is_told_everywhere(
    house: House, clock: Clock, care: LogCare, capsys: pytest.CaptureFixture[str]
) -> None:
    for tenant in ("acme", "globex"):
        house.put(tenant, "a.md", "Notice is three months.", allow=["tenant"])
    log = log_of(house, "acme")
    with log.database.writing() as connection:
        connection.execute(update(events).where(events.c.seq == 1).values(payload=b"{}"))
    clock.now += DAY
    found = {one.log: one.finding for one in care.look()}
    finding = found[log.log_id]
    assert finding is not None
    assert (finding.kind, finding.seq) == ("edited", 1)
    assert found[log_of(house, "globex").log_id] is None
    system = verified(house.system_events())
    assert [event["detail"]["log"] for event in system if event["outcome"] == "error"] == [log.log_id]  # type: ignore[index]
    with log.database.writing() as connection:
        connection.execute(delete(events).where(events.c.seq == 1))
    (event,) = verified(house.events("acme"))
    assert (event["outcome"], event["reason"]) == ("error", "edited")
    assert "AN AUDIT LOG DOES NOT VERIFY" in capsys.readouterr().out


def test_none_is_verified_where_that_is_switched_off(house: House, clock: Clock) -> None:
    house.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    care = LogCare(house.services.control, 0.0)
    clock.now += 100 * DAY
    assert care.look() == []
    care.close()


def test_all_tenants_have_their_turn(
    house: House, clock: Clock, care: LogCare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_care, "TENANTS", 2)
    names = [f"t{number}" for number in range(5)]
    for name in names:
        house.put(name, "a.md", "Notice is three months.", allow=["tenant"])
    clock.now += DAY
    assert [len(care.look()) for _ in range(4)] == [2, 2, 1, 0]


def test_a_verification_under_way_ends_with_the_server(house: House, clock: Clock, care: LogCare) -> None:
    house.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    clock.now += DAY
    care.close()
    assert care.look() == []
    assert verified(house.events("acme")) == []


def test_logs_are_signed_while_the_server_runs(house: House, care: LogCare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_care, "SIGN_S", 0.001)
    house.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    log = log_of(house, "acme")
    assert latest(log) is None

    signs = house.services.control.logs.sign

    async def until_signed() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def sign() -> None:
            signs()
            loop.call_soon_threadsafe(done.set)

        monkeypatch.setattr(house.services.control.logs, "sign", sign)
        task = asyncio.create_task(care.keep_signed())
        await asyncio.wait_for(done.wait(), 30)
        task.cancel()

    asyncio.run(until_signed())
    signed = latest(log)
    assert signed is not None
    assert signed.size == log.head().size


def test_a_clock_that_was_set_back_puts_no_verification_off(house: House, clock: Clock, care: LogCare) -> None:
    house.put("acme", "a.md", "Notice is three months.", allow=["tenant"])
    clock.now += 4_000 * DAY
    assert [one.ok for one in care.look()] == [True]
    assert care.look() == []
    clock.now -= 3_999 * DAY
    assert [one.ok for one in care.look()] == [True]
    assert care.look() == []
