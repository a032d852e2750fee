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
LIMIT_S = 20.0
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def slow_app(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers later than a head may take."""
    await asyncio.sleep(3 * HEAD_S)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def talk(said: Talk) -> None:
    async def main() -> None:
        config = uvicorn.Config(slow_app, log_config=None, lifespan="off")
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
