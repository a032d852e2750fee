"""The bounded thread pool: back-pressure, cancellation, context, shutdown."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator

import pytest

from tenancy.errors import InvalidInput, Unavailable
from tenancy.workers import Lanes, Workers

LIMIT_S = 10.0
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")


@pytest.fixture
def workers() -> Iterator[Workers]:
    pool = Workers(threads=1, queue=1)
    yield pool
    pool.close()


class Gate:
    """A call that says when it began and runs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, value: int = 0) -> int:
        self.begun.set()
        assert self.go.wait(LIMIT_S)
        return value


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - a thread cannot set an asyncio.Event
            await asyncio.sleep(0)


def test_result_arguments_and_exceptions_come_back(workers: Workers) -> None:
    async def main() -> None:
        assert await workers.run(divmod, 7, 2) == (3, 1)
        assert await workers.run(int, "ff", base=16) == 255
        with pytest.raises(ZeroDivisionError):
            await workers.run(divmod, 1, 0)
        assert workers.busy == 0

    asyncio.run(main())


def test_runs_in_another_thread_with_the_callers_context(workers: Workers) -> None:
    def inside() -> tuple[str, int]:
        seen = variable.get()
        variable.set("changed in the thread")
        return seen, threading.get_ident()

    async def main() -> None:
        variable.set("request-7")
        seen, thread = await workers.run(inside)
        assert seen == "request-7"
        assert thread != threading.get_ident()
        assert variable.get() == "request-7"

    asyncio.run(main())


def test_full_queue_is_refused_and_room_is_given_again(workers: Workers) -> None:
    async def main() -> None:
        gate = Gate()
        tasks = [asyncio.create_task(workers.run(gate, n)) for n in range(2)]
        await until(lambda: workers.busy == 2 and gate.begun.is_set())
        with pytest.raises(Unavailable, match="queue is full"):
            await workers.run(int)
        gate.go.set()
        assert await asyncio.gather(*tasks) == [0, 1]
        await until(lambda: workers.busy == 0)
        assert await workers.run(int) == 0

    asyncio.run(main())


def test_cancelling_a_queued_call_frees_its_place_and_never_runs_it(workers: Workers) -> None:
    async def main() -> None:
        gate, ran = Gate(), threading.Event()
        first = asyncio.create_task(workers.run(gate))
        await until(gate.begun.is_set)
        queued = asyncio.create_task(workers.run(ran.set))
        await until(lambda: workers.busy == 2)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        assert workers.busy == 1
        replacement = asyncio.create_task(workers.run(int))
        gate.go.set()
        assert await replacement == 0
        assert await first == 0
        assert not ran.is_set()

    asyncio.run(main())


def test_cancelling_a_running_call_keeps_its_place_until_it_ends(workers: Workers) -> None:
    async def main() -> None:
        gate = Gate()
        task = asyncio.create_task(workers.run(gate))
        await until(gate.begun.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert workers.busy == 1
        gate.go.set()
        await until(lambda: workers.busy == 0)
        assert await workers.run(int) == 0

    asyncio.run(main())


def test_close_refuses_new_calls_and_tells_queued_callers() -> None:
    async def main() -> None:
        workers, gate = Workers(threads=1, queue=3), Gate()
        running = asyncio.create_task(workers.run(gate, 5))
        await until(gate.begun.is_set)
        queued = asyncio.create_task(workers.run(int))
        await until(lambda: workers.busy == 2)
        closing = asyncio.create_task(asyncio.to_thread(workers.close))
        with pytest.raises(Unavailable, match="shutting down"):
            await queued
        with pytest.raises(Unavailable, match="shutting down"):
            await workers.run(int)
        gate.go.set()
        assert await running == 5
        await closing
        assert workers.busy == 0

    asyncio.run(main())


def test_stop_iteration_does_not_hang_the_waiter(workers: Workers) -> None:
    async def main() -> None:
        empty: Iterator[int] = iter(())
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(workers.run(next, empty), LIMIT_S)
        assert workers.busy == 0

    asyncio.run(main())


@pytest.mark.parametrize(("threads", "queue"), [(0, 1), (-1, 1), (1, -1)])
def test_impossible_sizes_are_refused(threads: int, queue: int) -> None:
    with pytest.raises(InvalidInput):
        Workers(threads, queue)


def test_a_call_that_does_not_begin_in_time_is_refused_and_one_that_began_is_not() -> None:
    async def main() -> None:
        workers, gate, ran = Workers(1, 5, "slow", patience_s=0.05), Gate(), threading.Event()
        first = asyncio.create_task(workers.run(gate, 7))
        await until(gate.begun.is_set)
        with pytest.raises(Unavailable, match="take too long"):
            await workers.run(ran.set)
        assert not first.done()
        gate.go.set()
        assert await first == 7
        await until(lambda: workers.busy == 0)
        assert not ran.is_set()
        workers.close()

    asyncio.run(main())


def test_giving_up_a_call_that_waits_in_a_lane_is_no_refusal() -> None:
    async def main() -> None:
        workers, gate = Workers(1, 5, patience_s=LIMIT_S), Gate()
        first = asyncio.create_task(workers.run(gate))
        await until(gate.begun.is_set)
        queued = asyncio.create_task(workers.run(int))
        await until(lambda: workers.busy == 2)
        queued.cancel()
        with pytest.raises(asyncio.CancelledError):
            await queued
        gate.go.set()
        assert await first == 0
        workers.close()

    asyncio.run(main())


def test_what_hangs_in_a_lane_takes_no_thread_of_the_others(workers: Workers) -> None:
    async def main() -> None:
        lanes, gate = Lanes(workers, {"slow": Workers(2, 0, "slow")}), Gate()
        hanging = [asyncio.create_task(lanes.of("slow").run(gate)) for _ in range(2)]
        await until(gate.begun.is_set)
        with pytest.raises(Unavailable):
            await lanes.of("slow").run(int)
        assert lanes.of("faiss") is workers
        assert await lanes.of("faiss").run(int) == 0
        gate.go.set()
        assert await asyncio.gather(*hanging) == [0, 0]
        lanes.close()

    asyncio.run(main())
