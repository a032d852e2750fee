"""Many streams at one time through the HTTP API of a served port, of which some leave before their end.

Who leaves, and when, is drawn with a seed: while the request waits, when the engine has it, after so many deltas, with
a good-bye or without.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from audit.trail import AuditTrail, Trail
from benchmarks.serving import UNLIMITED, Sent, Stream
from generation.generator import Piece
from generation.placement import PooledRoutes
from generation.replica import Attempt, Replica, Request
from generation.wire import Wire
from tenancy.errors import Unavailable
from tenancy.identity import Principal, Role
from tests.service.desk import Desk, serving
from tests.support.spent import spent

TENANTS = ("acme", "globex")
USERS = 4
LIMIT_S = 240.0
STAY_TOKENS, LEAVE_TOKENS = (6, 12), 1_000
"""Who leaves asked for so much that a generation which nobody stopped would still run when it is looked for."""
POOLED = re.compile(r"_\d+$")
"""How a ThreadPoolExecutor names its threads."""

Moment = Literal["stays", "waiting", "at the engine", "streaming"]


@dataclass(slots=True)
class Visit:
    """One client: what it means to do, and what it saw."""

    number: int
    moment: Moment
    deltas: int
    delay_s: float
    abruptly: bool
    max_tokens: int
    texts: list[str] = field(default_factory=list)
    done: dict[str, Any] | None = None
    problem: dict[str, Any] | None = None
    left_at: float | None = None

    @property
    def root(self) -> str:
        return f"visit-{self.number}"

    @property
    def question(self) -> str:
        return f"How long is the notice period in case {self.number}?"


def draw(count: int, seed: int, *, first: int = 0) -> list[Visit]:
    """Visits numbered from `first`: half of them stay; the moments of the others are equally likely."""
    dice = random.Random(seed)
    visits = []
    for number in range(first, first + count):
        moment: Moment = dice.choice(("stays", "stays", "stays", "waiting", "at the engine", "streaming"))
        visits.append(
            Visit(
                number,
                moment,
                deltas=dice.randint(1, 3),
                delay_s=dice.uniform(0.0, 3.0),
                abruptly=dice.random() < 0.5,
                max_tokens=dice.randint(*STAY_TOKENS) if moment == "stays" else LEAVE_TOKENS,
            )
        )
    return visits


class Watch:
    """What the service sends to the engine: generations by the question that they answer, aborts by request id."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.engine_ids: dict[str, str] = {}
        self.aborts: dict[str, list[tuple[float, float]]] = {}
        """By the engine's request id: when each was sent first, and when the engine had answered."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._sent: dict[str, float] = {}
        self._begun: dict[str, Callable[[], object]] = {}
        generate, control, open_trail = Replica.generate, Wire.control, AuditTrail.open

        async def watched(replica: Replica, request: Request, attempt: Attempt) -> AsyncGenerator[Piece, None]:
            question, self.loop = request.prompt.question, asyncio.get_running_loop()
            self.engine_ids[question] = attempt.totals.engine_request
            self._begun.pop(question, lambda: None)()
            try:
                async with aclosing(generate(replica, request, attempt)) as pieces:
                    async for piece in pieces:
                        yield piece
            except Unavailable:
                self.engine_ids.pop(question)  # it failed by itself, and another attempt may follow
                raise

        async def answered(wire: Wire, path: str, body: dict[str, Any], deadline: float) -> tuple[int, bytes]:
            sent = self._sent.setdefault(body.get("rid", ""), time.monotonic())
            found = await control(wire, path, body, deadline)
            if path == "/abort_request" and found[0] == 200:
                self.aborts.setdefault(body["rid"], []).append((sent, time.monotonic()))
            return found

        def opened(trail: AuditTrail, principal: Principal | None, **request: Any) -> Trail:
            self._begun.pop(request.get("root") or "", lambda: None)()
            return open_trail(trail, principal, **request)

        patch.setattr(AuditTrail, "open", opened)
        patch.setattr(Replica, "generate", watched)
        patch.setattr(Wire, "control", answered)

    def clear(self) -> None:
        self.engine_ids.clear()
        self.aborts.clear()

    async def reached(self, what: str) -> None:
        """Return when a replica is asked the question `what`, or the trail of the root id `what` is opened; call it
        within another event loop than the service's, before asking.
        """
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        self._begun[what] = lambda: loop.call_soon_threadsafe(begun.set)
        await begun.wait()


async def visit(desk: Desk, watch: Watch, key: str, one: Visit) -> None:
    host, port = desk.address.removeprefix("http://").rsplit(":", 1)
    body = {"query": one.question, "stream": True, "root": one.root, "max_tokens": one.max_tokens}
    stream = Stream((host, int(port)), Sent.post("/v1/answers", key, body))

    async def read() -> None:
        async with aclosing(stream.events()) as events:
            async for name, data in events:
                if name == "delta":
                    one.texts.append(json.loads(data)["text"])
                    if one.moment == "streaming" and len(one.texts) >= one.deltas:
                        return
                elif name in {"done", "error"}:
                    setattr(one, "done" if name == "done" else "problem", json.loads(data))
        if stream.body:
            one.problem = json.loads(stream.body)

    # What left before its trail was opened asked nothing, and is in no record.
    begun = asyncio.create_task(watch.reached(one.root if one.moment == "waiting" else one.question))
    await asyncio.sleep(0)
    reading = asyncio.create_task(read())
    async with asyncio.timeout(LIMIT_S):
        if one.moment in {"waiting", "at the engine"}:
            await asyncio.wait({reading, begun}, return_when=asyncio.FIRST_COMPLETED)
        if one.moment == "waiting":
            await asyncio.wait({reading}, timeout=one.delay_s)
        elif one.moment != "at the engine":
            await reading
    if one.done is None and one.problem is None:
        one.left_at = time.monotonic()
        stream.leave(abruptly=one.abruptly)
    reading.cancel()
    begun.cancel()
    for ended in await asyncio.gather(reading, begun, return_exceptions=True):
        # A connection that was closed here ends in whatever way it likes.
        if isinstance(ended, BaseException) and one.left_at is None and not isinstance(ended, asyncio.CancelledError):
            raise ended
    if one.left_at is None:
        stream.leave()


def come(desk: Desk, watch: Watch, visits: list[Visit]) -> None:
    """All at once; returns when every client is gone and the service is done with all of them."""
    keys = [desk.house.key(TENANTS[number % 2], f"user-{number % USERS}") for number in range(2 * USERS)]

    async def everybody() -> None:
        await asyncio.gather(*(visit(desk, watch, keys[one.number % len(keys)], one) for one in visits))

    desk.forget()
    asyncio.run(everybody())
    desk.done(len(visits))


def outcomes(desk: Desk) -> dict[str, list[dict[str, Any]]]:
    """The outcomes in the audit of both tenants, by root id."""
    found: dict[str, list[dict[str, Any]]] = {}
    control = desk.house.services.control
    for tenant in TENANTS:
        control.logs.of(control.authenticator.operator(tenant)).flush()
        for event in desk.house.events(tenant):
            if event["phase"] == "outcome" and event["action"] == "answer":
                found.setdefault(event["request"]["root"], []).append(event)
    return found


def held(desk: Desk) -> dict[str, int]:
    """What the service still holds for anybody: all 0 when nothing runs."""
    services = desk.house.services
    assert isinstance(services.path.routes, PooledRoutes)
    pools = services.path.routes.pools
    uses = [spent(services.path.admission, services.control.tenants.show(tenant).id) for tenant in TENANTS]
    return {
        "slots": sum(replica.load.requests for pool in pools for replica in pool.replicas),
        "prefill tokens": sum(replica.load.prefill for pool in pools for replica in pool.replicas),
        "waiting": sum(pool._lanes.waiting for pool in pools),
        "leases": sum(use.concurrent for use in uses),
        "lease tokens": sum(use.held for use in uses),
        "worker calls": services.workers.busy,
    }


def beside(watch: Watch) -> tuple[int, int]:
    """Tasks in the service's event loop, and threads of this process without those of executors, which come as they
    are needed and stay.
    """
    assert watch.loop is not None
    threads = sum(POOLED.search(thread.name) is None for thread in threading.enumerate())
    return len(asyncio.all_tasks(watch.loop)), threads


@contextmanager
def crowded(folder: Path, pool: str, patch: pytest.MonkeyPatch) -> Iterator[tuple[Desk, Watch]]:
    """A served port whose one pool is `pool` (TOML); nothing is remembered."""
    watch = Watch(patch)
    with serving(
        folder,
        spoken=False,
        STRONGROOM_GENERATION__POOLS=f"{{main = {pool}}}",
        STRONGROOM_GENERATION__ROUTING='{collection = ["main"]}',
        STRONGROOM_GENERATION__DEADLINE_S=str(LIMIT_S),
        STRONGROOM_GENERATION__MAX_TOKENS=str(LEAVE_TOKENS),
        STRONGROOM_CACHE__ENABLED="false",
        **UNLIMITED,
    ) as desk:
        for tenant in TENANTS:
            stored = httpx.put(
                f"{desk.address}/v1/documents/notice.md",
                headers={"Authorization": f"Bearer {desk.house.key(tenant, 'loader', Role.INGEST)}"},
                json={"text": "The notice period in every case is three months.", "allow": ["tenant"]},
            )
            assert stored.status_code == 200, stored.text
        yield desk, watch


def pool_of(base_url: str, **more: Any) -> str:
    terms = {"kind": "sglang", "model": "tiny", "revision": "r1", "replicas": [base_url], "health_s": 600.0}
    terms |= {"first_token_s": LIMIT_S, "stall_s": LIMIT_S, "slots": 100, **more}
    return "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in terms.items()) + "}"
