"""The event-loop thread of an engine: bounded, cancelled in time, and closed under its callers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from indexing.engines.loop import EngineLoop
from tenancy.errors import Unavailable


def test_results_and_errors_of_the_work_come_back() -> None:
    loop = EngineLoop("one")

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    async def fail() -> None:
        raise KeyError("mine")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda number: loop.call(lambda: double(number), 5), range(50))) == list(range(0, 100, 2))
    with pytest.raises(KeyError, match="mine"):
        loop.call(fail, 5)
    loop.close()


def test_a_slow_server_holds_as_many_callers_as_it_may_and_no_more() -> None:
    loop = EngineLoop("slow", concurrency=2, patience=0.05)
    started = threading.Semaphore(0)
    release = asyncio.Event()

    async def wait() -> str:
        started.release()
        await release.wait()
        return "done"

    async def let_go() -> None:
        release.set()

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(loop.call, wait, 30) for _ in range(2)]
        for _ in running:
            assert started.acquire(timeout=10)
        with pytest.raises(Unavailable, match="as many calls under way") as caught:
            loop.call(wait, 30)
        assert caught.value.remedy
        loop._loop.call_soon_threadsafe(release.set)
        assert [one.result() for one in running] == ["done", "done"]
    assert loop.call(wait, 30) == "done"
    loop.close()


def test_work_that_takes_too_long_is_cancelled_and_frees_its_place() -> None:
    loop = EngineLoop("late", concurrency=1)
    cancelled = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    for _ in range(3):
        with pytest.raises(Unavailable, match=r"within 0\.05 s"):
            loop.call(forever, 0.05)
    assert cancelled.wait(10)
    loop.close()


def test_closing_ends_those_who_wait_and_refuses_those_who_come() -> None:
    loop = EngineLoop("closing")
    started = threading.Event()

    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(loop.call, forever, 60)
        assert started.wait(10)
        loop.close()
        with pytest.raises(Unavailable):
            waiting.result(10)
    with pytest.raises(Unavailable, match="is closed"):
        loop.call(forever, 60)
    loop.close()


def test_the_loop_does_not_wait_for_itself() -> None:
    loop = EngineLoop("itself")

    async def inner() -> None:
        with pytest.raises(RuntimeError, match="wait for itself"):
            loop.call(inner, 1)

    loop.call(inner, 5)
    loop.close()
