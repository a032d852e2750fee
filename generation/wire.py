"""The one HTTP client of the product, to a server with OpenAI's chat protocol.

No cookies, no redirects, no proxies from the environment, no header that names a tenant; user key and admin key each
for its own endpoints. Nothing that a server sends is unpacked, and of a line or an answer only so much is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import httpx

from generation.endpoint import Endpoint, authorities, checked_url
from generation.events import MalformedEvent
from generation.generator import GeneratorRefused, Misfit, Rejected
from tenancy.errors import Unavailable

_ABORT_SECONDS: Final = 10.0
_ABORT_WAIT_SECONDS: Final = 1.0
_ABORT_TRIES: Final = 2
_IDLE_SECONDS: Final = 2.0  # less than servers keep one (uvicorn: 5), or a request would meet a connection just closed
_TRANSIENT_STATUS: Final = frozenset({429, 502, 503, 504})
_NOBODY_THERE: Final = frozenset({502, 504})
_WRONG_KEY: Final = frozenset({401, 403})
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_MOST_ERROR_BYTES: Final = 65_536
_MOST_BYTES: Final = 4 << 20
"""Of a short answer."""
_LONGEST_LINE: Final = 1 << 20
"""Bytes of an event."""

_log = logging.getLogger(__name__)


class Interrupted(Unavailable):
    """Nothing of the answer arrived; another attempt may succeed. `lost`: the connection broke under the request.

    `away`: the server was not there, and another one may come in its place.
    """

    def __init__(self, reason: str, *, item: str | None = None, lost: bool = False, away: bool = False) -> None:
        super().__init__(reason, item=item)
        self.lost = lost
        self.away = away or lost


class Silent(Unavailable):
    """The server said nothing for too long, or the deadline passed; no other attempt is made.

    `in_time`: it was answering, and the caller's deadline ended it.
    """

    def __init__(self, reason: str, *, item: str | None = None, in_time: bool = False) -> None:
        super().__init__(reason, item=item)
        self.in_time = in_time


class Wire:
    """One server. Use it within one event loop, and `aclose` it there."""

    def __init__(
        self, endpoint: Endpoint, *, connections: int, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Raises `InvalidInput` for an address or a file of authorities that cannot be used."""
        self._endpoint = endpoint
        self._client = httpx.AsyncClient(
            base_url=checked_url(endpoint),
            timeout=httpx.Timeout(None, connect=endpoint.connect_seconds),
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=_IDLE_SECONDS),
            verify=authorities(endpoint),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            headers={"Accept-Encoding": "identity"},
        )
        self._client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self._aborts: set[asyncio.Task[None]] = set()

    async def send(
        self, method: str, path: str, request_id: str, deadline: float, body: dict[str, Any] | None = None
    ) -> httpx.Response:
        """Send and await the status line; the body is left to be streamed.

        Raises for any status but 200: `Interrupted`, `Silent`, `Misfit`, `GeneratorRefused`.
        """
        request = self._client.build_request(method, path, json=body, headers=self._key(self._endpoint.api_key))
        try:
            async with until(deadline):
                response = await self._client.send(request, stream=True)
        except TimeoutError:
            raise Silent("the generator did not answer before the deadline", item=request_id) from None
        except httpx.HTTPError as error:
            lost = not isinstance(error, _NEVER_SENT)
            reason = f"the generator cannot be reached ({type(error).__name__})"
            raise Interrupted(reason, item=request_id, lost=lost, away=True) from error
        if response.status_code == httpx.codes.OK and not _packed(response):
            return response
        await response.aclose()
        if response.status_code == httpx.codes.OK:
            raise Misfit("the generator's answer is compressed, unasked", item=request_id)
        status = response.status_code
        if status in _TRANSIENT_STATUS:
            reason = f"the generator is overloaded or away (status {status})"
            raise Interrupted(reason, item=request_id, away=status in _NOBODY_THERE)
        raise _kind(status)(
            f"the generator refused the request (status {status})",
            item=request_id,
            remedy="check the generator's keys and model, and that the prompt budget fits its context length",
        )

    async def next_data(
        self, lines: AsyncGenerator[str, None], request_id: str, deadline: float, patience_s: float, *, begun: bool
    ) -> str:
        """The payload of the next server-sent event (one `data:` line each, as the protocol has it)."""
        limit = min(deadline, time.monotonic() + patience_s)
        while True:
            try:
                async with until(limit):
                    line = await anext(lines)
            except TimeoutError:
                when = "while the generator was answering" if begun else "before the generator began to answer"
                late = limit == deadline
                what = "the deadline passed" if late else f"nothing came for {patience_s:g} s"
                raise Silent(f"{what} {when}", item=request_id, in_time=late and begun) from None
            except (StopAsyncIteration, httpx.HTTPError) as error:
                raise Interrupted("the generator's stream was cut", item=request_id, lost=True) from error
            if line.startswith("data:"):
                return line[5:].strip()

    async def get(self, path: str, request_id: str, deadline: float) -> bytes:
        """A short answer as a whole. Raises as `send`."""
        response = await self.send("GET", path, request_id, deadline)
        try:
            async with until(deadline):
                data = await _beginning(response, _MOST_BYTES + 1)
        except TimeoutError:
            raise Silent("the generator did not answer before the deadline", item=request_id) from None
        except httpx.HTTPError as error:
            raise Interrupted("the generator's answer was cut", item=request_id, lost=True) from error
        finally:
            await response.aclose()
        if len(data) > _MOST_BYTES:
            raise GeneratorRefused("the generator's answer is longer than such an answer can be", item=request_id)
        return data

    async def control(self, path: str, body: dict[str, Any], deadline: float) -> tuple[int, bytes]:
        """POST to a control endpoint with the admin key; status and the beginning of the answer.

        Raises `Interrupted`, `Silent`.
        """
        headers = self._key(self._endpoint.admin_key or self._endpoint.api_key)
        try:
            async with until(deadline), self._client.stream("POST", path, json=body, headers=headers) as response:
                return response.status_code, await _beginning(response, _MOST_ERROR_BYTES)
        except TimeoutError:
            raise Silent("the generator did not answer in time", item=path) from None
        except httpx.HTTPError as error:
            raise Interrupted(f"the generator cannot be reached ({type(error).__name__})", item=path) from error

    async def abort(self, engine_request: str) -> None:
        """Tell the engine to stop, whatever happens to this task, which waits for its word a second at most."""
        task = asyncio.create_task(self._abort(engine_request))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)
        await asyncio.wait({task}, timeout=_ABORT_WAIT_SECONDS)

    async def aclose(self) -> None:
        await asyncio.gather(*self._aborts, return_exceptions=True)
        await self._client.aclose()

    async def _abort(self, engine_request: str) -> None:
        deadline, failed = time.monotonic() + _ABORT_SECONDS, ""
        for _ in range(_ABORT_TRIES):
            try:
                status, _ = await self.control("/abort_request", {"rid": engine_request}, deadline)
            except Unavailable as error:
                failed = error.reason
                continue
            if status != httpx.codes.OK:
                _log.warning("the generator refused an abort (status %d): check its admin key", status)
            return
        _log.warning("an abort did not reach the generator (%s)", failed)

    def _key(self, key: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}


