"""A pool: one model at one trust level, on as many replicas as it has. To whoever asks it is one generator.

A request goes to the least loaded replica. It is repeated at most once, after a random pause, only inside the pool and
only where nothing of the answer has arrived. A request under which two replicas stopped is refused for a while; after
the first it is tried again alone, so that its neighbours are not suspected with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from admission.fair import Party
from admission.shares import Share
from generation.endpoint import Endpoint
from generation.generator import Finish, ModelIdentity, Piece, prompt_tokens
from generation.isolation import Company, refusal_of
from generation.lanes import Lanes, LaneTerms
from generation.pieces import Ahead, charge
from generation.prompt import Prompt
from generation.proof import NotIsolated
from generation.quarantine import Quarantine
from generation.replica import Adapter, Replica, Request
from generation.serving import Serving
from generation.tokens import load_counter
from generation.wire import Interrupted
from tenancy.errors import InvalidInput, StrongroomError, Unavailable

_ATTEMPTS: Final = 2
_PAUSE_SECONDS: Final = (0.05, 0.25)
_HEALTH_JITTER: Final = (0.8, 1.2)

_log = logging.getLogger(__name__)

Check = Callable[[Replica], Awaitable[None]]


class Loader(Protocol):
    """Sees to it that a replica has an adapter as long as a request needs it there."""

    def lent(self, replica: Replica, adapter: Adapter, deadline: float) -> AbstractAsyncContextManager[None]:
        """Raises `AdapterRefused` and other kinds of `Unavailable`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTerms:
    """`trust` is the level that no request of the pool leaves; `dedicated_to` the one tenant (name) that it serves.

    `waived`: it serves although nothing has shown that its servers keep KV memory apart. That is tested again every
    `prove_s` seconds.
    """

    name: str = "default"
    trust: str = "shared"
    dedicated_to: str | None = None
    lanes: LaneTerms = field(default_factory=LaneTerms)
    health_s: float = 10.0
    quarantine_s: float = 600.0
    prove_s: float = 3_600.0
    waived: bool = False


