"""A TCP connection between a client and a server of this machine that a test cuts, holds up or garbles.

It knows no protocol: what it does to bytes happens to HTTP and to gRPC alike. What was done is counted, so that a
test waits for it and not for a while.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Fault = Literal["hold", "reset", "half", "garbage"]
"""What happens to an answer: withheld until the fault is over; connection reset in its place; half of it and then the
end; other bytes of the same number.
"""

_LIMIT_S = 30
_PIECE = 1 << 16


class Wire:
    """Listens on `port` and forwards to `target`, a port of this machine."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.connections = 0
        self.tapped = 0
        self.struck = threading.Semaphore(0)
        """Released each time that a fault met an answer."""
        self._fault: Fault | None = None
        self._tap: tuple[int, Callable[[], None]] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)
        self._thread.start()
        self._over = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._run(self._listen)

    @contextmanager
    def fault(self, fault: Fault) -> Iterator[None]:
        """While this lasts, `fault` meets the answers; `struck` counts from here."""
        self.struck = threading.Semaphore(0)
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None
            self._run(self._release)

    @contextmanager
    def away(self) -> Iterator[None]:
        """While this lasts, nobody listens, and what was connected is cut off."""
        self._run(self._shut)
        try:
            yield
        finally:
            self._run(self._listen)

    def after(self, count: int, act: Callable[[], None]) -> None:
        """Call `act` once, when a client has sent `count` more bytes: in the middle of what is longer than that."""
        self._tap = (count, act)

    def close(self) -> None:
        self._run(self._shut)
        self._run(self._release)
        self._run(self._ended)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT_S)
        self._loop.close()

    def _run(self, work: Callable[[], object]) -> None:
        async def awaited() -> None:
            result = work()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(_LIMIT_S)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in self._open:
            _reset(writer)

    def _release(self) -> None:
        over, self._over = self._over, asyncio.Event()
        over.set()

    async def _ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            return
        self._open |= {writer, far_writer}
        directions = (self._asking(reader, far_writer), self._answering(far_reader, writer))
        tasks = [asyncio.create_task(direction) for direction in directions]
        self._tasks.update(tasks)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in (writer, far_writer):
            one.close()
            self._open.discard(one)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.difference_update(tasks)

    async def _asking(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            if self._tap is not None:
                left, act = self._tap
                self._tap = (left - len(data), act)
                if left <= len(data):
                    self._tap = None
                    self.tapped += 1
                    await asyncio.get_running_loop().run_in_executor(None, act)
            writer.write(data)
            await writer.drain()

    async def _answering(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            fault = self._fault
            if fault is not None:
                self.struck.release()
            if fault == "hold":
                await self._over.wait()
            elif fault == "garbage":
                data = os.urandom(len(data))
            elif fault == "half":
                writer.write(data[: len(data) // 2])
                return
            elif fault == "reset":
                _reset(writer)
                return
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close without a goodbye: the other side gets a reset."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
