"""Turns at shared threads: bounded, fair, and never all of them a bulk job's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from admission.fair import Party
from admission.turns import FromThread, Turns
from tenancy.errors import InvalidInput, Unavailable


class Desk:
    """Turns, on a clock that a test moves, and who has one in the order in which they came."""

    def __init__(self, places: int, queue: int = 256, batch: int | None = None) -> None:
        self.now = 0.0
        self.turns = Turns(places, queue, batch=batch, clock=lambda: self.now)
        self.served: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def ask(self, name: str, party: Party, deadline: float | None = None) -> asyncio.Task[None]:
        self.ends[name] = asyncio.Event()

        async def work() -> None:
            async with self.turns.turn(party, deadline=deadline):
                self.served.append(name)
                await self.ends[name].wait()

        task = asyncio.create_task(work())
        await settle()
        return task

    async def end(self, name: str, seconds: float = 0.01) -> None:
        self.now += seconds
        self.ends[name].set()
        await settle()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


def at(desk: Callable[[], Desk], test: Callable[[Desk], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(test(desk()), 20)

    asyncio.run(run())


def test_who_held_the_threads_longest_waits_longest() -> None:
    async def ask(desk: Desk) -> None:
        for number in range(3):
            await desk.ask(f"agent {number}", Party("acme", "agent"))
        await desk.ask("colleague", Party("acme", "ana"))
        await desk.ask("other tenant", Party("globex", "bo"))
        for _ in range(5):
            await desk.end(desk.served[-1], 0.5)
        assert desk.served == ["agent 0", "other tenant", "colleague", "agent 1", "agent 2"]
        assert (desk.turns.held, desk.turns.waiting) == (0, 0)

    at(lambda: Desk(1), ask)


def test_time_is_charged_and_not_calls() -> None:
    async def ask(desk: Desk) -> None:
        for number in range(4):
            await desk.ask(f"slow {number}", Party("slow"))
            await desk.ask(f"quick {number}", Party("quick"))
        for _ in range(6):
            name = desk.served[-1]
            await desk.end(name, 3.0 if name.startswith("slow") else 0.01)
        assert desk.served == ["slow 0", "quick 0", "quick 1", "quick 2", "quick 3", "slow 1", "slow 2"]
        await desk.end("slow 2")
        await desk.end("slow 3")

    at(lambda: Desk(1), ask)


def test_a_bulk_job_leaves_a_place_free_and_is_not_starved() -> None:
    async def ask(desk: Desk) -> None:
        bulk = Party("acme", "loader", work="batch")
        for number in range(4):
            await desk.ask(f"bulk {number}", bulk)
        assert desk.served == ["bulk 0", "bulk 1"]
        await desk.ask("question", Party("acme", "ana"))
        assert desk.served[-1] == "question", "it waits for no bulk job"
        await desk.end("bulk 0")
        assert desk.served[-1] == "bulk 2"
        for name in ("question", "bulk 1", "bulk 2", "bulk 3"):
            await desk.end(name)
        assert (desk.turns.held, desk.turns.waiting) == (0, 0)

    at(lambda: Desk(3), ask)


def test_a_full_queue_turns_away_whoever_has_most_in_it() -> None:
    async def ask(desk: Desk) -> None:
        crowd = [await desk.ask(f"crowd {number}", Party("crowd")) for number in range(3)]
        guest = await desk.ask("guest", Party("guest"))
        with pytest.raises(Unavailable, match="full"):
            await crowd[-1]
        assert not guest.done()
        for name in ("crowd 0", "guest", "crowd 1"):
            await desk.end(name)
        assert desk.served == ["crowd 0", "guest", "crowd 1"]

    at(lambda: Desk(1, queue=2), ask)


def test_whoever_goes_away_or_is_late_leaves_no_place_taken() -> None:
    async def ask(desk: Desk) -> None:
        holder = await desk.ask("holder", Party("a"))
        late = await desk.ask("late", Party("b"), time.monotonic() - 1)
        with pytest.raises(Unavailable, match="deadline"):
            await late
        gone = await desk.ask("gone", Party("b"))
        gone.cancel()
        holder.cancel()
        await asyncio.gather(gone, holder, return_exceptions=True)
        assert (desk.turns.held, desk.turns.waiting) == (0, 0)
        await desk.ask("next", Party("c"))
        assert desk.served[-1] == "next"
        await desk.end("next")

    at(lambda: Desk(1), ask)


def test_turns_without_a_place_are_refused() -> None:
    with pytest.raises(InvalidInput):
        Turns(0)


BULK = Party("acme", "loader", work="batch")


def test_beside_others_bulk_work_begins_no_more_than_its_share_and_alone_all_there_is() -> None:
    async def ask(desk: Desk) -> None:
        for number in range(4):
            await desk.ask(f"bulk {number}", BULK)
        # Of four places one stays free for whoever does not wait for a bulk job to end.
        assert desk.served == ["bulk 0", "bulk 1", "bulk 2"]
        await desk.ask("question", Party("globex", "bo"))
        assert desk.served[3:] == ["question"]
        await desk.end("bulk 0")
        await desk.end("bulk 1")
        assert desk.served[4:] == []
        await desk.end("bulk 2")
        assert desk.served[4:] == ["bulk 3"]
        await desk.ask("bulk 4", BULK)
        assert desk.served[5:] == []
        await desk.end("question")
        assert desk.served[5:] == []
        desk.now += 1
        await desk.ask("bulk 5", BULK)
        assert sorted(desk.served[5:]) == ["bulk 4", "bulk 5"]
        for name in ("bulk 3", "bulk 4", "bulk 5"):
            await desk.end(name)
        assert desk.turns.held == desk.turns.waiting == 0

    at(lambda: Desk(4, batch=1), ask)


def test_a_thread_waits_for_its_turn_in_the_loop() -> None:
    async def main() -> None:
        turns, inside, steps = Turns(1), threading.Event(), []
        bulk = FromThread(asyncio.get_running_loop(), turns, BULK)

        def load() -> None:
            for number in range(2):
                with bulk.turn():
                    steps.append(number)
                    inside.set()

        async with turns.turn(Party("globex", "bo")):
            working = asyncio.get_running_loop().run_in_executor(None, load)
            while not turns.waiting:  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0)
            assert (steps, inside.is_set()) == ([], False)
        await asyncio.wait_for(working, 20)
        assert (steps, turns.held, turns.waiting) == ([0, 1], 0, 0)

    asyncio.run(main())


def test_of_an_error_in_a_turn_nothing_is_held() -> None:
    async def main() -> None:
        turns = Turns(1, queue=0)
        bulk = FromThread(asyncio.get_running_loop(), turns, BULK)

        def fail() -> None:
            with bulk.turn():
                raise ValueError("broken")

        def enter() -> None:
            with bulk.turn():
                pass

        run = asyncio.get_running_loop().run_in_executor
        with pytest.raises(ValueError, match="broken"):
            await run(None, fail)
        assert turns.held == 0
        async with turns.turn(Party("globex", "bo")):
            with pytest.raises(Unavailable):
                await run(None, enter)

    asyncio.run(main())


def test_where_the_loop_has_ended_work_goes_on() -> None:
    async def main() -> FromThread:
        return FromThread(asyncio.get_running_loop(), Turns(1), BULK)

    bulk = asyncio.run(main())
    with bulk.turn():
        pass
