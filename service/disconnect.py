"""Work that ends when its client goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from litestar.types import Receive

from tenancy.errors import StrongroomError

T = TypeVar("T")


class ClientGone(StrongroomError):
    """Nobody reads the response any more."""

    code = "client-gone"


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` in one task until it ends, or cancel it when the client disconnects (`ClientGone`).

    The request's body must have been read. A generator inside `work` is entered and closed in the same task.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
    if task.cancelled():
        raise ClientGone("the client closed the connection")
    return task.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
