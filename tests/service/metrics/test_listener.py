"""The admin listener beside the API's: both serve, both end together, and one that cannot listen is an error."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest
import uvicorn

from service.server import _administered, _Server
from tenancy.errors import Unavailable


async def hello(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def config(port: int = 0) -> uvicorn.Config:
    return uvicorn.Config(hello, host="127.0.0.1", port=port, log_config=None, lifespan="off", ws="none")


class Server(_Server):
    """`up` is set once it listens."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


def listener(port: int = 0) -> Server:
    return Server(config(port), "metrics on", "server.admin.port", signals=False)


def test_both_serve_and_end_together(capsys: pytest.CaptureFixture[str]) -> None:
    async def run() -> None:
        server, admin = Server(config()), listener()

        async def ask() -> None:
            async with httpx.AsyncClient() as client:
                for one in (server, admin):
                    await asyncio.wait_for(one.up.wait(), 60)
                    found = await client.get(f"http://127.0.0.1:{one.port}/")
                    assert found.text == "hello"
            server.should_exit = True

        asked = asyncio.create_task(ask())
        async with _administered(server, admin):
            await server.serve()
        await asked
        assert admin.port is None

    asyncio.run(run())
    said = capsys.readouterr().out
    assert "listening on http://127.0.0.1:" in said
    assert "metrics on http://127.0.0.1:" in said


def test_without_an_admin_listener_there_is_one_server() -> None:
    async def run() -> None:
        server = _Server(config())
        async with _administered(server, None):
            server.should_exit = True
            await server.serve()

    asyncio.run(run())


def test_an_address_that_is_taken_ends_the_server_and_says_so() -> None:
    async def run(port: int) -> None:
        server = _Server(config())
        async with _administered(server, listener(port)):
            await server.serve()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Unavailable, match="cannot be listened on") as found:
            asyncio.run(run(taken.getsockname()[1]))
    assert "server.admin.port" in str(found.value)
