"""Who goes to which replica, and who waits: slots, a lane for small prompts, a bound on prompts being read.

An engine reads a prompt (prefill) before its first token, and a long one holds up everybody whose first token is due.
So the tokens being read at one replica are bounded, and some slots are kept for small prompts. Those that wait are
served in the order of `admission.fair`: whoever received least. Nobody passes a prompt that waits for room, but for
small ones a large one, in the kept slots only, and for guests, and both only while their client is not far ahead. No
slot stays empty while somebody waits for whom it has room.

A guest is a tenant that has less than its part of the slots of a replica. Running work is not interrupted, so the
order alone does not spare it the wait until one of a busy tenant's answers ends, however little it received: some slots
are kept for guests.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, Protocol, TypeVar

from admission.fair import FairQueue, Party, Place
from admission.pace import Key, Pace
from generation.occupancy import Occupancy
from generation.pieces import Pauses
from tenancy.errors import Unavailable

_STREAM_TOKENS: Final = 200
"""A request whose answer streams weighs as much as so many tokens that are being read."""
_NOBODY: Final = Party("")
Visit = Literal["allowed", "passing", "refused"]
"""Whether a request may have what is kept for guests, or can have a place as a guest only, past one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTerms:
    """Of each replica: `slots` requests at one time, `small_slots` of them kept for prompts of less than
    `small_tokens`, and `guest_slots` for guests; `prefill_tokens` are read at one time, more only for a single larger
    prompt, and for a small one of each guest. Of the whole pool: `tenant_slots` requests of one tenant (`None`: no
    bound), `queue` requests that wait. A client that waited for `patience_s` is overtaken by no newcomer. A small
    prompt passes a large one that waits while its client's service is at most `lead` tokens over that of the other's,
    and a guest another request while it is at most `small_tokens` over.
    """

    slots: int = 32
    small_slots: int = 1
    small_tokens: int = 1_000
    guest_slots: int = 0
    prefill_tokens: int = 16_384
    tenant_slots: int | None = None
    queue: int = 256
    patience_s: float = 5.0
    lead: int = 8_192
    pace_slots: int | None = None
    pace_s: float = 30.0
    piece_tokens: int | None = None
    piece_pause: int = 16


@dataclass(slots=True)
class Load:
    """What one replica has from this process now; `prefill` are tokens of prompts whose first token has not come.
    `held` are requests, and `reading` those that are read, by tenant and by user of a tenant.
    """

    requests: int = 0
    large: int = 0
    prefill: int = 0
    large_reading: int = 0
    small_reading: int = 0
    held: Counter[Key] = field(default_factory=Counter)
    reading: Counter[Key] = field(default_factory=Counter)

    @property
    def weight(self) -> int:
        return self.prefill + _STREAM_TOKENS * self.requests

    @property
    def streaming(self) -> int:
        return self.requests - self.large_reading - self.small_reading


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
    _place: Place[_Ask[S]]
    _reading: bool = True
    _left: bool = False

    def begun(self) -> None:
        """The first token came: the prompt is read."""
        if self._reading:
            self._reading = False
            self.seat.load.prefill -= self.tokens
            self.seat.load.small_reading -= self.small
            self.seat.load.large_reading -= not self.small
            if self.tenant is not None:
                _less(self.seat.load.reading, *_keys(self._place.party))
            self._lanes.wake()

    def wrote(self, tokens: int) -> None:
        """So many tokens of the answer came since the last call."""
        self.settle(self._place.read, self._place.written + tokens)

    def settle(self, read: int, written: int) -> None:
        """The engine's own count: tokens of the prompt that it read, without those it had in memory, and written."""
        before = self._place.written
        self._lanes.fair.used(self._place, read, written)
        self._lanes.occupancy.grows(self._place.party.tenant, self._place.written - before)
        self._lanes.pauses.wrote(self.seat, self._place.written - before)

    def refund(self) -> None:
        """The engine failed: of a prompt without a first token nothing is charged."""
        if self._reading:
            self.settle(0, 0)

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
        self._lanes.pauses.wrote(self.seat, 0)
        self._lanes.wake()