class Pool:
    """Implements `Generator` for the pool's own model; `serving` gives it for a tenant, or with an adapter.

    `admit` is what a replica has to show before it joins (by default `Replica.check`), `loader` loads adapters. Use it
    within one event loop, and `aclose` it there.
    """

    def __init__(
        self,
        replicas: Iterable[Replica],
        terms: PoolTerms | None = None,
        *,
        loader: Loader | None = None,
        admit: Check | None = None,
    ) -> None:
        """Raises `InvalidInput` for no replica, or replicas of different models."""
        self.terms = terms or PoolTerms()
        self.replicas = tuple(replicas)
        if not self.replicas:
            raise InvalidInput("a pool needs at least one replica", item=f"generation.pools.{self.terms.name}.replicas")
        first = self.replicas[0].endpoint
        self.endpoint = first
        for one in self.replicas:
            self._require_same_model(one)
        self.loader = loader
        self.admit: Check = admit or Replica.check
        self._counter = load_counter(first.tokenizer)
        for one in self.replicas:
            self._take(one)
        self.company = Company(self.terms.name)
        self._lanes: Lanes[Replica] = Lanes(lambda: self.replicas, self.terms.lanes)
        self.occupancy = self._lanes.occupancy
        self._quarantine = Quarantine(self.terms.quarantine_s)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        if not self.salted:
            _log.warning("the generator %s takes no KV salt: its server may share prefixes", first.base_url)

    @classmethod
    def of(cls, *endpoints: Endpoint, name: str = "default", trust: str = "shared") -> Pool:
        """A pool of `endpoints` with default terms."""
        return cls([Replica(endpoint) for endpoint in endpoints], PoolTerms(name=name, trust=trust))

    @property
    def name(self) -> str:
        return self.terms.name

    @property
    def identity(self) -> ModelIdentity:
        return self.identity_with(None)

    def identity_with(self, adapter: Adapter | None) -> ModelIdentity:
        endpoint = self.endpoint
        named = endpoint.adapter if adapter is None else f"{adapter.server_name}@{adapter.revision}"
        return ModelIdentity(endpoint.model, endpoint.revision, self._counter.name, named, endpoint.temperature)

    @property
    def salted(self) -> bool:
        return self.endpoint.kind == "sglang"

    def count(self, text: str) -> int:
        """By the model's tokenizer file, or `tokens.estimate` where none is configured."""
        return self._counter.count(text)

    def serving(self, who: Party | str | None, adapter: Adapter | None = None) -> Serving:
        """The pool's generator for one user of a tenant, or a tenant (id), and with an adapter of its."""
        return Serving(self, Party(who) if isinstance(who, str) else who, adapter)

    def adapted(self, adapter: Adapter) -> Serving:
        return self.serving(None, adapter)

    def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        """See `Generator.generate`. Raises also `Quarantined`."""
        return self.stream(
            Request(prompt=prompt, salt=salt, request_id=request_id, max_tokens=max_tokens, deadline=deadline)
        )

    async def stream(self, request: Request, party: Party | None = None) -> AsyncGenerator[Piece, None]:
        """On the account of `party`: its turn comes as it received less than others."""
        tenant = None if party is None else party.tenant
        if self.salted and not request.salt.strip():
            raise InvalidInput("a generation without a KV salt is never sent", item=request.request_id)
        self._require_apart(tenant)
        self._watch()
        named = self._named(request)
        digest = self._quarantine.digest(request.prompt, tenant=tenant, model=named, max_tokens=request.max_tokens)
        self._quarantine.require_free(digest, request.request_id)
        tokens = prompt_tokens(request.prompt, self.count)
        tried: list[Replica] = []
        ahead: Ahead[Replica] = Ahead()
        attempt = partial(self._attempt, digest=digest, party=party, ahead=ahead)
        await ahead.read(request, tokens if self.salted else 0, self._lanes, attempt)
        while True:
            self._quarantine.require_free(digest, request.request_id)
            try:
                async with aclosing(attempt(request, tokens, tried=tried)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except NotIsolated:
                if not self.available:
                    raise
                tried.pop()  # nothing was asked of it
                continue
            except Interrupted:
                self._quarantine.require_free(digest, request.request_id)
                if len(tried) >= _ATTEMPTS:
                    raise
            await asyncio.sleep(min(random.uniform(*_PAUSE_SECONDS), max(0.0, request.deadline - time.monotonic())))  # noqa: S311 (jitter)

    async def _attempt(
        self,
        request: Request,
        tokens: int,
        *,
        digest: bytes,
        party: Party | None,
        ahead: Ahead[Replica],
        tried: list[Replica] | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """One attempt at one replica, which is added to `tried`, for what was not read `ahead`; without, to read so."""
        async with AsyncExitStack() as alone:
            if self._quarantine.suspected(digest):
                await alone.enter_async_context(self._quarantine.alone(request.deadline))
            asked = time.monotonic()
            unread, avoid = (tokens, tried) if tried else (tokens - ahead.tokens, ahead.elsewhere(self.replicas))
            room = self._lanes.enter(unread, party=party, avoid=avoid, piece=tried is None, deadline=request.deadline)
            ticket = await room
            waited = time.monotonic() - asked
            replica = ahead.seat = ticket.seat
            if tried is not None:
                tried.append(replica)
            attempt = replica.attempt(trial=ticket.trial)
            try:
                async with self._lent(replica, request), aclosing(replica.generate(request, attempt)) as pieces:
                    async for said in pieces:
                        ticket.begun()
                        await alone.aclose()
                        charge(ticket, said)
                        told = ahead.told(said)
                        yield replace(told, waited_s=waited) if isinstance(told, Finish) else told
            except Unavailable as failure:
                ticket.refund()
                _log.warning("an attempt failed at the replica %s of %s: %s", replica.name, self.name, failure.reason)
                if failure.told is None:
                    failure.item = request.request_id  # an asker reads it: never a server's address
                raise
            finally:
                ticket.leave()
                if attempt.lost:
                    self._quarantine.crashed(digest)
            if not attempt.lost and tried is not None:  # a beginning that was read answers nothing
                self._quarantine.cleared(digest)

    async def join(self, replica: Replica) -> None:
        """Let `replica` serve from now on, after its check. Raises what the check raises."""
        self._require_same_model(replica)
        self._take(replica)
        await self.admit(replica)
        replica.state = "serving"
        if replica not in self.replicas:
            self.replicas = (*self.replicas, replica)
        self._lanes.wake()

    @property
    def load(self) -> tuple[int, int]:
        """Requests that wait for a replica, and those at one."""
        return self._lanes.waiting, sum(replica.load.requests for replica in self.replicas)

    def take_shares(self) -> dict[str, Share]:
        """Service received and due by tenant id, since this was called last."""
        return self._lanes.fair.shares.take()

    @property
    def available(self) -> bool:
        """Whether a request could be sent to a replica now."""
        return any(replica.usable for replica in self.replicas)

    async def examine(self) -> dict[Replica, StrongroomError | None]:
        """Check every replica that serves, also where it has passed before; what is wrong with each."""
        self._watch()
        serving = [replica for replica in self.replicas if replica.state == "serving"]
        found = await asyncio.gather(*(_fault(replica) for replica in serving))
        self._lanes.wake()
        return dict(zip(serving, found, strict=True))

    @property
    def refusal(self) -> NotIsolated | None:
        """Why nobody is served here, where that is for want of isolation."""
        if self.terms.waived:
            return None
        if self.salted:
            return refusal_of([replica.isolation for replica in self.replicas if replica.state != "draining"])
        return None if self.terms.dedicated_to else self.company.refusal

    def _require_apart(self, tenant: str | None) -> None:
        if (refusal := self.refusal) is not None:
            raise refusal.again()
        if not self.salted and not self.terms.waived and not self.terms.dedicated_to:
            self.company.require_alone(tenant)

    async def drain(self, replica: Replica) -> None:
        """Give `replica` nothing new, let its streams end, and close it."""
        replica.state = "draining"
        self._lanes.wake()
        await self._lanes.idle(replica)
        self.replicas = tuple(one for one in self.replicas if one is not replica)
        await replica.aclose()

    def reload(self, replicas: Iterable[Replica], terms: PoolTerms) -> None:
        """`replicas` are those of the pool from now on; those that are there already stay as they are.

        New ones join after their check, which is repeated until they pass it; the others are drained, the last ones
        only when a new one has joined. Returns at once. Raises `InvalidInput` for replicas of another model.
        """
        wanted = {replica.endpoint: replica for replica in replicas}
        for replica in wanted.values():
            self._require_same_model(replica)
        here = {replica.endpoint for replica in self.replicas if replica.state == "serving"}
        new = [replica for endpoint, replica in wanted.items() if endpoint not in here]
        gone = [one for one in self.replicas if one.endpoint not in wanted and one.state == "serving"]
        self.terms = terms
        for replica in self.replicas:
            self._take(replica)
        self._lanes.terms = terms.lanes
        self._lanes.wake()
        if self._settling is not None:
            self._settling.cancel()
        self._settling = asyncio.get_running_loop().create_task(self._settle(new, gone))
        self._beside(self.examine())

    async def retire(self) -> None:
        """Take nothing new, let every stream end, and close."""
        if self._settling is not None:
            self._settling.cancel()
        await asyncio.gather(*(self.drain(replica) for replica in self.replicas))
        await self.aclose()

    async def settled(self) -> None:
        """Return when the last `reload` is done with: new replicas serve, and old ones are closed."""
        if self._settling is not None:
            await asyncio.wait([self._settling])
        await asyncio.gather(*self._tasks)

    async def aclose(self) -> None:
        tasks = [task for task in (self._watching, self._settling, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for replica in self.replicas:
            await replica.aclose()

    async def _settle(self, new: list[Replica], gone: list[Replica]) -> None:
        try:
            while new or gone:
                new = [replica for replica in new if not await self._joined(replica)]
                if any(one.usable and one not in gone for one in self.replicas):
                    for replica in gone:
                        self._beside(self.drain(replica))
                    gone = []
                if new or gone:
                    await asyncio.sleep(self._next_look())
        finally:
            for replica in new:
                await replica.aclose()

    def _beside(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _joined(self, replica: Replica) -> bool:
        try:
            await self.join(replica)
        except StrongroomError as failure:
            _log.warning("a replica does not join its pool yet (%s): %s", replica.name, failure.reason)
            return False
        return True

    def could_have(self, replica: Replica, terms: PoolTerms) -> bool:
        """Whether `replica` runs the pool's model, and `terms` keep the pool's trust level and tenant."""
        kept = (terms.trust, terms.dedicated_to) == (self.terms.trust, self.terms.dedicated_to)
        return kept and replica.endpoint.anywhere == self.endpoint.anywhere

    def _take(self, replica: Replica) -> None:
        replica.counter = self._counter
        replica.isolation.waived = self.terms.waived

    def _require_same_model(self, replica: Replica) -> None:
        if replica.endpoint.anywhere != self.endpoint.anywhere:
            raise InvalidInput("the replicas of a pool run one model", item=f"generation.pools.{self.name}")

    def _lent(self, replica: Replica, request: Request) -> AbstractAsyncContextManager[None]:
        if request.adapter is None:
            return nullcontext()
        if self.loader is None:
            raise Unavailable("this pool loads no adapters", item=self.name)
        return self.loader.lent(replica, request.adapter, request.deadline)

    def _named(self, request: Request) -> str:
        return request.adapter.server_name if request.adapter else self.endpoint.requested_model

    def _watch(self) -> None:
        """Look at the replicas' health now and then, from the first request on: before it there is no event loop."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._look_after())

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(self._next_look())
            await asyncio.gather(*(self._look_at(one) for one in self.replicas if one.state == "serving"))
            self._lanes.wake()

    async def _look_at(self, replica: Replica) -> None:
        if await replica.healthy() and replica.due(self.terms.prove_s):
            await _fault(replica)  # then it is refused, or the next request sees to it

    def _next_look(self) -> float:
        return self.terms.health_s * random.uniform(*_HEALTH_JITTER)  # noqa: S311 (jitter)


async def _fault(replica: Replica) -> StrongroomError | None:
    try:
        await replica.check()
    except StrongroomError as failure:
        return failure
    return None
