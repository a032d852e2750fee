"""A pool's own waiting room (`generation.lanes`) before a model of an engine, in simulated time.

The engine works in steps, as SGLang does: while a prompt is unread it reads up to `chunk` tokens of prompts, in order
of arrival, and who is being answered waits; else it writes one token of each request. The last step that reads a prompt
gives its first token. A step takes a fixed time, and a time for each token.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from admission.fair import WRITTEN, FairQueue, Party, Place
from admission.pace import Pace
from generation.lanes import Lanes, LaneTerms, Load, Ticket
from tenancy.errors import Unavailable


@dataclass(eq=False)
class Asked:
    """One request, and when (seconds from the beginning) what happened to it."""

    at: float
    party: Party
    tokens: int
    output: int
    seated: float | None = None
    first: float | None = None
    ended: float | None = None
    left: int = 0
    written: int = 0
    refused: bool = False
    ticket: Ticket[Seat] | None = None
    ahead: int = 0
    read: asyncio.Future[None] | None = None

    @property
    def who(self) -> str:
        return f"{self.party.tenant}/{self.party.user}"

    @property
    def service(self) -> int:
        return self.tokens - self.left + WRITTEN * self.written if self.seated is not None else 0


@dataclass(eq=False)
class Seat:
    load: Load = field(default_factory=Load)
    usable: bool = True

    def begin(self) -> bool:
        return False

    def abandon(self) -> None:
        return None


class FirstCome(FairQueue[Any]):
    """Whoever came first is next."""

    def heads(self) -> Iterator[Place[Any]]:
        yield from sorted(super().heads(), key=lambda place: place._order)


class RoundRobin(FairQueue[Any]):
    """Users take turns, whatever their requests cost."""

    def heads(self) -> Iterator[Place[Any]]:
        yield from sorted(super().heads(), key=lambda place: place._path[-1].stamp)


ORDERS: dict[str, type[FairQueue[Any]]] = {
    "first come": FirstCome,
    "round robin": RoundRobin,
    "ours without guest slots": FairQueue,
    "ours": FairQueue,
    "ours, paced": FairQueue,
}


def terms_of(order: str, terms: LaneTerms) -> LaneTerms:
    """Slots for guests are part of ours alone, the pace and pieces of what is asked for by a setting."""
    if order == "ours, paced":
        return terms
    unpaced = replace(terms, pace_slots=None, piece_tokens=None)
    return unpaced if order == "ours" else replace(unpaced, guest_slots=0)


@dataclass(frozen=True)
class Costs:
    """Of the engine's steps, in seconds: `read_step` and `read` a token of a step that reads, `write_step` and `write`
    a token of one that writes; `way` is from a slot to the engine. `chunk` tokens are read in a step at most.

    Settings of SGLang, with which steps differ: `shortest` prompts are read first, beside the one that is begun
    (`--schedule-policy shortest-prefill-first`), and a step that reads also writes (`mixed`, `--enable-mixed-chunk`).
    """

    read_step: float = 0.025
    read: float = 0.00035
    write_step: float = 0.025
    write: float = 0.0012
    way: float = 0.0
    chunk: int = 512
    shortest: bool = False
    mixed: bool = False


class Simulation:
    """Requests in one order, under `terms`, for so many seconds."""

    def __init__(
        self,
        asked: Sequence[Asked],
        order: type[FairQueue[Any]],
        costs: Costs,
        seconds: float,
        terms: LaneTerms,
    ) -> None:
        self.now, self.costs, self.seconds = 0.0, costs, seconds
        self.asked = sorted(asked, key=lambda one: one.at)
        self.seat = Seat()
        self.lanes: Lanes[Seat] = Lanes(lambda: [self.seat], terms)
        self.lanes.pace = Pace(terms.pace_s, lambda: self.now)
        self.lanes.fair = order(patience_s=terms.patience_s, clock=lambda: self.now, pace=self.lanes.pace)
        self.waiting: dict[asyncio.Task[Ticket[Seat]], Asked] = {}
        self._told: list[asyncio.Task[Ticket[Seat]]] = []
        self.running: list[Asked] = []
        self._readers: set[asyncio.Task[None]] = set()
        self.gaps = Gaps()
        self.busy = 0.0
        self._ends: float | None = None
        self._batch: list[tuple[Asked, int]] = []

    async def run(self) -> None:
        coming = iter(self.asked)
        following = next(coming, None)
        while self.now < self.seconds:
            if following is not None and following.at <= self.now:
                self._enter(following)
                following = next(coming, None)
                await self._seat_all()
                continue
            if self._ends is not None and self._ends <= self.now:
                self._finish_step()
                await self._seat_all()
            if self._ends is None:
                self._begin_step()
            soon = [self._ends, following.at if following else None, *self._arriving()]
            instants = [instant for instant in soon if instant is not None and instant > self.now]
            if not instants:
                break
            self.now = min(instants)
        left = (*self.waiting, *self._readers)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _enter(self, one: Asked) -> None:
        size = self.lanes.terms.piece_tokens
        if size is not None and one.tokens >= self.lanes.terms.small_tokens and one.read is None:
            self._readers.add(asyncio.create_task(self._in_pieces(one, size)))
            return
        tokens, piece = one.tokens - one.ahead, one.read is not None and not one.ahead
        enter = self.lanes.enter(tokens, party=one.party, piece=piece, deadline=time.monotonic() + 86_400)
        task = asyncio.create_task(enter)
        task.add_done_callback(self._told.append)
        self.waiting[task] = one
        self.gaps.waits(one, 1)

    async def _in_pieces(self, one: Asked, size: int) -> None:
        """As `generation.pool` has it: each piece is a request for one token, and the rest is the request itself."""
        done = asyncio.get_running_loop().create_future
        while one.tokens - one.ahead > size:
            read = done()
            self._enter(Asked(self.now, one.party, size, 1, read=read))
            await read
            one.ahead += size
            await self.lanes.pauses.wait(self.seat, self.lanes.terms.piece_pause)
        one.read = done()
        self._enter(one)

    async def _seat_all(self) -> None:
        for _ in range(4 + 8 * bool(self._readers)):  # a task is woken, ends, and tells
            await asyncio.sleep(0)
        for task in self._told:
            self._seat(self.waiting.pop(task), task)
        self._told.clear()
        self.gaps.compare(self.running)

    def _seat(self, one: Asked, task: asyncio.Task[Ticket[Seat]]) -> None:
        try:
            one.ticket = task.result()
        except Unavailable:
            one.refused = True
            return
        finally:
            self.gaps.waits(one, -1)
        one.seated, one.left = self.now, one.tokens - one.ahead
        self.gaps.served(one, one.left)
        self.running.append(one)

    def _arriving(self) -> Iterator[float]:
        if self._ends is None:
            yield from ((one.seated or 0.0) + self.costs.way for one in self.running)

    def _begin_step(self) -> None:
        here = [one for one in self.running if (one.seated or 0.0) + self.costs.way <= self.now]
        costs = self.costs
        self._batch = self._read(here)
        read = sum(tokens for _, tokens in self._batch)
        write = [one for one in here if not one.left] if costs.mixed or not read else []
        self._batch += [(one, 0) for one in write]
        if not self._batch:
            return
        fixed = max(costs.read_step if read else 0.0, costs.write_step if write else 0.0)
        took = fixed + costs.read * read + costs.write * len(write)
        self._ends = self.now + took
        self.busy += took

    def _read(self, here: Sequence[Asked]) -> list[tuple[Asked, int]]:
        """What a step reads of whose prompt. One that is begun goes first; shorter ones get their room before it."""
        room = self.costs.chunk
        if self.costs.mixed:
            room -= sum(not one.left for one in here)
        unread = [one for one in here if one.left]
        if self.costs.shortest:
            unread.sort(key=lambda one: (one.left == one.tokens - one.ahead, one.left))
            begun, kept = unread[0] if unread else None, 0
            for one in unread[1:]:
                if (
                    begun is None
                    or begun.left == begun.tokens - begun.ahead
                    or one.left >= begun.left
                    or kept + one.left >= room
                ):
                    break
                kept += one.left
        else:
            kept = 0
        found: list[tuple[Asked, int]] = []
        for one in unread:
            if (most := room - (kept if not found else 0)) > 0:
                found.append((one, min(most, one.left)))
                room -= found[-1][1]
        return found

    def _finish_step(self) -> None:
        for one, read in self._batch:
            one.left -= read
            if one.left:
                continue
            assert one.ticket is not None
            if one.first is None:
                one.first = self.now
                one.ticket.begun()
            one.written += 1
            one.ticket.wrote(1)
            self.gaps.served(one, WRITTEN)
            if one.written >= one.output:
                one.ended = self.now
                self.running.remove(one)
                one.ticket.leave()
                if one.read is not None and not one.read.done():
                    one.read.set_result(None)
        self._ends = None


class Gaps:
    """Service over weight of users and tenants, and how far two that both wait move apart."""

    def __init__(self) -> None:
        self.service: dict[tuple[str, ...], float] = defaultdict(float)
        self.waiting: dict[tuple[str, ...], int] = defaultdict(int)
        self.worst, self.longest, self.flight = 0.0, 1, 1
        self._spans: dict[Any, tuple[float, float]] = {}

    def waits(self, one: Asked, change: int) -> None:
        for key in _keys(one.party):
            self.waiting[key] += change

    def served(self, one: Asked, service: float) -> None:
        self.longest = max(self.longest, one.tokens)
        for key, weight in zip(_keys(one.party), (one.party.weight, 1.0), strict=True):
            self.service[key] += service / weight

    def compare(self, running: Sequence[Asked]) -> None:
        self.flight = max(self.flight, sum(one.tokens + one.output for one in running))
        spans = {}
        for pair in itertools.combinations([key for key, waits in self.waiting.items() if waits], 2):
            if pair[0][:-1] == pair[1][:-1]:
                apart = self.service[pair[0]] - self.service[pair[1]]
                least, most = self._spans.get(pair, (apart, apart))
                spans[pair] = min(least, apart), max(most, apart)
                self.worst = max(self.worst, spans[pair][1] - spans[pair][0])
        self._spans = spans

    @property
    def over_bound(self) -> float:
        return self.worst / (2 * max(self.longest, WRITTEN * self.flight))


def _keys(party: Party) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return (party.tenant,), (party.tenant, party.user)


def figures(asked: Sequence[Asked], seconds: float) -> dict[str, dict[str, Any]]:
    """By user: the share of service from when each of them was there, and times of those who were not turned away; who
    was not served until the end counts as if it was served then.
    """
    by: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        by[one.who].append(one)
    begin = max(ones[0].at for ones in by.values())
    service = {who: sum(one.service for one in ones if (one.seated or 0) >= begin) for who, ones in by.items()}
    total = sum(service.values()) or 1
    found = {}
    for who, ones in by.items():
        stayed = [one for one in ones if not one.refused]
        found[who] = {
            "requests": len(ones),
            "refused": len(ones) - len(stayed),
            "answered": sum(one.ended is not None for one in ones),
            "share": round(service[who] / total, 3),
            "wait": percentiles([(seconds if one.seated is None else one.seated) - one.at for one in stayed]),
            "first": percentiles([(seconds if one.first is None else one.first) - one.at for one in stayed]),
            "total": percentiles([(seconds if one.ended is None else one.ended) - one.at for one in stayed]),
        }
    return found


def percentiles(values: Sequence[float]) -> Mapping[str, float]:
    ordered = sorted(values) or [0.0]
    return {f"p{part}": round(ordered[min(len(ordered) - 1, len(ordered) * part // 100)], 3) for part in (50, 99)}
