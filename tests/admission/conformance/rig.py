"""What every test of the counters asks with."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from admission.counters import Ask, Counters, Granted, Refused
from admission.limits import Amounts, Budget, Draw, Limits
from admission.scopes import Scope, tenant_scope, user_scope

MID_MONTH = 1_794_830_400.0
"""2026-11-16, 12:00 UTC."""
TTL_S = 30.0
_numbers = itertools.count()


@dataclass
class Clock:
    """Unix seconds, by hand."""

    now: float = MID_MONTH

    def __call__(self) -> float:
        return self.now


def amounts(input: int = 0, output: int = 0, money: int = 0) -> Amounts:
    return Amounts(0, input, output, money)


def ask(
    *draws: Draw, need: Amounts | None = None, lease: str | None = None, tenant: str = "acme", ttl_s: float = TTL_S
) -> Ask:
    return Ask(lease or f"{next(_numbers):032x}", tenant, draws, need or Amounts(1), ttl_s)


def draw(scope: Scope, budget: Budget | None = None, until: float | None = None, **limits: float) -> Draw:
    return Draw(scope, Limits(**limits), budget, until)  # type: ignore[arg-type]


def tenant(id: str = "acme", **limits: float) -> Draw:
    return draw(tenant_scope(id), **limits)


def user(id: str = "ana", of: str = "acme", **limits: float) -> Draw:
    return draw(user_scope(of, id), **limits)


def run(work: Coroutine[Any, Any, None], counters: Counters) -> None:
    """`work` in an event loop of its own, and the connections of `counters` closed within it."""

    async def main() -> None:
        try:
            await work
        finally:
            await counters.aclose()

    asyncio.run(main())


async def granted(counters: Counters, wanted: Ask) -> str:
    """The lease's id."""
    found = await counters.take(wanted)
    assert isinstance(found, Granted), found
    return found.lease


async def refused(counters: Counters, wanted: Ask) -> Refused:
    found = await counters.take(wanted)
    assert isinstance(found, Refused), found
    return found
