"""Who goes to which replica, and who waits: slots, a lane for small prompts, a bound on prompts being read.

An engine reads a prompt (prefill) before its first token, and a long one holds up everybody whose first token is due.
So the tokens being read at one replica are bounded, and some slots are kept for small prompts. Those that wait are
served first come first served, large and small each; a small one overtakes an older large one in the kept slots only.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from tenancy.errors import Unavailable

_STREAM_TOKENS: Final = 200
"""A request whose answer streams weighs as much as so many tokens that are being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTerms:
    """Of each replica: `slots` requests at one time, `small_slots` of them kept for prompts of less than
    `small_tokens`; `prefill_tokens` are read at one time, more only for a single larger prompt. Of the whole pool:
    `tenant_slots` requests of one tenant (`None`: no bound), `queue` requests that wait.
    """

    slots: int = 32
    small_slots: int = 1
    small_tokens: int = 1_000
    prefill_tokens: int = 16_384
    tenant_slots: int | None = None
    queue: int = 256


@dataclass(slots=True)
class Load:
    """What one replica has from this process now; `prefill` are tokens of prompts whose first token has not come."""

    requests: int = 0
    large: int = 0
    prefill: int = 0
    large_reading: int = 0
    small_reading: int = 0

    @property
    def weight(self) -> int:
        return self.prefill + _STREAM_TOKENS * self.requests


class Seat(Protocol):
    """A replica as placement sees it."""

    @property
    def load(self) -> Load: ...

    @property
    def usable(self) -> bool: ...

    def begin(self) -> bool:
        """A request goes there; whether it is a trial."""
        ...

    def abandon(self) -> None:
        """The trial ended."""
        ...


S = TypeVar("S", bound=Seat)


@dataclass(slots=True, eq=False)
class Ticket(Generic[S]):
    """A request's place. `leave` it exactly when the request ends, however that is."""

    seat: S
    tokens: int
    small: bool
    tenant: str | None
    trial: bool
    _lanes: Lanes[S]
    _reading: bool = True
    _left: bool = False

    def begun(self) -> None:
        """The first token came: the prompt is read."""
        if self._reading:
            self._reading = False
            self.seat.load.prefill -= self.tokens
            self.seat.load.small_reading -= self.small
            self.seat.load.large_reading -= not self.small
            self._lanes.wake()

    def leave(self) -> None:
        if self._left:
            return
        self._left = True
        self.seat.load.requests -= 1
        self.seat.load.large -= not self.small
        if self.trial:
            self.seat.abandon()
        self._lanes._left(self)
        self.begun()
        self._lanes.wake()


@dataclass(slots=True, eq=False)
class _Ask(Generic[S]):
    tokens: int
    small: bool
    tenant: str | None
    avoid: Collection[S]
    granted: asyncio.Future[Ticket[S]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Lanes(Generic[S]):
    """The waiting room of one pool. `seats` gives the replicas of the moment."""

    def __init__(self, seats: Callable[[], Sequence[S]], terms: LaneTerms) -> None:
        self.terms = terms
        self._seats = seats
        self._waiting: list[_Ask[S]] = []
        self._tenants: Counter[str] = Counter()
        self._leaving: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(
        self, tokens: int, *, tenant: str | None = None, avoid: Collection[S] = (), deadline: float
    ) -> Ticket[S]:
        """A place for a prompt of `tokens`, at a replica that is not in `avoid` where another has room.

        `deadline` is an instant of `time.monotonic()`. Raises `Unavailable` where no replica is in reach, too many
        wait, or the deadline passes.
        """
        ask: _Ask[S] = _Ask(tokens, tokens < self.terms.small_tokens, tenant, tuple(avoid))
        self._waiting.append(ask)
        self.wake()
        try:
            if not ask.granted.done() and len(self._waiting) > self.terms.queue:
                raise _refusal("too many requests wait for the model")
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await ask.granted
        except TimeoutError:
            self._give_up(ask)
            raise _refusal("no replica had room for the request before its deadline") from None
        except BaseException:
            self._give_up(ask)
            raise

    async def idle(self, seat: S) -> None:
        """Return when nothing of ours runs at `seat`."""
        while seat.load.requests:
            left = asyncio.get_running_loop().create_future()
            self._leaving.append(left)
            await left

    def wake(self) -> None:
        """Seat whoever can be seated; called whenever a place, a replica or a tenant's share has become free."""
        if not any(seat.usable for seat in self._seats()):
            for ask in self._waiting:
                if not ask.granted.done():
                    ask.granted.set_exception(_refusal("no replica of the model is in reach"))
            self._waiting.clear()
            return
        blocked = {True: False, False: False}
        for ask in tuple(self._waiting):
            if self._at_bound(ask.tenant) or (blocked[ask.small]):
                continue
            seat = self._seat_for(ask, kept_only=ask.small and blocked[False])
            if seat is None:
                blocked[ask.small] = True
                continue
            self._waiting.remove(ask)
            if not ask.granted.done():
                ask.granted.set_result(self._ticket(ask, seat))

    def _ticket(self, ask: _Ask[S], seat: S) -> Ticket[S]:
        load = seat.load
        load.requests += 1
        load.large += not ask.small
        load.prefill += ask.tokens
        load.small_reading += ask.small
        load.large_reading += not ask.small
        if ask.tenant is not None:
            self._tenants[ask.tenant] += 1
        return Ticket(seat, ask.tokens, ask.small, ask.tenant, seat.begin(), self)

    def _seat_for(self, ask: _Ask[S], *, kept_only: bool) -> S | None:
        """The least loaded replica with room for `ask`; one that was tried before only where no other has."""
        free = [seat for seat in self._seats() if seat.usable and self._has_room(seat.load, ask, kept_only=kept_only)]
        return min(free, key=lambda seat: (seat in ask.avoid, seat.load.weight, random.random()), default=None)  # noqa: S311 (spread)

    def _has_room(self, load: Load, ask: _Ask[S], *, kept_only: bool) -> bool:
        terms = self.terms
        if load.requests >= terms.slots:
            return False
        within = load.prefill + ask.tokens <= terms.prefill_tokens
        if not ask.small:
            return (within or not load.large_reading) and load.large < max(1, terms.slots - terms.small_slots)
        if kept_only:
            return load.requests - load.large < terms.small_slots
        return within or load.small_reading < terms.small_slots

    def _at_bound(self, tenant: str | None) -> bool:
        bound = self.terms.tenant_slots
        return bound is not None and tenant is not None and self._tenants[tenant] >= bound

    def _left(self, ticket: Ticket[S]) -> None:
        leaving, self._leaving = self._leaving, []
        for left in leaving:
            if not left.done():
                left.set_result(None)
        if ticket.tenant is not None:
            self._tenants[ticket.tenant] -= 1
            if not self._tenants[ticket.tenant]:
                del self._tenants[ticket.tenant]

    def _give_up(self, ask: _Ask[S]) -> None:
        if ask in self._waiting:
            self._waiting.remove(ask)
        if ask.granted.done():
            if not ask.granted.cancelled() and ask.granted.exception() is None:
                ask.granted.result().leave()
        else:
            ask.granted.cancel()
        self.wake()


def _refusal(reason: str) -> Unavailable:
    return Unavailable(reason, item="generator", remedy="try again in a moment")
