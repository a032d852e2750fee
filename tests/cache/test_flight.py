"""Single flight: one leader per question, and nobody inherits its failure."""

from __future__ import annotations

import asyncio

import pytest

from cache.flight import Flights, Role
from cache.lookup import Asked
from tests.cache.desk import Desk


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def take(flights: Flights, desk: Desk, asked: Asked, roles: list[Role], finish: asyncio.Event, end: str) -> None:
    async with flights.turn(desk.company.handle, asked) as turn:
        roles.append(turn.role)
        if turn.role is Role.LEADER:
            await finish.wait()
            if end == "stored":
                turn.stored()
            elif end == "fails":
                raise RuntimeError("generator")


def run(desk: Desk, ends: list[str], cancel: list[int] | None = None) -> tuple[list[Role], list[object], int]:
    """Start one task an end, let the leaders finish one after another; the roles in order, and the results."""

    async def body() -> tuple[list[Role], list[object], int]:
        flights, roles, asked = Flights(), list[Role](), desk.ask("How long is the leave?")
        events = [asyncio.Event() for _ in ends]
        tasks = [
            asyncio.create_task(take(flights, desk, asked, roles, event, end))
            for event, end in zip(events, ends, strict=True)
        ]
        await settle()
        assert roles == [Role.LEADER]
        for number in cancel or []:
            tasks[number].cancel()
            await settle()
        for event in events:
            event.set()
            await settle()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return roles, list(results), len(flights)

    return asyncio.run(body())


def test_followers_wait_for_a_stored_answer(ana: Desk) -> None:
    roles, results, left = run(ana, ["stored"] * 4)
    assert roles == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER, Role.FOLLOWER]
    assert (results, left) == ([None] * 4, 0)


def test_an_answer_that_may_not_be_kept_releases_all(ana: Desk) -> None:
    roles, _, left = run(ana, ["kept nowhere", "stored", "stored"])
    assert (roles, left) == ([Role.LEADER, Role.ALONE, Role.ALONE], 0)


def test_a_failure_is_the_leaders_own(ana: Desk) -> None:
    roles, results, left = run(ana, ["fails", "fails", "stored", "stored"])
    assert roles == [Role.LEADER, Role.LEADER, Role.LEADER, Role.FOLLOWER]
    assert [type(result) for result in results] == [RuntimeError, RuntimeError, type(None), type(None)]
    assert left == 0


def test_a_cancelled_leader_hands_over(ana: Desk) -> None:
    roles, results, left = run(ana, ["stored"] * 3, cancel=[0])
    assert roles == [Role.LEADER, Role.LEADER, Role.FOLLOWER]
    assert isinstance(results[0], asyncio.CancelledError)
    assert (results[1:], left) == ([None, None], 0)


def test_a_cancelled_follower_disturbs_nobody(ana: Desk) -> None:
    roles, results, left = run(ana, ["stored"] * 3, cancel=[1])
    assert roles == [Role.LEADER, Role.FOLLOWER]
    assert isinstance(results[1], asyncio.CancelledError)
    assert left == 0


def test_a_follower_cancelled_in_the_moment_of_promotion_passes_the_part_on(ana: Desk) -> None:
    async def body() -> list[Role]:
        flights, roles, asked, event = Flights(), list[Role](), ana.ask("How long is the leave?"), asyncio.Event()
        followers: list[asyncio.Task[None]] = []

        async def leader() -> None:
            try:
                await take(flights, ana, asked, roles, event, "fails")
            except RuntimeError:
                followers[0].cancel()

        leading = asyncio.create_task(leader())
        await settle()
        followers += [asyncio.create_task(take(flights, ana, asked, roles, event, "stored")) for _ in range(2)]
        await settle()
        event.set()
        results = await asyncio.gather(leading, *followers, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert (results[2], len(flights)) == (None, 0)
        return roles

    assert asyncio.run(body()) == [Role.LEADER, Role.LEADER]


def test_nobody_waits_for_a_leader_whose_client_reads_nothing(ana: Desk) -> None:
    async def body() -> None:
        flights, asked, tenant = Flights(patience=0.0), ana.ask("How long is the leave?"), ana.company.handle
        async with flights.turn(tenant, asked) as leader:
            # The leader still holds its part; those who lost their patience answer for themselves.
            for _ in range(2):
                async with flights.turn(tenant, asked) as turn:
                    assert (leader.role, turn.role) == (Role.LEADER, Role.ALONE)
            assert len(flights) == 1
            leader.stored()
        assert len(flights) == 0
        async with flights.turn(tenant, asked) as turn:
            assert turn.role is Role.LEADER

    asyncio.run(body())


@pytest.mark.parametrize("change", [{"filter": "x"}, {"adapter_revision": "legal@1"}])
def test_another_namespace_is_another_flight(ana: Desk, change: dict[str, str]) -> None:
    async def body() -> None:
        flights, question = Flights(), "How long is the leave?"
        first, second = ana.ask(question), ana.ask(question, **change)
        tenant = ana.company.handle
        async with flights.turn(tenant, first) as one, flights.turn(tenant, second) as two:
            assert (one.role, two.role) == (Role.LEADER, Role.LEADER)
        assert len(flights) == 0

    asyncio.run(body())
