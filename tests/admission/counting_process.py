"""One of several processes that count at one Redis: `python -m tests.admission.counting_process URL PASSWORD_FILE WORK
NAME`. Its last line is what happened, as JSON.

Instants are of the clock that all processes of a machine share, so that whoever started several sees what overlapped.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from admission.counters import Crossing, Granted
from admission.redis import RedisCounters
from admission.redis_link import Link
from tenancy.redis_settings import RedisSettings
from tests.admission.conformance.rig import amounts, ask, tenant, user

CLIENTS = 20
FOUR = tenant("acme", concurrent=4)
WINDOW = tenant("windowed", requests_per_minute=150, tokens_per_minute=10**9)
TOKENS = tenant("tokens", tokens_per_minute=700)
MONEY = tenant("money", money_per_month=3_700, soft=0.8)
PRICE = 37


class Process:
    def __init__(self, counters: RedisCounters, name: str) -> None:
        self.counters = counters
        self.name = name
        self.number = 0

    def lease(self) -> str:
        self.number += 1
        return f"{self.name}{self.number:024d}"

    async def concurrent(self) -> dict[str, Any]:
        """Each of the clients is served five times; work takes 10 ms."""
        spans: list[tuple[int, int]] = []

        async def client(number: int) -> None:
            for _ in range(5):
                while True:
                    wanted = ask(user(f"{self.name}{number}"), FOUR, lease=self.lease())
                    if isinstance(await self.counters.take(wanted), Granted):
                        break
                begun = time.monotonic_ns()
                await asyncio.sleep(0.01)
                spans.append((begun, time.monotonic_ns()))
                await self.counters.leave(wanted.lease)

        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        return {"spans": spans}

    async def exact(self) -> dict[str, Any]:
        """Ask until nothing more is granted, of a window of requests, of one of tokens, and of a month's money."""
        crossed: list[Crossing] = []
        granted = {"windowed": 0, "tokens": 0, "money": 0}

        async def spend(what: str, draw: Any, need: Any) -> None:
            while True:
                wanted = ask(draw, need=need, lease=self.lease(), tenant=what)
                if not isinstance(await self.counters.take(wanted), Granted):
                    return
                granted[what] += 1
                crossed.extend((await self.counters.settle(wanted.lease, need)).crossed)
                crossed.extend((await self.counters.leave(wanted.lease)).crossed)

        await asyncio.gather(*(spend("windowed", WINDOW, amounts(1)) for _ in range(CLIENTS)))
        await asyncio.gather(*(spend("tokens", TOKENS, amounts(5, 2)) for _ in range(CLIENTS)))
        await asyncio.gather(*(spend("money", MONEY, amounts(0, 0, PRICE)) for _ in range(CLIENTS)))
        return {"granted": granted, "crossed": [(one.share, one.used) for one in crossed]}

    async def held(self) -> dict[str, Any]:
        """Take five leases, report some use of them, and never come back."""
        for _ in range(5):
            wanted = ask(user(), FOUR if self.number < 4 else tenant("other"), need=amounts(50, 50), lease=self.lease())
            assert isinstance(await self.counters.take(wanted), Granted)
            await self.counters.extend(wanted.lease, amounts(), amounts(20, 3))
        print(json.dumps({"held": self.number}), flush=True)
        await asyncio.Event().wait()
        return {}


async def main(url: str, password_file: str, work: str, name: str) -> None:
    settings = RedisSettings(url=url, password_file=password_file, timeout_s=10, connect_timeout_s=10)
    counters = RedisCounters(Link(settings))
    try:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(await getattr(Process(counters, name), work)()))
    finally:
        await counters.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
