"""One server of a pool: SGLang, or any other with OpenAI's chat protocol. Its rules:

* The body is built here from scratch, and a request without a KV salt is never sent (`kind="sglang"`).
* Servers older than 0.5.20 are refused: they concatenate salts, or leave their storage tiers outside them.
* Engine request ids are 32 random hex digits of our own, one per attempt, since the server aborts by prefix.
* An answer that names another model than the one asked for is refused.
* Whoever stops listening stops the engine: the stream is closed and `/abort_request` posted within a second.
* Nothing is repeated here: one attempt is one request. A server that fails again and again is left alone for a while.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import httpx
import msgspec

from generation.breaker import Breaker, BreakerTerms
from generation.endpoint import Endpoint
from generation.events import ChatEvent, ErrorEvent, MalformedEvent, StreamTotals, WrongModel, decode_event
from generation.generator import Delta, Finish, GeneratorRefused, Misfit, Piece, Rejected
from generation.isolation import Isolation
from generation.lanes import Load
from generation.prompt import Prompt
from generation.proof import NotIsolated
from generation.server_check import check_server_info
from generation.tokens import Counter, load_counter
from generation.wire import Interrupted, Silent, Wire, lines_of
from tenancy.errors import InvalidInput, Unavailable

_CONTROL_SECONDS: Final = 60.0
_HEALTH_SECONDS: Final = 2.0
_TRANSIENT_CODES: Final = frozenset({429, 502, 503, 504})

State = Literal["joining", "serving", "draining"]

_log = logging.getLogger(__name__)


class Adapter(Protocol):
    """A LoRA adapter: `server_name` is its random name at the engine, `path` its folder as the engine sees it."""

    @property
    def server_name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def path(self) -> Path | str: ...

    @property
    def manifest(self) -> Mapping[str, str]:
        """SHA-256 of each file in the folder."""
        ...


class AdapterRefused(GeneratorRefused):
    """The engine did not load, or unload, an adapter."""

    told = "the adapter cannot be loaded now"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that may pass until the first token, and between two."""

    first_token_s: float = 30.0
    stall_s: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one generation asks; `deadline` is an instant of `time.monotonic()`. `request_id` never leaves us.

    `base`: of the model itself, also where the endpoint names an adapter.
    """

    prompt: Prompt
    salt: str
    request_id: str
    max_tokens: int
    deadline: float
    adapter: Adapter | None = None
    base: bool = False


@dataclass(slots=True)
class Attempt:
    """One request at one replica. `lost`: the connection broke under it, as if it had stopped the server.

    `probe`: it is part of the check that other requests wait for.
    """

    totals: StreamTotals
    trial: bool = False
    lost: bool = False
    probe: bool = False
    since: float = field(default_factory=time.monotonic)


class _Model(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: list[_Model] = []


@dataclass(eq=False, slots=True, weakref_slot=True)
class Replica:
    """`name` is unique in its pool. Use it within one event loop, and `aclose` it there.

    That it keeps KV salts apart is shown at every check, and for adapters before the first request with one after it.
    """

    endpoint: Endpoint
    name: str = ""
    isolation: Isolation = field(default_factory=Isolation)
    patience: Patience = field(default_factory=Patience)
    breaker_terms: BreakerTerms = field(default_factory=BreakerTerms)
    connections: int = 64
    counter: Counter | None = None
    transport: httpx.AsyncBaseTransport | None = None
    state: State = "serving"
    load: Load = field(default_factory=Load)
    breaker: Breaker = field(init=False)
    _wire: Wire = field(init=False)
    _checked: bool = field(init=False)
    _checked_at: float = field(init=False, default=0.0)
    _doubted: bool = field(init=False, default=False)
    _adapters_apart: bool = field(init=False, default=False)
    _unanswered: int = field(init=False, default=0)
    _checking: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Raises `InvalidInput` for an address, model or tokenizer that cannot be used."""
        self.name = self.name or self.endpoint.base_url
        # A connection more than requests, for aborts and health checks.
        self._wire = Wire(self.endpoint, connections=2 * self.connections + 2, transport=self.transport)
        self.breaker = Breaker(self.breaker_terms)
        self._checked = not self.salted

    @property
    def salted(self) -> bool:
        return self.endpoint.kind == "sglang"

    @property
    def usable(self) -> bool:
        """Whether a request may be sent there now."""
        return self.state == "serving" and self.breaker.permits and self.isolation.permits

    def due(self, seconds: float) -> bool:
        """Whether it is to be checked again: refused, busy or away in between, or its last check so long ago."""
        aged = self._checked and time.monotonic() - self._checked_at >= seconds
        return self.salted and (aged or self._doubted or self.isolation.refused is not None)

    def begin(self) -> bool:
        return self.breaker.begin()

    def abandon(self) -> None:
        self.breaker.abandon()

    def count(self, text: str) -> int:
        """By the endpoint's tokenizer file, or `tokens.estimate` where none is configured."""
        self.counter = self.counter or load_counter(self.endpoint.tokenizer)
        return self.counter.count(text)

    def attempt(self, *, trial: bool = False, probe: bool = False) -> Attempt:
        """A new request id."""
        totals = StreamTotals(engine_request=secrets.token_hex(16), salted=self.salted)
        return Attempt(totals, trial, probe=probe)

    async def generate(self, request: Request, attempt: Attempt) -> AsyncGenerator[Piece, None]:
        """One attempt; `Interrupted` where another one may succeed, else as `Generator.generate`."""
        if self.salted and not request.salt.strip():
            raise InvalidInput("a generation without a KV salt is never sent", item=request.request_id)
        totals = attempt.totals
        try:
            async with aclosing(self._events(request, attempt)) as events:
                async for event in events:
                    if event.text:
                        yield Delta(event.text, event.usage)
        except Unavailable as failure:
            if not totals.text:
                raise
            yield self._finish(request, totals, failed=failure.reason)
            return
        yield self._finish(request, totals)

    async def check(self, deadline: float | None = None) -> None:
        """Is it the server that it should be? Its version, model, storage tiers, and whether it keeps salts apart; of
        other kinds, whether it answers.

        Raises `Unavailable` and its kinds.
        """
        limit = time.monotonic() + _CONTROL_SECONDS if deadline is None else deadline
        if not self.salted:
            with suppress(Rejected):  # it answers; not every server lists its models
                await self._wire.get("/v1/models", self.name, limit)
            return
        async with self._checking:
            self._checked = False
            await self._check_server(self.name, limit)

    async def require_checked(self, deadline: float) -> None:
        """`check`, where the server has not passed it."""
        if not self._checked:
            await self.check(deadline)

    async def healthy(self) -> bool:
        """Does it answer? Where it does not several times, it is left alone before a request finds out.

        `/v1/models` and not `/health`: SGLang 0.5.23 answers the latter by generating a token, like
        `/health_generate`, and takes a second for it.
        """
        try:
            await self._wire.get("/v1/models", self.name, time.monotonic() + _HEALTH_SECONDS)
        except Rejected:
            pass  # it answers; not every server lists its models
        except Unavailable as failure:
            self._unanswered += 1
            self._checked = self._checked and not (self.salted and isinstance(failure, Interrupted))
            if isinstance(failure, Misfit) or self._unanswered >= self.breaker_terms.failures:
                self.breaker.trip()
            return False
        self._unanswered = 0
        return True

    async def load_adapter(self, name: str, path: Path | str) -> None:
        """Load the adapter in the folder `path` (as the engine sees it) under `name`. Raises `AdapterRefused`,
        `Unavailable`. One that is loaded already under this name is refused by the engine.
        """
        await self._control("/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})

    async def unload_adapter(self, name: str) -> None:
        """Raises `AdapterRefused`, also where it is not loaded, and `Unavailable`."""
        await self._control("/unload_lora_adapter", {"lora_name": name})

    async def adapters(self, deadline: float) -> frozenset[str]:
        """Names of what the engine has loaded: its model and its adapters. Raises `Unavailable` and its kinds."""
        data = await self._wire.get("/v1/models", self.name, deadline)
        try:
            return frozenset(one.id for one in msgspec.json.decode(data, type=_Models).data)
        except (msgspec.DecodeError, RecursionError):
            raise GeneratorRefused("the server's list of models is not OpenAI's", item=self.name) from None

    async def aclose(self) -> None:
        await self._wire.aclose()

    def body(self, request: Request, engine_request: str) -> dict[str, Any]:
        """The whole of what is sent."""
        body: dict[str, Any] = {
            "model": self._requested(request),
            "messages": [{"role": message.role, "content": message.content} for message in request.prompt.messages],
            "max_tokens": request.max_tokens,
            "temperature": self.endpoint.temperature,
            "n": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if not self.salted:
            return body
        # With a count in every event, a stream that is cut has the engine's last one. Others may refuse the option.
        counts = {"include_usage": True, "continuous_usage_stats": True}
        return {**body, "stream_options": counts, "cache_salt": request.salt, "rid": engine_request}

    def _requested(self, request: Request) -> str:
        if request.adapter is not None:
            return f"{self.endpoint.model}:{request.adapter.server_name}"
        return self.endpoint.model if request.base else self.endpoint.requested_model

    async def _events(self, request: Request, attempt: Attempt) -> AsyncGenerator[ChatEvent, None]:
        """The decoded events of one attempt, noted in its totals; stops the engine unless the stream ended itself."""
        totals = attempt.totals
        response: httpx.Response | None = None
        running = False
        try:
            if not attempt.probe:
                await self._require_checked(request)
            running = True
            response = await self._begun(request, totals)
            async with aclosing(lines_of(response)) as lines:
                while (data := await self._next(lines, request, totals)) != "[DONE]":
                    event = decode_event(data, self._expected(request))
                    if not totals.begun and not attempt.probe:
                        self.breaker.succeed(trial=attempt.trial)
                    totals.note(event, request.max_tokens)
                    yield event
            totals.complete()
            running = False
        except ErrorEvent as error:
            running = False
            raise self._noted(_error_of(error, totals, request.request_id), attempt) from error
        except MalformedEvent as error:
            kind = Misfit if isinstance(error, WrongModel) else GeneratorRefused
            refusal = kind(f"the generator's stream is malformed: {error}", item=request.request_id)
            raise self._noted(refusal, attempt) from error
        except Unavailable as failure:
            running = running and (isinstance(failure, Silent) or (isinstance(failure, Interrupted) and failure.lost))
            raise self._noted(failure, attempt) from failure.__cause__
        finally:
            if response is not None:
                await response.aclose()
            if running and self.salted:
                await self._wire.abort(totals.engine_request)

    async def _begun(self, request: Request, totals: StreamTotals) -> httpx.Response:
        limit = min(request.deadline, time.monotonic() + self.patience.first_token_s)
        body = self.body(request, totals.engine_request)
        return await self._wire.send("POST", "/v1/chat/completions", request.request_id, limit, body)

    async def _next(self, lines: AsyncGenerator[str, None], request: Request, totals: StreamTotals) -> str:
        patience = self.patience.stall_s if totals.begun else self.patience.first_token_s
        return await self._wire.next_data(lines, request.request_id, request.deadline, patience, begun=totals.begun)

    def _expected(self, request: Request) -> str:
        named = None if request.adapter or request.base else self.endpoint.answers_as
        return named or self._requested(request)

    def _noted(self, failure: Unavailable, attempt: Attempt) -> Unavailable:
        """What is raised for `failure`, which the breaker has heard of.

        A request that came with little time left (it had waited for a place) says nothing about a silent server.
        """
        hurried = not attempt.totals.begun and time.monotonic() - attempt.since < self.patience.first_token_s / 2
        if not (hurried and isinstance(failure, Silent)):
            self._note(failure, trial=attempt.trial)
        attempt.lost = isinstance(failure, Interrupted) and failure.lost
        if isinstance(failure, Interrupted) and attempt.totals.begun:
            return Unavailable(failure.reason, item=failure.item)
        return failure

    def _note(self, failure: Unavailable, *, trial: bool = False) -> None:
        if isinstance(failure, NotIsolated):
            return  # it is known already
        if isinstance(failure, Misfit):
            if self.breaker.state == "closed":
                _log.error("a replica is left alone (%s): %s", self.name, failure.reason)
            self.breaker.trip()
        elif isinstance(failure, Rejected):
            self.breaker.succeed(trial=trial)
        elif not (isinstance(failure, Silent) and failure.in_time):
            self.breaker.fail()
        if isinstance(failure, Interrupted) and self.salted:
            # Another server may come back under this address; of one that may just be busy it is found out beside.
            self._checked = self._checked and not failure.away
            self._doubted = True

    async def _require_checked(self, request: Request) -> None:
        adapter = request.adapter if self.salted else None
        if self._checked and (adapter is None or self._adapters_apart):
            return
        async with self._checking:
            self.isolation.require()  # whoever had the turn before may have found out
            if not self._checked:
                await self._check_server(request.request_id, request.deadline)
            if adapter is not None and not self._adapters_apart:
                await self.isolation.show(self.name, request.deadline, adapter)
                self._adapters_apart = True

    async def _check_server(self, request_id: str, deadline: float) -> None:
        """At first use and after every lost connection: the server's version, model, storage tiers, and its proof."""
        check_server_info(await self._wire.get("/server_info", request_id, deadline), self.endpoint)
        self._adapters_apart = False
        await self.isolation.show(self.name, deadline)
        self._checked, self._checked_at, self._doubted = True, time.monotonic(), False

    async def _control(self, path: str, body: dict[str, Any]) -> None:
        status, answer = await self._wire.control(path, body, time.monotonic() + _CONTROL_SECONDS)
        if status != httpx.codes.OK:
            # The engine's words quote the adapter's path and what it found there: they go to the log, not to callers.
            _log.warning(
                "the engine %s refused %s (status %d): %.300s",
                self.name,
                path,
                status,
                answer.decode("utf-8", "replace"),
            )
            raise AdapterRefused(f"the engine refused an adapter (status {status})", item=self.name)

    def _finish(self, request: Request, totals: StreamTotals, failed: str | None = None) -> Finish:
        read = sum(self.count(message.content) for message in request.prompt.messages)
        return totals.finish((read, self.count(totals.text)), failed)


def _error_of(error: ErrorEvent, totals: StreamTotals, request_id: str) -> Unavailable:
    if error.code in _TRANSIENT_CODES and not totals.begun:
        return Interrupted("the generator's queue is full", item=request_id)
    return GeneratorRefused(f"the generator failed (code {error.code})", item=request_id)
