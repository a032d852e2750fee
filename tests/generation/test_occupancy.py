"""Engine time and KV tokens of tenants, with a clock of the test's own, and as lanes and pools report them."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admission.fair import Party
from generation.generator import Piece, prompt_tokens
from generation.occupancy import EngineUse, Occupancy
from tests.generation.prompts import finish_of, prompt, soon
from tests.generation.test_lanes import Room, within
from tests.generation.test_pool import pool_of, run
from tests.support.sglang_stand_in import StandIn, hang_up


class Clock:
    """Nanoseconds that pass only where the test says so."""

    def __init__(self) -> None:
        self.now = 5_000

    def __call__(self) -> int:
        return self.now


def occupancy() -> tuple[Occupancy, Clock]:
    clock = Clock()
    return Occupancy(clock), clock


class TestEngineTime:
    def test_the_time_of_a_replica_is_divided_by_requests(self) -> None:
        found, clock = occupancy()
        found.begins("r1", "mine", 10)
        clock.now += 100  # alone
        for _ in range(3):
            found.begins("r1", "theirs", 10)
        clock.now += 100  # one of four
        found.ends("r1", "mine", 10)
        clock.now += 100  # gone
        assert {tenant: use.engine_ns for tenant, use in found.take().items()} == {"mine": 125, "theirs": 175}

    def test_replicas_are_apart_and_idle_time_is_nobodys(self) -> None:
        found, clock = occupancy()
        clock.now += 1_000
        found.begins("r1", "mine", 10)
        found.begins("r2", "theirs", 10)
        clock.now += 100
        found.ends("r1", "mine", 10)
        found.ends("r2", "theirs", 10)
        clock.now += 1_000
        found.begins("r1", "mine", 10)
        clock.now += 1
        assert {tenant: use.engine_ns for tenant, use in found.take().items()} == {"mine": 101, "theirs": 100}

    def test_what_was_taken_is_not_told_again_and_what_runs_goes_on(self) -> None:
        found, clock = occupancy()
        found.begins("r1", "mine", 10)
        clock.now += 100
        assert found.take() == {"mine": EngineUse(100, 10)}
        assert found.take() == {"mine": EngineUse(0, 10)}
        clock.now += 50
        found.ends("r1", "mine", 10)
        assert found.take() == {"mine": EngineUse(50, 10)}
        assert found.take() == {}, "whoever is at rest leaves"

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["begin", "end", "take"]), st.integers(0, 10**10), st.integers(0, 3), st.integers(0, 1)
            ),
            max_size=60,
        )
    )
    def test_the_times_of_all_tenants_are_exactly_the_busy_time_of_the_replicas(
        self, steps: list[tuple[str, int, int, int]]
    ) -> None:
        found, clock = occupancy()
        running: list[tuple[int, str]] = []
        busy, told = 0, EngineUse()
        for what, elapsed, tenant, replica in steps:
            clock.now += elapsed
            busy += elapsed * len({where for where, _ in running})
            if what == "begin":
                running.append((replica, f"t{tenant}"))
                found.begins(*running[-1], 5 * replica)
            elif what == "end" and running:
                where, whose = running.pop(tenant % len(running))
                found.ends(where, whose, 5 * where)
            elif what == "take":
                told = sum(found.take().values(), told)
        assert sum(found.take().values(), told).engine_ns == busy


class TestKvPeak:
    def test_it_is_the_most_at_one_time_and_not_the_sum(self) -> None:
        found, _ = occupancy()
        found.begins("r1", "mine", 100)
        found.grows("mine", 20)
        found.begins("r2", "mine", 50)
        found.ends("r1", "mine", 120)
        found.begins("r1", "mine", 30)
        assert found.take()["mine"].kv_peak == 170
        found.grows("mine", -5)
        assert found.take()["mine"].kv_peak == 80, "of the time since, which began with what was in flight"

    def test_peaks_do_not_add_up(self) -> None:
        assert EngineUse(3, 100) + EngineUse(4, 70) == EngineUse(7, 100)


def test_the_load_of_another_changes_my_share_of_the_time_and_not_my_peak() -> None:
    def mine(others: int) -> EngineUse:
        found, clock = occupancy()
        found.begins("r1", "mine", 100)
        for _ in range(others):
            found.begins("r1", "theirs", 9_000)
        found.grows("mine", 11)
        found.grows("theirs", 500)
        clock.now += 1_000
        found.ends("r1", "mine", 111)
        return found.take()["mine"]

    assert (mine(0), mine(1), mine(9)) == (EngineUse(1_000, 111), EngineUse(500, 111), EngineUse(100, 111))


def test_lanes_report_who_runs_and_not_who_waits() -> None:
    async def ask(room: Room) -> None:
        clock = Clock()
        room.lanes.occupancy = Occupancy(clock)
        first = (await room.ask(100, "mine")).result()
        waiting = await room.ask(100, "theirs")
        clock.now += 10
        first.wrote(7)
        first.settle(40, 5)
        assert room.lanes.occupancy.take() == {"mine": EngineUse(10, 107)}
        first.leave()
        first.wrote(50)
        first.leave()
        second = await waiting
        clock.now += 4
        second.refund()
        second.leave()
        assert room.lanes.occupancy.take() == {"mine": EngineUse(0, 105), "theirs": EngineUse(4, 100)}
        assert room.lanes.occupancy.take() == {}

    within(1, ask, slots=1)


def test_a_pool_reports_prompt_and_answer_and_nothing_stays_in_flight() -> None:
    async def whole(server: StandIn) -> None:
        async def answer_of(pool: Any, tenant: str) -> list[Piece]:
            options = {"salt": "a" * 64, "request_id": "0" * 32, "max_tokens": 64, "deadline": soon()}
            return [piece async for piece in pool.serving(Party(tenant)).generate(prompt(), **options)]

        async with pool_of(server) as pool:
            server.faults = [hang_up]  # the attempt that fails is an attempt
            usage = finish_of(await answer_of(pool, "mine")).usage
            await asyncio.gather(*(answer_of(pool, "theirs") for _ in range(3)))
            found = pool.occupancy.take()
            assert set(found) == {"mine", "theirs"}
            assert all(use.engine_ns > 0 for use in found.values())
            read = prompt_tokens(prompt(), pool.count)
            assert read + usage.output <= found["mine"].kv_peak <= read + 2 * usage.output
            assert pool.occupancy.take() == {}

    run(1, whole)
