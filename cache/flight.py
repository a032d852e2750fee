"""Single flight: of many identical questions inside a namespace, one is answered and the others wait for it.

A leader that fails or is cancelled hands over to one of those who wait; its failure is its own. A leader whose
answer may not be kept releases all of them to answer for themselves, at once. Nobody waits longer than `PATIENCE_S`: a
leader goes on only as fast as its client reads, and a client that reads nothing must not hold up others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cache.decision import Asked
from tenancy.tenant import TenantHandle

PATIENCE_S: Final = 10.0
"""Longer than most answers take to be made, and far shorter than the deadline of one."""


class Role(StrEnum):
    """LEADER: answer, then say `stored()`. FOLLOWER: an answer was stored, look it up. ALONE: answer for yourself."""

    LEADER = "leader"
    FOLLOWER = "follower"
    ALONE = "alone"


@dataclass(slots=True)
class Turn:
    role: Role
    _stored: bool = False

    def stored(self) -> None:
        """The leader's answer is in the cache: those who wait may look it up."""
        self._stored = True

    @property
    def was_stored(self) -> bool:
        return self._stored


@dataclass(slots=True)
class _Flight:
    waiting: deque[asyncio.Future[Role]] = field(default_factory=deque)


class Flights:
    """Flights of one event loop, by tenant, namespace and exact key. A follower waits `patience` seconds at most."""

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._patience = patience
        self._flights: dict[tuple[str, bytes, bytes], _Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    @asynccontextmanager
    async def turn(self, tenant: TenantHandle, asked: Asked, longest_s: float | None = None) -> AsyncIterator[Turn]:
        """Wait for one's turn at this question, for `longest_s` seconds. Enter after a miss; a FOLLOWER looks up again.

        Leaving the block by an exception or a cancellation hands a leader's part to the next in line.
        """
        key = (tenant.tenant_id, asked.namespace.value, asked.exact)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight()
            role = Role.LEADER
        else:
            patience = self._patience if longest_s is None else max(0.0, min(self._patience, longest_s))
            role = await self._wait(key, flight, patience)
        turn = Turn(role)
        if role is not Role.LEADER:
            yield turn
            return
        try:
            yield turn
        except BaseException:
            self._hand_over(key, flight)
            raise
        self._release(key, flight, Role.FOLLOWER if turn.was_stored else Role.ALONE)

    async def _wait(self, key: tuple[str, bytes, bytes], flight: _Flight, patience: float) -> Role:
        future: asyncio.Future[Role] = asyncio.get_running_loop().create_future()
        flight.waiting.append(future)
        try:
            await asyncio.wait((future,), timeout=patience)
        except asyncio.CancelledError:
            # Cancelled in the very moment of being made leader: the part must not be lost.
            if future.done() and future.result() is Role.LEADER:
                self._hand_over(key, flight)
            future.cancel()
            raise
        if future.done():
            return future.result()
        future.cancel()
        flight.waiting.remove(future)
        return Role.ALONE

    def _hand_over(self, key: tuple[str, bytes, bytes], flight: _Flight) -> None:
        while flight.waiting:
            following = flight.waiting.popleft()
            if not following.done():
                following.set_result(Role.LEADER)
                return
        self._flights.pop(key, None)

    def _release(self, key: tuple[str, bytes, bytes], flight: _Flight, role: Role) -> None:
        self._flights.pop(key, None)
        for following in flight.waiting:
            if not following.done():
                following.set_result(role)
