"""Generation on an SGLang server, or on any other endpoint with OpenAI's chat protocol.

The one HTTP client of the product. Its rules:

* The body is built here from scratch, and a request without a KV salt is never sent (`kind="sglang"`).
* Servers older than 0.5.20 are refused: they concatenate salts, or leave their storage tiers outside them.
* Engine request ids are 32 random hex digits of our own, one per attempt, since the server aborts by prefix.
* One retry, only before anything has arrived, after a random pause. Nothing is retried after the first byte.
* Whoever stops listening stops the engine: the stream is closed and `/abort_request` posted within a second.
* No cookies, no redirects, no proxies from the environment, no header that names a tenant.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http.cookiejar import DefaultCookiePolicy
from typing import Any, cast

import httpx

from generation.endpoint import Endpoint, checked_url
from generation.events import ChatEvent, ErrorEvent, MalformedEvent, StreamTotals, decode_event
from generation.generator import Delta, Finish, GeneratorRefused, ModelIdentity, Piece
from generation.prompt import Prompt
from generation.server_check import check_server_info
from generation.tokens import load_counter
from tenancy.errors import InvalidInput, Unavailable

_ATTEMPTS = 2
_PAUSE_SECONDS = (0.05, 0.25)
_ABORT_SECONDS = 1.0
_TRANSIENT_STATUS = frozenset({429, 502, 503, 504})
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_CONNECTIONS = 64

_log = logging.getLogger(__name__)


class _Interrupted(Unavailable):
    """Nothing of the answer arrived; another attempt may succeed."""


class _TimedOut(Unavailable):
    """The caller's deadline passed; no other attempt is made."""


