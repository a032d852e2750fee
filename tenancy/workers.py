"""Blocking work (databases, FAISS, embedding) off the event loop, in bounded pools with bounded queues."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tenancy.errors import InvalidInput, Unavailable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Workers:
    """At most `threads` calls run and `queue` more wait; one more is refused rather than piled up.

    With `patience_s` a call that has not begun after so many seconds is refused too.
    """

    def __init__(self, threads: int, queue: int, name: str = "workers", *, patience_s: float | None = None) -> None:
        if threads < 1 or queue < 0:
            raise InvalidInput("a pool needs at least one thread and no negative queue", item=name)
        self._patience_s = patience_s
        self._places = threads + queue
        self._taken = 0
        self._closed = False
        self._lock = threading.Lock()
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call `function` in a thread, with the caller's context variables, and wait for its result.

        Cancelling the wait takes a queued call out of the queue; a call that has begun runs to its end and keeps
        its place until then. Raises `Unavailable` when the queue is full or too slow, or the pool closed.
        """
        context = contextvars.copy_context()
        future = self._submit(lambda: _guarded(context, lambda: function(*args, **kwargs)))
        # Of a call that has begun, `cancel` does nothing.
        patience = self._patience_s
        late = None if patience is None else asyncio.get_running_loop().call_later(patience, future.cancel)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.cancelled() and not (task is not None and task.cancelling()):
                raise (_closed() if self._closed else self._busy("the calls before this one take too long")) from None
            raise
        finally:
            if late is not None:
                late.cancel()

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
                raise self._busy("its work queue is full")
            self._taken += 1
            try:
                future = self._executor.submit(call)
            except BaseException:
                self._taken -= 1
                raise
        future.add_done_callback(self._leave)
        return future

    def _busy(self, why: str) -> Unavailable:
        return Unavailable(f"the service is busy: {why}", item="workers", remedy="try again shortly")

    def _leave(self, _future: Future[_T]) -> None:
        with self._lock:
            self._taken -= 1


class Lanes:
    """Threads of their own for what may have to wait for another server, by the server's name.

    A server that hangs holds up whoever needs it, on these threads; `shared`, which is for all other work, goes on.
    Threads are made when they are first needed.
    """

    def __init__(self, shared: Workers, lanes: Mapping[str, Workers] | None = None) -> None:
        self._shared = shared
        self._lanes = dict(lanes or {})

    def of(self, name: str) -> Workers:
        """The threads for work that needs the server `name`; the shared ones for a name without any."""
        return self._lanes.get(name, self._shared)

    def close(self) -> None:
        """As `Workers.close`, of all but the shared ones."""
        for lane in self._lanes.values():
            lane.close()


def _guarded(context: contextvars.Context, call: Callable[[], _T]) -> _T:
    try:
        return context.run(call)
    except StopIteration as stop:
        # A future cannot carry a StopIteration: its waiter would wait for ever.
        raise RuntimeError("a worker call raised StopIteration") from stop


def _closed() -> Unavailable:
    return Unavailable("the service is shutting down", item="workers", remedy="try again shortly")
