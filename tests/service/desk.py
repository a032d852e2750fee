"""A house at a served port, for clients that open connections: its generator says what a test wants, and holds where
a test wants to see what a client does in between.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn

from generation.generator import Delta, Finish, FinishReason, Piece, Quote, Usage
from generation.prompt import Prompt
from service.server import server_config
from tests.service.house import House

LIMIT_S: Final = 30.0
CACHED: Final = 7_654_321
"""Tokens that the engine says to have had in its memory: a number that nothing else happens to hold."""


class Speaker:
    """In the place of a generator's `generate`. Its answer is `text`, then what the prompt's first source says.

    `failures` are raised first, one a call; `holds` calls stop after their first piece until they are closed, which
    `held` and `closed` count.
    """

    def __init__(self) -> None:
        self.text = ""
        self.finish: FinishReason = "stop"
        self.failures: list[Exception] = []
        self.holds = 0
        self.breaks: Exception | None = None
        self.held = threading.Semaphore(0)
        self.closed = threading.Semaphore(0)
        self.calls = 0
        self.prompts: list[Prompt] = []
        self.limits: list[int] = []

    async def __call__(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        self.calls += 1
        self.prompts.append(prompt)
        self.limits.append(max_tokens)
        if self.failures:
            raise self.failures.pop(0)
        first = prompt.sources[0]
        said = f"{self.text}{first.text} [{first.key}]"
        yield Delta(said[:4])
        if self.breaks is not None:
            raise self.breaks
        if self.holds:
            self.holds -= 1
            self.held.release()
            try:
                await asyncio.Event().wait()
            finally:
                self.closed.release()
        for start in range(4, len(said), 16):
            yield Delta(said[start : start + 16])
        yield Finish(self.finish, Usage(100, CACHED, 20), (Quote(first.key, 0, len(first.text), first.text),))


class Desk:
    """An application around that of the house: `finished` counts the requests that it is done with, their audit
    included. `spoken` puts the speaker in the place of the house's generator.
    """

    def __init__(self, house: House, *, spoken: bool) -> None:
        self.house = house
        self.speaker = Speaker()
        self.finished = threading.Semaphore(0)
        self.requests = 0
        self.address = ""
        if spoken:
            house.generator.generate = self.speaker  # type: ignore[method-assign]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self.house.app(scope, receive, send)
        finally:
            if scope["type"] == "http":
                self.requests += 1
                self.finished.release()

    def done(self, count: int = 1) -> None:
        """Wait until the application is done with `count` more requests."""
        for _ in range(count):
            assert self.finished.acquire(timeout=LIMIT_S)

    def forget(self) -> None:
        """Begin to count anew."""
        while self.finished.acquire(blocking=False):
            pass
        self.requests = 0
        self.speaker.__init__()  # type: ignore[misc]


@contextmanager
def serving(folder: Path, *, spoken: bool = True, **environment: str) -> Iterator[Desk]:
    desk = Desk(House(folder, **environment), spoken=spoken)
    # Named as TCP, since asyncio sends small segments at once on such sockets alone.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = uvicorn.Server(server_config(desk, desk.house.settings.server))
    desk.address = f"http://127.0.0.1:{listening.getsockname()[1]}"

    async def serve() -> None:
        await server.serve(sockets=[listening])
        await desk.house.services.path.routes.aclose()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield desk
    finally:
        server.should_exit = True
        thread.join()
        desk.house.close()
        listening.close()
