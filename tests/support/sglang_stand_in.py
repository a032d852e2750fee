"""A stand-in for SGLang that fails on demand: for faults only. It answers with what a real server was recorded to say.

The recordings are in `tests/generation/recordings`; `tests/generation/test_sglang_real.py` holds them to the server.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from generation.selftest import INSTRUCTION

RECORDINGS = Path(__file__).parents[1] / "generation" / "recordings"


@dataclass(frozen=True, slots=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class Connection:
    """One response in the making."""

    def __init__(self, writer: asyncio.StreamWriter, server: StandIn, request: Received) -> None:
        self.server = server
        self.request = request
        self._writer = writer

    async def respond(self, status: int, body: str, *headers: str) -> None:
        data = body.encode()
        head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(data)}", *headers]
        await self.write("\r\n".join([*head, "Connection: close", "", ""]).encode() + data)

    async def begin_stream(self) -> None:
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
        await self.write(f"{head}Set-Cookie: track=1\r\nConnection: close\r\n\r\n".encode())

    async def send(self, line: str) -> None:
        data = f"{line}\n\n".encode()
        await self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def end_stream(self) -> None:
        await self.write(b"0\r\n\r\n")

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


Fault = Callable[[Connection], Awaitable[None]]

_CONTROLS = {
    "/v1/models": "models", "/load_lora_adapter": "adapter_loaded", "/unload_lora_adapter": "adapter_unloaded"
}  # fmt: skip


@dataclass(slots=True)
class StandIn:
    """`faults` are taken one by one by generations; when none is left, `usual` follows: the recorded answer.

    `controls` answer other paths than generations. `running` counts requests that are being answered, by path.
    Self-tests are no generations: `memory` says what they find, and `tests` counts them.
    """

    base_url: str = ""
    faults: list[Fault] = field(default_factory=list)
    usual: Fault = field(default_factory=lambda: answer)
    controls: dict[str, Fault] = field(default_factory=dict)
    running: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    memory: Memory = field(default_factory=lambda: Memory())
    tests: int = 0
    info: dict[str, Any] = field(default_factory=lambda: json.loads(recording("server_info")["body"]))
    received: list[Received] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)

    def requests(self, path: str) -> list[Received]:
        return [request for request in self.received if request.path == path]

    @property
    def generations(self) -> list[Received]:
        return [request for request in self.requests("/v1/chat/completions") if not is_test(request)]

    @property
    def aborts(self) -> list[str]:
        return [request.body["rid"] for request in self.requests("/abort_request")]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await _read(reader)
            self.received.append(request)
            await self._answer(Connection(writer, self, request))
        except (ConnectionError, asyncio.IncompleteReadError):
            self.disconnected.set()
        finally:
            writer.close()

    async def _answer(self, connection: Connection) -> None:
        path = connection.request.path
        if path == "/abort_request":
            self.aborted.set()
        if path in self.controls:
            await self.controls[path](connection)
        elif path == "/server_info":
            await connection.respond(200, json.dumps(self.info))
        elif path == "/abort_request":
            await connection.respond(200, "")
        elif path in _CONTROLS:
            await replay(_CONTROLS[path])(connection)
        elif is_test(connection.request):
            self.tests += 1
            await stream(connection, tested_lines(connection, self.memory))
        else:
            await self._generate(connection)

    async def _generate(self, connection: Connection) -> None:
        self.running[connection.request.path] += 1
        self.most_at_once = max(self.most_at_once, self.running.total())
        try:
            await (self.faults.pop(0) if self.faults else self.usual)(connection)
        finally:
            self.running[connection.request.path] -= 1


@dataclass(slots=True)
class Memory:
    """Whose prompts a request finds in the engine's memory: those of its own salt (and adapter), as it should be; all
    of them; none; or those of its salt whatever the adapter. `size` is the tokens of every prompt.
    """

    found: Literal["salted", "all", "none", "any adapter"] = "salted"
    size: int = 600
    held: set[tuple[str, ...]] = field(default_factory=set)

    def cached(self, body: Any) -> int:
        """Tokens of the prompt that were there before; it is there now."""
        prompt = json.dumps(body["messages"])
        keys = {
            "salted": (prompt, body["cache_salt"], body["model"]),
            "all": (prompt,),
            "any adapter": (prompt, body["cache_salt"]),
            "none": (prompt, body["rid"]),
        }
        key = keys[self.found]
        before = key in self.held
        self.held.add(key)
        return self.size - 1 if before else 0


def is_test(request: Received) -> bool:
    return bool(request.body) and request.body["messages"][0]["content"].startswith(INSTRUCTION)


def tested_lines(connection: Connection, memory: Memory) -> list[str]:
    """The recorded stream, of the model that was asked for, with what `memory` had of the prompt."""
    lines = recorded_lines("stream", connection)
    asked = connection.request.body["model"]
    lines = [line.replace('"model":"tiny"', f'"model":"{asked}"') for line in lines]
    usage = json.loads(lines[-2].removeprefix("data: "))
    usage["usage"]["prompt_tokens"] = memory.size
    usage["usage"]["prompt_tokens_details"]["cached_tokens"] = memory.cached(connection.request.body)
    return [*lines[:-2], f"data: {json.dumps(usage)}", lines[-1]]


@asynccontextmanager
async def stand_in(*faults: Fault) -> AsyncIterator[StandIn]:
    state = StandIn(faults=list(faults))
    server = await asyncio.start_server(state._serve, "127.0.0.1", 0)
    state.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        state.release.set()
        server.close()
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, json.loads(body) if body else None)


def recording(name: str) -> dict[str, Any]:
    """What the real server answered: status, content_type, and `lines` (a stream) or `body`."""
    return dict(json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8")))


def recorded_lines(name: str, connection: Connection) -> list[str]:
    """A recorded stream with the id of the request that is being answered."""
    lines: list[str] = recording(name)["lines"]
    recorded_id = json.loads(lines[-2].removeprefix("data: "))["id"]
    return [line.replace(recorded_id, connection.request.body.get("rid", recorded_id)) for line in lines]


async def answer(connection: Connection) -> None:
    await stream(connection, recorded_lines("stream", connection))


async def stream(connection: Connection, lines: list[str]) -> None:
    await connection.begin_stream()
    for line in lines:
        await connection.send(line)
    await connection.end_stream()


def replay(name: str) -> Fault:
    """A recorded answer, whatever it is."""

    async def fault(connection: Connection) -> None:
        recorded = recording(name)
        if "lines" in recorded:
            await stream(connection, recorded_lines(name, connection))
        else:
            await connection.respond(recorded["status"], recorded["body"])

    return fault


def status(code: int) -> Fault:
    async def fault(connection: Connection) -> None:
        await connection.respond(code, json.dumps({"object": "error", "message": "no", "code": code}))

    return fault


def cut_after(events: int) -> Fault:
    """The connection closes in the middle of the stream; with 0 events, before its first."""

    async def fault(connection: Connection) -> None:
        await connection.begin_stream()
        for line in recorded_lines("stream", connection)[:events]:
            await connection.send(line)

    return fault


def stall_after(events: int) -> Fault:
    """The stream stops until the test lets it go on."""

    async def fault(connection: Connection) -> None:
        lines = recorded_lines("stream", connection)
        await connection.begin_stream()
        for line in lines[:events]:
            await connection.send(line)
        await connection.server.release.wait()

    return fault


async def silent(connection: Connection) -> None:
    """Takes the request and says nothing."""
    await connection.server.release.wait()


async def hang_up(connection: Connection) -> None:
    """Takes the request and closes."""


def tampered(at: int, line: str) -> Fault:
    """The recorded stream with one line replaced."""

    async def fault(connection: Connection) -> None:
        lines = recorded_lines("stream", connection)
        await stream(connection, [*lines[:at], line, *lines[at + 1 :]])

    return fault
