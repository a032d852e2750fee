"""Blocking work (databases, FAISS, embedding) off the event loop, in a bounded pool with a bounded queue."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tenancy.errors import InvalidInput, Unavailable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Workers:
    """At most `threads` calls run and `queue` more wait; one more is refused rather than piled up."""

    def __init__(self, threads: int, queue: int, name: str = "worker") -> None:
        if threads < 1 or queue < 0:
            raise InvalidInput("a pool needs at least one thread and no negative queue", item=name)
        self._places = threads + queue
        self._taken = 0
        self._closed = False
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call `function` in a thread, with the caller's context variables, and wait for its result.

        Cancelling the wait takes a queued call out of the queue; a call that has begun runs to its end and keeps
        its place until then. Raises `Unavailable` when the queue is full or the pool closed.
        """
        context = contextvars.copy_context()
        future = self._submit(lambda: _guarded(context, lambda: function(*args, **kwargs)))
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closed and future.cancelled() and not (task is not None and task.cancelling()):
                raise _closed() from None
            raise

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._taken

    def close(self) -> None:
        """Refuse new calls, drop queued ones (their callers get `Unavailable`), wait for those that run."""
        with self._lock:
            self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, call: Callable[[], _T]) -> Future[_T]:
        with self._lock:
            if self._closed:
                raise _closed()
            if self._taken >= self._places:
                raise Unavailable(
                    "the service is busy: its work queue is full", item="workers", remedy="try again shortly"
                )
            self._taken += 1
            try:
                future = self._executor.submit(call)
            except BaseException:
                self._taken -= 1
                raise
        future.add_done_callback(self._leave)
        return future

    def _leave(self, _future: Future[_T]) -> None:
        with self._lock:
            self._taken -= 1


def _guarded(context: contextvars.Context, call: Callable[[], _T]) -> _T:
    try:
        return context.run(call)
    except StopIteration as stop:
        # A future cannot carry a StopIteration: its waiter would wait for ever.
        raise RuntimeError("a worker call raised StopIteration") from stop


def _closed() -> Unavailable:
    return Unavailable("the service is shutting down", item="workers", remedy="try again shortly")
