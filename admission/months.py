"""What a month has cost before this process began to count: told to the counters before the first request draws on it.

Counters in memory begin with nothing, and a spent budget must stay spent. So the first request that draws on a scope
with a limit on a month's money waits until the month of that scope was read from where use is on record. Where it
cannot be read the request is refused: an unknown amount is never taken for zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

from admission.limits import Draw
from admission.scopes import Scope

Spent = Callable[[tuple[Scope, ...]], Awaitable[tuple[str, Mapping[Scope, int]]]]
"""The month as in "2026-11", and what each scope has spent in it (micro-units), as far as it is on record."""


class _Seeded(Protocol):
    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None: ...


class Months:
    """Each scope is read once. For any number of event loops, one at a time."""

    def __init__(self, counters: _Seeded, spent: Spent) -> None:
        self._counters = counters
        self._spent = spent
        self._begun: set[Scope] = set()
        self._reading: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, draws: Iterable[Draw]) -> None:
        """Return when the months of all scopes of `draws` are in the counters. Raises whatever reading them raises."""
        wanted = self._missing(draws)
        if not wanted:
            return
        for tenant in sorted({scope.tenant for scope in wanted}):
            # One reads for all requests of a tenant that came at once; no tenant waits for another's log.
            lock = self._reading.setdefault(tenant, asyncio.Lock())
            async with lock:
                missing = tuple(scope for scope in wanted if scope.tenant == tenant and scope not in self._begun)
                if missing:
                    await self._counters.seed(*await self._spent(missing))
                    self._begun.update(missing)

    async def again(self, draws: Iterable[Draw]) -> None:
        """As `begin`, where the counters have lost what they were told of any scope."""
        self._begun.clear()
        await self.begin(draws)

    def _missing(self, draws: Iterable[Draw]) -> list[Scope]:
        return [
            draw.scope for draw in draws if draw.limits.money_per_month is not None and draw.scope not in self._begun
        ]
