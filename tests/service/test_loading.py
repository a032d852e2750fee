"""Documents over HTTP wait for each other, never questions for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from service.loading import WAITING, Loading
from tenancy.errors import LimitExceeded

LIMIT_S = 10.0


@pytest.fixture
def loading() -> Iterator[Loading]:
    found = Loading(2)
    yield found
    found.close()


def test_one_document_of_a_tenant_at_a_time_and_others_beside_it(loading: Loading) -> None:
    go, order = threading.Event(), []

    def slow() -> None:
        assert go.wait(LIMIT_S)
        order.append("slow")

    async def main() -> None:
        first = asyncio.create_task(loading.run("acme", slow))
        second = asyncio.create_task(loading.run("acme", order.append, "second"))
        await asyncio.sleep(0)
        await loading.run("globex", order.append, "globex")
        go.set()
        await asyncio.gather(first, second)

    asyncio.run(main())
    assert order == ["globex", "slow", "second"]


def test_a_full_line_is_refused_and_others_are_not(loading: Loading) -> None:
    go = threading.Event()

    async def main() -> None:
        waiting = [asyncio.create_task(loading.run("acme", go.wait, LIMIT_S)) for _ in range(WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded) as refused:
            await loading.run("acme", str)
        assert (refused.value.scope, refused.value.limit) == ("tenant", WAITING)
        assert await loading.run("globex", int) == 0
        go.set()
        assert all(await asyncio.gather(*waiting))
        assert await loading.run("acme", int) == 0

    asyncio.run(main())


def test_whoever_gives_up_waiting_leaves_the_line(loading: Loading) -> None:
    go = threading.Event()

    async def main() -> None:
        first = asyncio.create_task(loading.run("acme", go.wait, LIMIT_S))
        second = asyncio.create_task(loading.run("acme", str))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        go.set()
        assert await first
        with pytest.raises(ZeroDivisionError):
            await loading.run("acme", divmod, 1, 0)
        assert await loading.run("acme", int) == 0

    asyncio.run(main())
