"""Requests that wait for room under a limit instead of being refused, where their tenant's contract says so.

They are tried in the order of `admission.fair`: whoever received least first, those of one user as they came, and batch
work one time of nine while people wait. A request that does not fit is passed by other users', so that room is used,
until it has waited for `patience_s`; from then on nobody passes it at the scope that refuses it, or small requests
without end would keep a large one waiting for ever. Nothing is held while a request waits, or once it has left.

Where several servers count at one store, each has an order of its own, and looks for room that another gave back every
second.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from admission.counters import Ask, Granted, Refused
from admission.fair import FairQueue, Party, Place
from admission.lease import finished
from admission.limits import BOUNDS, Bound, Draw
from admission.scopes import DEPLOYMENT, Scope

FULL: Final = "queue"
"""The bound of a refusal where too many wait."""
_LOOK_S: Final = 1.0
_LEAST_S: Final = 0.01
_ALIKE: Final = frozenset({"concurrent", "requests_per_minute"})
"""Bounds of which every request needs one: where one was refused, so is every other."""
_BOUNDS: Final = {bound.name: bound for bound in BOUNDS}
_REFUSALS: Final = 16
"""Of one tenant in a pass: each is a step of the counters, for which everybody waits."""
_LONG: Final = frozenset(bound.name for bound in BOUNDS if bound.span in {"month", "life"})

Take = Callable[[Ask], Coroutine[Any, Any, Granted | Refused]]
GiveBack = Callable[[str], Coroutine[Any, Any, object]]


@dataclass(slots=True, eq=False)
class _Waiting:
    ask: Ask
    scopes: frozenset[Scope]
    wait_s: float
    since: float
    refused: Refused | None = None
    asked: bool = False
    """Whether its lease is being asked for now: the answer to another would be taken for one that nobody needs."""
    decided: asyncio.Future[Granted | Refused] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True)
class _Pass:
    """What one pass over those that wait has learned, so that it asks the counters about few of many that wait for one
    scope: whoever comes waits for the pass. Of `closed` scopes nobody is tried any more.

    A request that needs as much of a bound as one that was just refused there is refused without asking. Newcomers are
    asked about once, since waiting may help them not at all.
    """

    tried: set[Place[_Waiting]] = field(default_factory=set)
    closed: set[Scope] = field(default_factory=set)
    pauses: list[float] = field(default_factory=lambda: [_LOOK_S])
    _least: dict[tuple[Scope, str], Refused] = field(default_factory=dict)
    _refusals: Counter[str] = field(default_factory=Counter)

    def learn(self, place: Place[_Waiting], refused: Refused) -> None:
        self.pauses.append(refused.retry_after)
        self._refusals[place.party.tenant] += 1
        known = self._least.get((refused.scope, refused.bound))
        if refused.bound in _BOUNDS and (known is None or refused.need < known.need):
            self._least[refused.scope, refused.bound] = refused

    def foreseen(self, waiting: _Waiting) -> Refused | None:
        """The refusal that certainly refuses this one as well."""
        if waiting.refused is None:
            return None
        found = (
            refused
            for (scope, name), refused in self._least.items()
            for draw in waiting.ask.draws
            if draw.scope == scope and _needs_as_much(waiting.ask, draw, _BOUNDS[name], refused)
        )
        return next(found, None)

    def is_enough(self, place: Place[_Waiting]) -> bool:
        """Whether so many of this tenant were refused that its others have to wait for the next pass."""
        return place.item.refused is not None and self._refusals[place.party.tenant] >= _REFUSALS


@dataclass(slots=True, eq=False)
class Entry:
    """How one request came in: what was `found`, after `waited_s` seconds. `leave` it when the request ends."""

    found: Granted | Refused
    waited_s: float
    _room: WaitingRoom
    _place: Place[_Waiting]

    def leave(self, read: int, written: int) -> None:
        """The request has ended, having used so many tokens."""
        self._room._ended(self._place, read, written)


class WaitingRoom:
    """`take` is that of the counters, `give_back` ends a lease. At most `most` wait: of more, the newest request of
    whoever has most of them gives way. For one event loop at a time.
    """

    def __init__(
        self,
        take: Take,
        give_back: GiveBack,
        *,
        most: int = 256,
        patience_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._take = take
        self._give_back = give_back
        self._most = most
        self._patience_s = patience_s
        self._clock = clock
        self._fair: FairQueue[_Waiting] = FairQueue(patience_s=patience_s, clock=clock)
        self._scopes: Counter[Scope] = Counter()
        self._full: dict[Scope, Refused] = {}
        self._woken = asyncio.Event()
        self._passing = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._fair)

    def waits_for(self, draws: Iterable[Draw]) -> bool:
        """Whether somebody waits for one of these scopes: whoever comes now is not before them."""
        return bool(self._scopes) and any(draw.scope in self._scopes for draw in draws)

    def wake(self) -> None:
        """Room may have come."""
        if self._scopes:
            self._woken.set()

    async def enter(self, ask: Ask, party: Party, wait_s: float) -> Entry:
        """Admit `ask` when it is `party`'s turn and there is room; `wait_s` 0 waits for neither. A refusal, also that
        of a longest wait which has passed, has taken nothing. Raises what the counters raise.
        """
        begun = self._clock()
        alone = not self.waits_for(ask.draws)
        waiting = _Waiting(ask, frozenset(draw.scope for draw in ask.draws), wait_s, begun)
        place = self._fair.enter(waiting, party, ask.need.input)
        self._scopes.update(waiting.scopes)
        try:
            found = await (self._first(place) if alone else self._in_turn(place))
        except BaseException:
            await self._given_up(place)
            raise
        if isinstance(found, Refused):
            self._out(place)
        return Entry(found, self._clock() - begun, self, place)

    async def _first(self, place: Place[_Waiting]) -> Granted | Refused:
        """Nobody waits for the same: ask at once."""
        waiting = place.item
        await self._try(place)
        return await self._decision(place) if not waiting.decided.done() else waiting.decided.result()

    async def _in_turn(self, place: Place[_Waiting]) -> Granted | Refused:
        # Whoever does not wait takes no place from those who do.
        if place.item.wait_s:
            self._turn_away()
        # Others' requests are tried too, whatever becomes of this one meanwhile.
        await finished(self._pass())
        return await self._decision(place)

    async def _decision(self, place: Place[_Waiting]) -> Granted | Refused:
        waiting = place.item
        if waiting.wait_s:
            self._turn_away()
            self._look()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, waiting.since + waiting.wait_s - self._clock())):
                return await asyncio.shield(waiting.decided)
        if waiting.decided.done():
            return waiting.decided.result()
        return self._refusal(waiting)

    def _refusal(self, waiting: _Waiting) -> Refused:
        """Why it still waits: what refused it, or whoever waits before it at one of its scopes."""
        others = (self._full[scope] for scope in waiting.scopes if scope in self._full)
        return waiting.refused or next(others, _too_many(self._most))

    def _look(self) -> None:
        """See to it that somebody looks for room while anybody waits."""
        if self._looking is None or self._looking.done():
            self._woken = asyncio.Event()
            self._looking = asyncio.create_task(self._keep_looking())
        self.wake()

    async def _keep_looking(self) -> None:
        while len(self):
            self._woken.clear()
            pause = await self._pass()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()

    async def _pass(self) -> float:
        """Try whoever waits, in order; returns the seconds until it is worth while again."""
        async with self._passing:
            seen = _Pass()
            while await self._next(seen):
                pass
            return max(_LEAST_S, min(seen.pauses))

    async def _next(self, seen: _Pass) -> bool:
        """Try those not yet tried until one leaves the queue, which changes the order. Returns whether one left."""
        for place in self._fair.heads():
            waiting = place.item
            passed = waiting.asked or place in seen.tried or place.state != "waiting"
            if passed or not seen.closed.isdisjoint(waiting.scopes):
                continue
            seen.tried.add(place)
            refused = seen.foreseen(waiting)
            if refused is None:
                if seen.is_enough(place):
                    continue
                refused = await self._try(place)
                if refused is None or place.state != "waiting":
                    return True
                seen.learn(place, refused)
            if refused.bound in _ALIKE or self._clock() - waiting.since >= self._patience_s:
                seen.closed.add(refused.scope)
        return False

    async def _try(self, place: Place[_Waiting]) -> Refused | None:
        """Ask for one; returns why not."""
        waiting = place.item
        waiting.asked = True
        try:
            found = await self._take(waiting.ask)
        except Exception as error:  # noqa: BLE001 (it is raised where the request waits)
            if not waiting.decided.done():
                waiting.decided.set_exception(error)
            self._out(place)
            return None
        finally:
            waiting.asked = False
        if isinstance(found, Granted):
            waiting.refused = None
            if place.state != "waiting" or waiting.decided.done():
                await finished(self._give_back(found.lease))
                return None
            self._fair.begin(place)
            self._scopes_left(waiting)
            waiting.decided.set_result(found)
            return None
        waiting.refused = found
        if found.scope in self._scopes:
            # Without what it needed: whoever is told of it next asked for something else.
            self._full[found.scope] = msgspec.structs.replace(found, need=0)
        if not waiting.decided.done() and (not waiting.wait_s or _hopeless(found, waiting.wait_s)):
            waiting.decided.set_result(found)
            self._out(place)
        return found

    async def _given_up(self, place: Place[_Waiting]) -> None:
        """Whoever waited is gone: nothing of it stays, also where it was admitted in the same moment."""
        decided = place.item.decided
        self._out(place)
        if not decided.done():
            decided.cancel()
        elif not decided.cancelled() and decided.exception() is None and isinstance(decided.result(), Granted):
            await finished(self._give_back(place.item.ask.lease))
            self.wake()

    def _turn_away(self) -> None:
        while len(self) > self._most and (place := self._fair.last_of_longest()) is not None:
            if not place.item.decided.done():
                place.item.decided.set_result(_too_many(self._most))
            self._out(place)

    def _out(self, place: Place[_Waiting]) -> None:
        if place.state == "waiting":
            self._scopes_left(place.item)
        self._fair.leave(place)

    def _scopes_left(self, waiting: _Waiting) -> None:
        for scope in waiting.scopes:
            self._scopes[scope] -= 1
            if not self._scopes[scope]:
                del self._scopes[scope]
                self._full.pop(scope, None)

    def _ended(self, place: Place[_Waiting], read: int, written: int) -> None:
        self._fair.used(place, read, written)
        self._out(place)
        self.wake()


def _needs_as_much(ask: Ask, draw: Draw, bound: Bound, refused: Refused) -> bool:
    source = draw.budget if bound.span == "life" else draw.limits
    limit = None if source is None else getattr(source, bound.name)
    # A contract that was changed meanwhile may give newer requests more.
    needed = 1 if bound.measure == "requests" else ask.need.of(bound.measure)
    return limit is not None and limit <= refused.limit and needed >= refused.need


def _hopeless(refused: Refused, wait_s: float) -> bool:
    """Whether waiting cannot help: more is needed than the limit ever has, or it ends later than the longest wait."""
    return (
        refused.bound not in _BOUNDS
        or refused.need > refused.limit
        or (refused.bound in _LONG and refused.retry_after > wait_s)
    )


def _too_many(waiting: int) -> Refused:
    return Refused(DEPLOYMENT, FULL, waiting, waiting, 1, _LOOK_S)
