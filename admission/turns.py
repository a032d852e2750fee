"""Places at something that many share and that is not a generator: threads that embed, threads that search.

Service is the time that a place was held, charged when it is known; who received least is served next
(`admission.fair`). Batch work leaves one place free, so that a question never waits for a bulk job to end. Places that
share one machine slow each other down: while others are served or wait there, and for a second after them, `batch`
bounds what batch work begins.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from admission.fair import FairQueue, Party, Place
from tenancy.errors import InvalidInput, Unavailable

_MICROSECONDS: Final = 1_000_000
_BESIDE_S: Final = 1.0
"""Seconds for which batch work still holds back after others: whoever asks one question asks another."""
_LOOK_S: Final = 1.0
"""Seconds after which a thread that waits looks whether the loop has ended."""
_WEIGHT_OF_LAST: Final = 8
"""The expected time of a turn moves by one eighth towards that of each."""

_Granted = asyncio.Future[None]


class Turns:
    """`places` are held at one time, `queue` requests wait, and a client that waited for `patience_s` is overtaken by
    no newcomer. For one event loop.
    """

    def __init__(
        self,
        places: int,
        queue: int = 256,
        *,
        batch: int | None = None,
        patience_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if places < 1 or queue < 0:
            raise InvalidInput("turns need at least one place and no negative queue", item="turns")
        self._places = places
        self._queue = queue
        self._clock = clock
        self._fair: FairQueue[_Granted] = FairQueue(patience_s=patience_s, clock=clock)
        self._beside = max(1, places - 1 if batch is None else min(batch, places - 1))
        self._batch = 0
        self._seen = -math.inf
        self._expected = 1_000

    @property
    def waiting(self) -> int:
        return len(self._fair)

    @property
    def held(self) -> int:
        return self._fair.running

    @asynccontextmanager
    async def turn(self, party: Party, *, deadline: float | None = None) -> AsyncIterator[None]:
        """A place for the block. `deadline` is an instant of `time.monotonic()`.

        Raises `Unavailable` where the deadline passes, or too many wait and no client has more of them than this one's.
        """
        granted: _Granted = asyncio.get_running_loop().create_future()
        place = self._fair.enter(granted, party, self._expected)
        self._wake()
        self._turn_away()
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await granted
        except TimeoutError:
            self._leave(place)
            raise _busy("its turn did not come before the request's deadline") from None
        except BaseException:
            self._leave(place)
            raise
        began = self._clock()
        try:
            yield
        finally:
            took = round((self._clock() - began) * _MICROSECONDS)
            self._expected += (took - self._expected) // _WEIGHT_OF_LAST
            self._fair.used(place, took, 0)
            self._leave(place)

    def _wake(self) -> None:
        while self.held < self._places and (place := self._next()) is not None:
            if place.item.done():
                self._fair.leave(place)
                continue
            self._fair.begin(place)
            self._batch += place.party.work == "batch"
            place.item.set_result(None)

    def _next(self) -> Place[_Granted] | None:
        heads = list(self._fair.heads())
        if self.held > self._batch or any(place.party.work != "batch" for place in heads):
            self._seen = self._clock()
        others = self._clock() - self._seen < _BESIDE_S
        full = self._batch >= (self._beside if others else max(1, self._places - 1))
        return next((place for place in heads if not (full and place.party.work == "batch")), None)

    def _turn_away(self) -> None:
        while self.waiting > self._queue and (place := self._fair.last_of_longest()) is not None:
            self._fair.leave(place)
            if not place.item.done():
                place.item.set_exception(_busy("its work queue is full"))

    def _leave(self, place: Place[_Granted]) -> None:
        if place.state == "running":
            if place.party.work == "batch":
                self._batch -= 1
            else:
                self._seen = self._clock()
        self._fair.leave(place)
        if place.item.done() and not place.item.cancelled():
            place.item.exception()  # looked at: whoever was turned away and cancelled at once does not ask
        self._wake()


class FromThread:
    """Turns for work that runs in threads beside the event loop `loop` of `turns`.

    Where the loop has ended, nobody is left to wait for, and the work goes on.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns, party: Party) -> None:
        self._loop = loop
        self._turns = turns
        self._party = party

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The party's turn, waited for by this thread. Raises `Unavailable` where too many wait."""
        turn = self._turns.turn(self._party)
        held = self.do(turn.__aenter__())
        try:
            yield
        finally:
            if held:
                self.do(turn.__aexit__(None, None, None))

    def do(self, step: Coroutine[Any, Any, object]) -> bool:
        """Whether the loop did `step`."""
        try:
            done = asyncio.run_coroutine_threadsafe(step, self._loop)
        except RuntimeError:
            step.close()
            return False
        while True:
            try:
                done.result(_LOOK_S)
            except TimeoutError:
                if self._loop.is_closed():
                    return False
            except CancelledError:
                return False
            else:
                return True


class Desks:
    """The turns for work that needs a server, by the server's name: one that hangs holds up whoever needs it.

    `shared` are those for all other work.
    """

    def __init__(self, shared: Turns, desks: Mapping[str, Turns] | None = None) -> None:
        self.shared = shared
        self._desks = dict(desks or {})

    def of(self, name: str) -> Turns:
        """The turns at the server `name`; the shared ones for a name without any."""
        return self._desks.get(name, self.shared)


def _busy(why: str) -> Unavailable:
    return Unavailable(f"the service is busy: {why}", item="workers", remedy="try again shortly")