class SglangGenerator:
    """One model on one endpoint. Use it within one event loop, and `aclose` it there."""

    def __init__(self, endpoint: Endpoint, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Raises `InvalidInput` for an address, model or tokenizer that cannot be used."""
        self._endpoint = endpoint
        self._counter = load_counter(endpoint.tokenizer)
        self._client = httpx.AsyncClient(
            base_url=checked_url(endpoint),
            timeout=httpx.Timeout(None, connect=endpoint.connect_seconds),
            limits=httpx.Limits(max_connections=_CONNECTIONS),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._checked = endpoint.kind != "sglang"
        self._checking = asyncio.Lock()
        self._aborts: set[asyncio.Task[None]] = set()
        if not self.salted:
            _log.warning("the generator %s takes no KV salt: its server may share prefixes", endpoint.base_url)

    @property
    def identity(self) -> ModelIdentity:
        endpoint = self._endpoint
        return ModelIdentity(
            endpoint.model, endpoint.revision, self._counter.name, endpoint.adapter, endpoint.temperature
        )

    @property
    def salted(self) -> bool:
        return self._endpoint.kind == "sglang"

    def count(self, text: str) -> int:
        """By the endpoint's tokenizer file, or `tokens.estimate` where none is configured."""
        return self._counter.count(text)

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        """Stream the model's answer; see `Generator.generate`. `request_id` appears in errors, never at the engine."""
        if self.salted and not salt.strip():
            raise InvalidInput("a generation without a KV salt is never sent", item=request_id)
        for attempt in range(1, _ATTEMPTS + 1):
            totals = StreamTotals(engine_request=secrets.token_hex(16), salted=self.salted)
            body = self._body(prompt, salt, totals.engine_request, max_tokens)
            try:
                async with aclosing(self._events(body, totals, request_id, deadline)) as events:
                    async for event in events:
                        if event.text:
                            yield Delta(event.text)
            except _Interrupted:
                if attempt == _ATTEMPTS:
                    raise
                await asyncio.sleep(min(random.uniform(*_PAUSE_SECONDS), max(0.0, deadline - time.monotonic())))  # noqa: S311 (jitter)
                continue
            except Unavailable as failure:
                if not totals.text:
                    raise
                yield self._finish(prompt, totals, failed=failure.reason)
                return
            yield self._finish(prompt, totals)
            return

    async def aclose(self) -> None:
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await self._client.aclose()

    def _body(self, prompt: Prompt, salt: str, engine_request: str, max_tokens: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._endpoint.requested_model,
            "messages": [{"role": message.role, "content": message.content} for message in prompt.messages],
            "max_tokens": max_tokens,
            "temperature": self._endpoint.temperature,
            "n": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "cache_salt": salt, "rid": engine_request} if self.salted else body

    async def _events(
        self, body: dict[str, Any], totals: StreamTotals, request_id: str, deadline: float
    ) -> AsyncGenerator[ChatEvent, None]:
        """The decoded events of one attempt, noted in `totals`; stops the engine unless the stream ended by itself."""
        await self._check_server(request_id, deadline)
        response: httpx.Response | None = None
        running = True
        try:
            try:
                response = await self._send("POST", "/v1/chat/completions", request_id, deadline, body)
            except (_Interrupted, GeneratorRefused) as refusal:
                cause = refusal.__cause__
                running = cause is not None and not isinstance(cause, _NEVER_SENT)
                raise
            async with aclosing(cast("AsyncGenerator[str, None]", response.aiter_lines())) as lines:
                while (data := await self._next_data(lines, totals, request_id, deadline)) != "[DONE]":
                    event = decode_event(data, self._endpoint.requested_model if self.salted else None)
                    totals.note(event)
                    yield event
            totals.complete()
            running = False
        except ErrorEvent as error:
            running = False
            if error.code in _TRANSIENT_STATUS and not totals.begun:
                raise _Interrupted("the generator's queue is full", item=request_id) from error
            raise GeneratorRefused(f"the generator failed (code {error.code})", item=request_id) from error
        except MalformedEvent as error:
            raise GeneratorRefused(f"the generator's stream is malformed: {error}", item=request_id) from error
        finally:
            if response is not None:
                await response.aclose()
            if running:
                await self._abort(totals.engine_request)

    async def _send(
        self, method: str, path: str, request_id: str, deadline: float, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Send and await the status line; the body is left to be streamed. Raises for any status but 200."""
        headers = {"Authorization": f"Bearer {self._endpoint.api_key}"} if self._endpoint.api_key else {}
        request = self._client.build_request(method, path, json=body, headers=headers)
        try:
            async with _until(deadline):
                response = await self._client.send(request, stream=True)
        except TimeoutError:
            raise _TimedOut("the generator did not answer before the deadline", item=request_id) from None
        except httpx.HTTPError as error:
            self._checked = self._endpoint.kind != "sglang"  # another server may come back under this address
            raise _Interrupted(f"the generator cannot be reached ({type(error).__name__})", item=request_id) from error
        if response.status_code == httpx.codes.OK:
            return response
        await response.aclose()
        status = response.status_code
        if status in _TRANSIENT_STATUS:
            raise _Interrupted(f"the generator is overloaded or away (status {status})", item=request_id)
        raise GeneratorRefused(
            f"the generator refused the request (status {status})",
            item=request_id,
            remedy="check the generator's keys and model, and that the prompt budget fits its context length",
        )

    async def _next_data(
        self, lines: AsyncGenerator[str, None], totals: StreamTotals, request_id: str, deadline: float
    ) -> str:
        """The payload of the next server-sent event (one `data:` line each, as the protocol has it)."""
        while True:
            try:
                async with _until(deadline):
                    line = await anext(lines)
            except TimeoutError:
                raise _TimedOut("the deadline passed while the generator was answering", item=request_id) from None
            except (StopAsyncIteration, httpx.HTTPError) as error:
                kind = Unavailable if totals.begun else _Interrupted
                raise kind("the generator's stream was cut", item=request_id) from error
            if line.startswith("data:"):
                return line[5:].strip()

    async def _check_server(self, request_id: str, deadline: float) -> None:
        """At first use and after every lost connection: the server's version, model and storage tiers."""
        if self._checked:
            return
        async with self._checking:
            if self._checked:
                return
            try:
                response = await self._send("GET", "/server_info", request_id, deadline)
                async with _until(deadline):
                    data = await response.aread()
            except TimeoutError:
                raise _TimedOut("the generator did not describe itself before the deadline", item=request_id) from None
            except httpx.HTTPError as error:
                raise _Interrupted("the generator's description was cut", item=request_id) from error
            check_server_info(data, self._endpoint)
            self._checked = True

    async def _abort(self, engine_request: str) -> None:
        """Tell the engine to stop, whatever happens to this task; at most a second."""
        if not self.salted:
            return
        task = asyncio.create_task(self._post_abort(engine_request))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)
        await asyncio.shield(task)

    async def _post_abort(self, engine_request: str) -> None:
        key = self._endpoint.admin_key or self._endpoint.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with asyncio.timeout(_ABORT_SECONDS):
                response = await self._client.post("/abort_request", json={"rid": engine_request}, headers=headers)
            if response.status_code != httpx.codes.OK:
                _log.warning("the generator refused an abort (status %d): check its admin key", response.status_code)
        except (httpx.HTTPError, TimeoutError) as error:
            _log.warning("an abort did not reach the generator (%s)", type(error).__name__)

    def _finish(self, prompt: Prompt, totals: StreamTotals, failed: str | None = None) -> Finish:
        estimate = (sum(self.count(message.content) for message in prompt.messages), self.count(totals.text))
        return totals.finish(estimate, failed)


def _until(deadline: float) -> asyncio.Timeout:
    return asyncio.timeout(max(0.0, deadline - time.monotonic()))
