"""A real server process on loopback, and clients cheap enough to load it from the same machine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ABRUPT = struct.pack("ii", 1, 0)
UNLIMITED = {
    f"STRONGROOM_ADMISSION__{scope}__{limit}": "1000000000"
    for scope in ("TENANT", "USER")
    for limit in ("REQUESTS_PER_MINUTE", "CONCURRENT", "TOKENS_PER_MINUTE")
}


@contextmanager
def serving(environment: Mapping[str, str], log: Path) -> Iterator[tuple[str, int]]:
    """`strongroom serve` on a free port; gives host and port."""
    program = Path(sys.executable).parent / "strongroom"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [program, "serve", "--port", "0"],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("listening on http://"):
            raise SystemExit(f"the server did not start:\n{log.read_text()[-2000:]}")
        host, _, port = line.strip().removeprefix("listening on http://").rpartition(":")
        yield host, int(port)
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as bytes."""

    data: bytes

    @classmethod
    def post(cls, path: str, key: str, body: Any) -> Sent:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return cls(head.encode() + content)


class Client:
    """One kept-alive HTTP/1.1 connection; several times cheaper than a general client."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, request: Sent) -> bytes:
        """The body of the response. Ends the program where it is not 200."""
        try:
            head, body = await self._exchange(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            # The server gives up a connection that was idle for some seconds.
            self._streams = None
            head, body = await self._exchange(request)
        if not head.startswith(b"http/1.1 200"):
            raise SystemExit(f"unexpected response: {head[:100]!r} {body[:500]!r}")
        return body

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            await self._streams[1].wait_closed()

    async def _exchange(self, request: Sent) -> tuple[bytes, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(request.data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return head, await reader.readexactly(length)


class Stream:
    """One request, and its response of server-sent events, on a connection of their own."""

    def __init__(self, address: tuple[str, int], request: Sent) -> None:
        self._address = address
        self._request = request
        self._writer: asyncio.StreamWriter | None = None
        self.status = 0
        self.body = b""
        """Of a response that is no stream."""

    async def events(self) -> AsyncGenerator[tuple[str, str], None]:
        """Name ("" without one) and data of each event as it comes. Raises where the connection breaks."""
        reader, self._writer = await asyncio.open_connection(*self._address)
        self._writer.write(self._request.data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        self.status = int(head.split(b" ", 2)[1])
        if b"transfer-encoding: chunked" not in head:
            self.body = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            return
        pending = b""
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            pending += (await reader.readexactly(size + 2))[:-2]
            *blocks, pending = pending.split(b"\n\n")
            for block in blocks:
                lines = dict(line.split(": ", 1) for line in block.decode().split("\n"))
                yield lines.get("event", ""), lines["data"]

    def leave(self, *, abruptly: bool = False) -> None:
        """Close the connection, whatever comes over it; `abruptly` without a good-bye (RST)."""
        if self._writer is not None:
            if abruptly:
                self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABRUPT)
            self._writer.transport.abort() if abruptly else self._writer.close()


async def load(address: tuple[str, int], requests: Sequence[Sent], clients: int, seconds: float) -> dict[str, float]:
    """Requests a second, and milliseconds of a request, of so many clients who each wait for their answers."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def run(number: int) -> None:
        client, at = Client(address), number * len(requests) // clients
        while time.perf_counter() < until:
            begun = time.perf_counter()
            await client.send(requests[at % len(requests)])
            times.append(time.perf_counter() - begun)
            at += 1
        await client.close()

    begun = time.perf_counter()
    await asyncio.gather(*(run(number) for number in range(clients)))
    return {"per_s": round(len(times) / (time.perf_counter() - begun), 1), **milliseconds(times)}


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles of times given in seconds, in milliseconds."""
    cuts = statistics.quantiles([*seconds, *seconds], n=100, method="inclusive")
    return {"p50_ms": round(cuts[49] * 1e3, 3), "p99_ms": round(cuts[98] * 1e3, 3)}


def timed(work: Callable[[], Any]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def fsync(directory: Path) -> None:
    """Write 4 KiB and make them durable."""
    with (directory / "fsync").open("wb") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
