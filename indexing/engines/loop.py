"""One thread with an event loop for the asynchronous client of an engine, called from any number of threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Final, TypeVar

from tenancy.errors import EngineUnavailable

T = TypeVar("T")

_GRACE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 5.0


class EngineLoop:
    """Runs coroutines on its own thread, at most `concurrency` at a time.

    A slow server holds `concurrency` callers and no more: the others wait `patience` seconds for a place and are then
    refused, so that the threads which serve other engines and other tenants stay free.
    """

    def __init__(self, name: str, *, concurrency: int = 16, patience: float = 0.5) -> None:
        self._name = name
        self._patience = patience
        self._places = threading.BoundedSemaphore(concurrency)
        self._closed = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"engine-{name}", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Awaitable[T]], timeout: float) -> T:
        """What `work` gives; it is called, and awaited, on the loop's thread.

        Raises what `work` raises; `Unavailable` where it took longer than `timeout` seconds (then it is cancelled),
        where no place came free, or after `close`.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("an engine's loop cannot wait for itself")
        if not self._places.acquire(timeout=self._patience):
            raise self._unavailable("has as many calls under way as it may have")
        try:
            future = self._submit(work, timeout)
            try:
                # The loop keeps the time; the grace is for a loop that itself hangs in a client's code.
                return future.result(timeout + _GRACE_SECONDS)
            except (TimeoutError, CancelledError) as error:
                future.cancel()
                raise self._unavailable(f"gave no answer within {timeout:g} s") from error
        finally:
            self._places.release()

    def close(self) -> None:
        """Cancel what runs and end the thread; again is harmless."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _submit(self, work: Callable[[], Awaitable[T]], timeout: float) -> Future[T]:
        with self._lock:
            if self._closed:
                raise self._unavailable("is closed")
            return asyncio.run_coroutine_threadsafe(_within(work, timeout), self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            running = asyncio.all_tasks(self._loop)
            for task in running:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _unavailable(self, reason: str) -> EngineUnavailable:
        return EngineUnavailable(
            f"the vector engine {reason}", item=self._name, remedy="try again; if it stays so, look at the engine"
        )


async def _within(work: Callable[[], Awaitable[T]], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        return await work()
