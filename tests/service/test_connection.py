"""Connections that send nothing, or a head without an end, over a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from service import connection
from service.connection import Connection

HEAD_S = 0.5
READ_S = 1.0
LIMIT_S = 20.0
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def slow_app(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers later than a head may take."""
    await asyncio.sleep(3 * HEAD_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Endless:
    """Sends without an end, and notes when the other side is gone."""

    def __init__(self) -> None:
        self.sent = 0
        self.gone = asyncio.Event()

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sending = asyncio.create_task(self._send(send))
        while (await receive())["type"] != "http.disconnect":
            pass
        sending.cancel()
        self.gone.set()

    async def _send(self, send: Any) -> None:
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            self.sent += 1
            await asyncio.sleep(0)


def talk(said: Talk, app: Any = slow_app) -> None:
    async def main() -> None:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        config.load()
        loop, state = asyncio.get_running_loop(), ServerState()
        server = await loop.create_server(lambda: Connection(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(LIMIT_S):
            await said(reader, writer)
        writer.close()
        server.close()
        await server.wait_closed()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_S", HEAD_S)
    monkeypatch.setattr(connection, "READ_S", READ_S)


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: "])
def test_a_head_that_does_not_end_is_cut_off(sent: bytes) -> None:
    async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        assert await reader.read() == b""

    talk(said)


def test_a_slow_answer_is_not_and_the_next_head_is_again() -> None:
    async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET / HT")
        assert await reader.read() == b""

    talk(said)


def test_who_reads_nothing_is_let_go() -> None:
    app = Endless()

    async def said(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await app.gone.wait()
        writer.transport.abort()

    talk(said, app)


def test_who_reads_slowly_is_not() -> None:
    app = Endless()

    async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(8):
            await asyncio.sleep(READ_S / 4)
            begun = app.sent
            while app.sent == begun:
                assert await reader.read(65_536)
        assert not app.gone.is_set()
        writer.transport.abort()

    talk(said, app)