@dataclass(slots=True, eq=False)
class _Ask(Generic[S]):
    tokens: int
    small: bool
    party: Party
    avoid: Collection[S]
    granted: asyncio.Future[Ticket[S]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def tenant(self) -> str | None:
        return self.party.tenant or None


class Lanes(Generic[S]):
    """The waiting room of one pool. `seats` gives the replicas of the moment."""

    def __init__(self, seats: Callable[[], Sequence[S]], terms: LaneTerms) -> None:
        self.terms = terms
        self.pace = Pace(terms.pace_s)
        self.fair: FairQueue[_Ask[S]] = FairQueue(patience_s=terms.patience_s, pace=self.pace)
        self.occupancy = Occupancy()
        self.pauses: Pauses[S] = Pauses(lambda seat: seat.load.streaming)
        self._seats = seats
        self._waiting: dict[_Ask[S], Place[_Ask[S]]] = {}
        self._tenants: Counter[str] = Counter()
        self._weights: dict[str, float] = {}
        self._paced: frozenset[Key] = frozenset()
        self._leaving: list[asyncio.Future[None]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(
        self,
        tokens: int,
        *,
        party: Party | None = None,
        avoid: Collection[S] = (),
        piece: bool = False,
        deadline: float,
    ) -> Ticket[S]:
        """A place for a prompt of `tokens`, at a replica that is not in `avoid` where another has room.

        `deadline` is an instant of `time.monotonic()`. Raises `Unavailable` where no replica is in reach, too many
        wait and no client has more of them than this one's, or the deadline passes.
        """
        who = party or _NOBODY
        small = tokens < self.terms.small_tokens and who.work == "interactive"
        ask: _Ask[S] = _Ask(tokens, small, who, tuple(avoid))
        self._waiting[ask] = self.fair.enter(ask, who, tokens, small=small, piece=piece)
        self.wake()
        self._turn_away()
        try:
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
            for ask, place in self._waiting.items():
                self.fair.leave(place)
                if not ask.granted.done():
                    ask.granted.set_exception(_refusal("no replica of the model is in reach"))
            self._waiting.clear()
            return
        self.fair.patience_s = self.terms.patience_s
        for tenant in tuple(self._tenants):
            self._look_at_bound(tenant)
        self._look_at_pace()
        while (found := self._next()) is not None:
            ask, seat = found
            place = self._waiting.pop(ask)
            if ask.granted.done():
                self.fair.leave(place)
            else:
                self.fair.begin(place)
                ask.granted.set_result(self._ticket(ask, place, seat))
            self._look_at_pace()

    def _next(self) -> tuple[_Ask[S], S] | None:
        """Whoever is to be seated next, and where. One without room stops those of its kind that come after it, but
        for guests; and who passes another is not far ahead of it.
        """
        stopped: dict[bool, Place[_Ask[S]]] = {}
        for place in self.fair.heads():
            ask, large, ahead = place.item, stopped.get(False), stopped.get(place.item.small)
            if ask.small and large is not None and self.fair.lead(place, large) > self.terms.lead:
                continue
            guest = all(self.fair.lead(place, one) <= self.terms.small_tokens for one in stopped.values())
            if ahead is not None and not guest:
                continue
            visit: Visit = "refused" if not guest else "allowed" if ahead is None else "passing"
            seat = self._seat_for(ask, visit, kept_only=ask.small and large is not None)
            if seat is not None:
                return ask, seat
            stopped.setdefault(ask.small, place)
            if len(stopped) == 2 and not self.terms.guest_slots:
                return None
        return None

    def _turn_away(self) -> None:
        """Where too many wait, the newest request of whoever has most of them gives way."""
        while self.waiting > self.terms.queue and (place := self.fair.last_of_longest()) is not None:
            ask = place.item
            self.fair.leave(self._waiting.pop(ask))
            if not ask.granted.done():
                ask.granted.set_exception(_refusal("too many requests wait for the model"))

    def _ticket(self, ask: _Ask[S], place: Place[_Ask[S]], seat: S) -> Ticket[S]:
        load = seat.load
        self.occupancy.begins(seat, ask.party.tenant, ask.tokens)
        load.requests += 1
        load.large += not ask.small
        load.prefill += ask.tokens
        load.small_reading += ask.small
        load.large_reading += not ask.small
        if ask.tenant is not None:
            load.held.update(_keys(ask.party))
            load.reading.update(_keys(ask.party))
            self._weights[ask.tenant] = ask.party.weight
            self._tenants[ask.tenant] += 1
            self._look_at_bound(ask.tenant)
        return Ticket(seat, ask.tokens, ask.small, ask.tenant, seat.begin(), self, place)

    def _seat_for(self, ask: _Ask[S], visit: Visit, *, kept_only: bool) -> S | None:
        """The least loaded replica with room for `ask`; one that was tried before only where no other has."""
        free = [seat for seat in self._seats() if seat.usable and self._has_room(seat.load, ask, visit, kept_only)]
        return min(free, key=lambda seat: (seat in ask.avoid, seat.load.weight, random.random()), default=None)  # noqa: S311 (spread)

    def _guest(self, load: Load, ask: _Ask[S]) -> Key | None:
        """Its tenant, where that has less there than its part, among several that have or want any; of one tenant's
        users likewise, where no other tenant is there.
        """
        party = ask.party
        if not self.terms.guest_slots or party.work == "batch" or not party.tenant:
            return None
        others = [other.party for other in self._waiting]
        weights = {other.tenant: other.weight for other in others}
        weights |= {key[0]: self._weights[key[0]] for key in load.held}
        weights[party.tenant] = party.weight
        if len(weights) > 1:
            part = self.terms.slots * party.weight / sum(weights.values())
            return (party.tenant,) if load.held[(party.tenant,)] < part else None
        users = {other.user for other in others} | {key[1] for key in load.held if len(key) > 1} | {party.user}
        mine = (party.tenant, party.user)
        return mine if len(users) > 1 and load.held[mine] < self.terms.slots / len(users) else None

    def _has_room(self, load: Load, ask: _Ask[S], visit: Visit, kept_only: bool) -> bool:
        terms = self.terms
        guest = None if visit == "refused" else self._guest(load, ask)
        if visit == "passing" and guest is None:
            return False
        if load.requests >= (terms.slots if guest is not None else max(1, terms.slots - terms.guest_slots)):
            return False
        within = load.prefill + ask.tokens <= terms.prefill_tokens
        if not ask.small:
            return (within or not load.large_reading) and load.large < max(1, terms.slots - terms.small_slots)
        if guest is not None and not load.reading[guest] and (len(guest) == 1 or load.requests - load.streaming < 2):
            return True
        if kept_only:
            return load.requests - load.large < terms.small_slots
        return within or load.small_reading < terms.small_slots

    def _look_at_bound(self, tenant: str) -> None:
        bound = self.terms.tenant_slots
        if (bound is not None and self._tenants[tenant] >= bound) or (tenant,) in self._paced:
            self.fair.hold(tenant)
        else:
            self.fair.release(tenant)

    def _look_at_pace(self) -> None:
        """Hold those that are ahead where they have as many slots as they may while others are there."""
        before, self._paced = self._paced, frozenset()
        if self.terms.pace_slots is not None and self._waiting:
            replicas = sum(seat.usable for seat in self._seats())
            self.pace.fade_s = self.terms.pace_s
            self._paced = self.pace.held(replicas * self.terms.slots, replicas * self.terms.pace_slots)
        for key in before ^ self._paced:
            if len(key) == 1:
                self._look_at_bound(key[0])
            elif key in self._paced:
                self.fair.hold(*key)
            else:
                self.fair.release(*key)

    def _left(self, ticket: Ticket[S]) -> None:
        leaving, self._leaving = self._leaving, []
        for left in leaving:
            if not left.done():
                left.set_result(None)
        place = ticket._place
        self.fair.leave(place)
        self.occupancy.ends(ticket.seat, place.party.tenant, ticket.tokens + place.written)
        if ticket.tenant is not None:
            _less(ticket.seat.load.held, *_keys(place.party))
            self._tenants[ticket.tenant] -= 1
            self._look_at_bound(ticket.tenant)
            if not self._tenants[ticket.tenant]:
                del self._tenants[ticket.tenant], self._weights[ticket.tenant]

    def _give_up(self, ask: _Ask[S]) -> None:
        if ask in self._waiting:
            self.fair.leave(self._waiting.pop(ask))
        if ask.granted.done():
            if not ask.granted.cancelled() and ask.granted.exception() is None:
                ask.granted.result().leave()
        else:
            ask.granted.cancel()
        self.wake()


def _keys(party: Party) -> tuple[Key, Key]:
    return (party.tenant,), (party.tenant, party.user)


def _less(counts: Counter[Key], *keys: Key) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


def _refusal(reason: str) -> Unavailable:
    return Unavailable(reason, item="generator", remedy="try again in a moment")
