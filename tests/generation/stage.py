"""The product behind its own HTTP API, with pools of stand-ins that fail on demand.

`main` has two replicas, `spare` one of the same trust level, `vault` one of another. Nothing is remembered, and every
question is a new one, unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from generation.breaker import Breaker, BreakerTerms
from generation.lanes import Load
from generation.placement import PooledRoutes
from generation.pool import Pool
from service.isolation import require_isolation
from tenancy.contract import Contract, GenerationTerms
from tests.service.house import House, stream_events
from tests.support.sglang_stand_in import Fault, StandIn, answer, stand_in
from tests.support.spent import spent

T = TypeVar("T")

LIMIT_S = 30.0
MAIN, SPARE, VAULT = (0, 1), 2, 3
ANSWER = "urn:]EN attribute"


class Stage:
    """`servers` are the stand-ins of `main` (two), `spare` and `vault`."""

    def __init__(self, house: House, servers: list[StandIn], loop: asyncio.AbstractEventLoop) -> None:
        self.house = house
        self.servers = servers
        self._loop = loop
        self._numbers = itertools.count()
        self._deployment = self.routes.deployment

    @property
    def routes(self) -> PooledRoutes:
        found = self.house.services.path.routes
        assert isinstance(found, PooledRoutes)
        return found

    @property
    def pools(self) -> dict[str, Pool]:
        return {pool.name: pool for pool in self.routes.pools}

    @property
    def main(self) -> list[StandIn]:
        return self.servers[:2]

    @property
    def sent(self) -> list[int]:
        """Generations that each server was asked for."""
        return [len(server.generations) for server in self.servers]

    @property
    def aborts(self) -> int:
        return sum(len(server.aborts) for server in self.servers)

    def agree(self, **terms: Any) -> None:
        """What acme's contract says about generation from now on."""
        self.house.services.control.tenants.set_contract("acme", Contract(generation=GenerationTerms(**terms)))

    def always(self, *faults: Fault, at: tuple[int, ...] = MAIN) -> None:
        """The servers `at` do the only fault, or each its own."""
        for number, index in enumerate(at):
            self.servers[index].usual = faults[number % len(faults)]

    def question(self) -> dict[str, Any]:
        return {"query": f"How long is the notice period in case {next(self._numbers)}?"}

    def ask(self, body: dict[str, Any] | None = None) -> httpx.Response:
        return self.house.post("/v1/answers", self.house.key("acme", "ana"), body or self.question())

    def last(self) -> dict[str, Any]:
        """The last event of acme's audit log."""
        return self.house.events("acme")[-1]

    def within(self, work: Callable[[], Awaitable[T]]) -> T:
        """`work` in the event loop of the application."""
        return self.house.client.blocking_portal.call(work)

    def release(self) -> None:
        """Let every stand-in that waits go on."""
        for server in self.servers:
            self._loop.call_soon_threadsafe(server.release.set)

    def fresh(self) -> None:
        """As at the beginning: stand-ins that answer, nothing counted, no replica left alone, no contract."""

        async def well() -> None:
            for server in self.servers:
                server.release.set()
                server.release = asyncio.Event()
                server.usual = answer
                server.received.clear()
                server.controls.clear()
                server.info["version"] = "0.5.23"

        self.routes.deployment = self._deployment
        asyncio.run_coroutine_threadsafe(well(), self._loop).result(LIMIT_S)
        for pool in self.pools.values():
            for replica in pool.replicas:
                replica.breaker = Breaker(BreakerTerms(failures=3, pause_s=600, longest_s=600))
        self.house.services.control.tenants.set_contract("acme", Contract())

    def at_rest(self) -> bool:
        """No slot, no lease and nobody who waits."""
        lanes = all(one.load == Load() for pool in self.pools.values() for one in pool.replicas)
        waiting = any(pool._lanes.waiting for pool in self.pools.values())
        tenant = self.house.services.control.tenants.show("acme").id
        use = spent(self.house.services.path.admission, tenant)
        return lanes and not waiting and (use.concurrent, use.held) == (0, 0)


def events(response: httpx.Response) -> list[tuple[str, Any]]:
    return list(stream_events(response.text))


@contextmanager
def standing(count: int) -> Iterator[tuple[list[StandIn], asyncio.AbstractEventLoop]]:
    """Stand-ins in a loop of their own, for tests that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="stand-ins")
    thread.start()
    stack = AsyncExitStack()

    def call(work: Awaitable[T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(LIMIT_S)  # type: ignore[arg-type]

    async def stopped() -> None:
        await stack.aclose()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield [call(stack.enter_async_context(stand_in())) for _ in range(count)], loop
    finally:
        call(stopped())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)
        loop.close()


@contextmanager
def stage(folder: Path, *, patience_s: float = 1.5, **environment: str) -> Iterator[Stage]:
    with standing(4) as (servers, loop):
        house = House(
            folder,
            STRONGROOM_GENERATION__POOLS=pools_of(
                [server.base_url for server in servers], first_token_s=patience_s, stall_s=patience_s
            ),
            STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
            STRONGROOM_CACHE__ENABLED="false",
            **environment,
        )
        with house.client:
            house.put("acme", "notice.md", "The notice period in every case is three months.", allow=["tenant"])
            made = Stage(house, servers, loop)
            made.within(lambda: require_isolation(house.services.path.routes))
            made.fresh()
            try:
                yield made
            finally:
                made.release()
                made.within(house.services.path.routes.aclose)
        house.close()


def pools_of(addresses: list[str], **more: Any) -> str:
    """The setting generation.pools of a stage, as TOML."""
    terms = {"pause_s": 600.0, "health_s": 600.0, **more}
    common = ", ".join(f"{name} = {json.dumps(value)}" for name, value in terms.items())

    def pool(name: str, *at: int, trust: str = "shared") -> str:
        replicas = json.dumps([addresses[index] for index in at])
        return (
            f'{name} = {{kind = "sglang", model = "tiny", revision = "r1", trust = "{trust}", '
            f"replicas = {replicas}, {common}}}"
        )

    return f"{{{pool('main', *MAIN)}, {pool('spare', SPARE)}, {pool('vault', VAULT, trust='confidential')}}}"