async def lines_of(response: httpx.Response) -> AsyncGenerator[str, None]:
    """The lines of a stream. They end as those of events do: other signs that end lines may stand in an answer.

    Raises `MalformedEvent` for one that is longer than an event can be.
    """
    held = bytearray()
    async for data in response.aiter_raw():
        if b"\n" in data:
            *ended, rest = bytes(held + data).split(b"\n")
            for line in ended:
                yield line.decode("utf-8", "replace")
            held[:] = rest
        else:
            held += data
        if len(held) > _LONGEST_LINE:
            raise MalformedEvent("an event is longer than an event can be")
    if held:
        yield held.decode("utf-8", "replace")


async def _beginning(response: httpx.Response, most: int) -> bytes:
    """The first `most` bytes of the body, as they came."""
    data = bytearray()
    async for part in response.aiter_raw():
        data += part
        if len(data) >= most:
            break
    return bytes(data[:most])


def _packed(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def _kind(status: int) -> type[GeneratorRefused]:
    if status in _WRONG_KEY:
        return Misfit
    return Rejected if status < httpx.codes.INTERNAL_SERVER_ERROR else GeneratorRefused


def until(deadline: float) -> asyncio.Timeout:
    """Raises `TimeoutError` at `deadline`, an instant of `time.monotonic()`."""
    return asyncio.timeout(max(0.0, deadline - time.monotonic()))
