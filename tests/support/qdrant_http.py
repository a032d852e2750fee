"""A stand-in for a Qdrant server, for faults of the server and of HTTP alone: `python -m tests.support.qdrant_http`.

No package carries a Qdrant server. This one is a process of its own, so that it can be killed, and speaks the few REST
calls that the adapter makes. Behind them is Qdrant's own engine in process (`tests/support/qdrant_edge.py`), whose
collections outlive a kill. What it says where something is wrong (401, 404, 409, 429, 500, 507 and their bodies)
follows Qdrant's documentation and was never compared with a real server; nothing here shows how a real one behaves
when its disk or memory is full, only what the product does with such answers.

Nothing about the meaning of filters, scores or recall is tested with it: see `tests/conformance`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_CONTROL = "/stand-in"
_BODIES = {
    "400": "Wrong input: Vector dimension error: point 17 with payload {'document': 3}",
    "429": "Too many requests",
    "500": "Service internal error: Wal error: Can't write WAL: No space left on device (os error 28)",
    "503": "Service is starting",
    "507": "Service internal error: Not enough space available for optimization",
}
_UUID = "5c56c793-69f3-4fbf-87e6-c4bf54c28c26"
_WRONG = {
    "null": {"result": None},
    "shape": {"result": {"points": {"id": "x"}}},
    "ids": {"result": {"points": [{"id": _UUID, "version": 1, "score": 0.5}], "exists": False}},
    "list": [1],
    "empty": {},
}


class QdrantHttp:
    """One server with the data in `folder`. `key` is asked of every request where it is not empty."""

    def __init__(self, folder: Path, key: str = "") -> None:
        self.folder = folder
        self.key = key
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it listens, on the same port as before."""
        command = [sys.executable, "-m", "tests.support.qdrant_http", str(self.folder), str(self.port)]
        root = Path(__file__).parents[2]
        environment = {**os.environ, "STAND_IN_KEY": self.key}
        self._process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        assert words[:1] == ["listening"], "the stand-in did not start"
        self.port = int(words[1])

    def kill(self) -> None:
        """kill -9; nothing where none runs."""
        if self._process is not None:
            self._process.kill()
            self.died()

    def died(self) -> int:
        """Wait for the end of the process, which something else caused; returns how it ended."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        process.stdout.close()
        return process.wait(30)

    @contextmanager
    def fault(self, kind: str, calls: str = "all") -> Iterator[None]:
        """While this lasts, `calls` ("all", "write" or "search") are answered with an HTTP status ("507"), with
        "garbage", or with JSON that means something else ("null", "shape", "ids", "list", "empty"). With "crash" it
        writes half of the next points and kills itself.
        """
        self._control({"fault": kind, "calls": calls})
        try:
            yield
        finally:
            if self._process is not None:
                self._control({"fault": None, "calls": calls})

    def change_key(self, key: str) -> None:
        self.key = key
        self._control({"key": key})

    def requests(self) -> int:
        """How many requests came, other than these of the test."""
        return int(self._control({})["requests"])

    def collections(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def drop(self, physical: str) -> None:
        """Lose a collection."""
        headers = {"api-key": self.key} if self.key else {}
        with httpx.Client(trust_env=False) as client:
            client.delete(f"{self.url}/collections/{physical}", headers=headers).raise_for_status()

    def _control(self, order: dict[str, Any]) -> dict[str, Any]:
        with httpx.Client(trust_env=False, timeout=30) as client:
            answer: dict[str, Any] = client.put(self.url + _CONTROL, json=order).json()
            return answer


class _Refusal(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class _Server:
    def __init__(self, folder: Path, key: str) -> None:
        from tests.support.qdrant_edge import EdgeClient

        self.client = EdgeClient(folder)
        self.key = key
        self.fault: str | None = None
        self.calls = "all"
        self.requests = 0

    async def serve(self, port: int) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=1 << 26)
        print(f"listening {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                method, path, headers, body = await _read(reader)
                status, data = await self._answer(method, path, headers, body)
                head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                writer.write(head.encode() + b"\r\n" + data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: Any) -> tuple[int, bytes]:
        if path == _CONTROL:
            for name in body:
                setattr(self, name, body[name])
            return 200, json.dumps({"requests": self.requests}).encode()
        self.requests += 1
        if self.key and headers.get("api-key") != self.key:
            return 401, b"Must provide an API key or an Authorization bearer token"
        searches = path.endswith(("/query", "/scroll", "/exists")) or method == "GET"
        if self.fault is not None and self.calls in {"all", "search" if searches else "write"}:
            if self.fault == "crash":
                await self._crash(path, body)
            elif self.fault == "garbage":
                return 200, b"\x16\x03\x01<html>proxy error</html>"
            elif self.fault in _WRONG:
                return 200, json.dumps(_WRONG[self.fault]).encode()
            else:
                return int(self.fault), _failed(_BODIES[self.fault])
        try:
            result = await self._called(method, path, body)
        except _Refusal as refusal:
            return refusal.status, _failed(refusal.text)
        return 200, json.dumps({"result": result, "status": "ok", "time": 0.0}).encode()

    async def _crash(self, path: str, body: Any) -> None:
        if path.endswith("/points?wait=true"):
            half = {"points": body["points"][: len(body["points"]) // 2]}
            await self._called("PUT", path, half)
            os.kill(os.getpid(), signal.SIGKILL)

    async def _called(self, method: str, path: str, body: Any) -> Any:
        from qdrant_client import models
        from qdrant_client.http.exceptions import UnexpectedResponse

        if path == "/":
            return {"title": "stand-in", "version": "0.0.0"}
        if path == "/collections":
            names = [item.name for item in (await self.client.get_collections()).collections]
            return {"collections": [{"name": name} for name in names]}
        found = re.fullmatch(r"/collections/(c_[0-9a-f]{32})([/a-z]*)(?:\?wait=true)?", path)
        if found is None:
            raise _Refusal(404, "no such address")
        name, rest = found.groups()
        try:
            match method, rest:
                case "GET", "/exists":
                    return {"exists": await self.client.collection_exists(name)}
                case "PUT", "":
                    return await self.client.create_collection(name, models.VectorParams(**body["vectors"]))
                case "DELETE", "":
                    return await self.client.delete_collection(name)
                case "PUT", "/index":
                    schema = models.IntegerIndexParams(**body["field_schema"])
                    await self.client.create_payload_index(name, body["field_name"], schema, wait=True)
                case "PUT", "/points":
                    await self.client.upsert(name, [models.PointStruct(**one) for one in body["points"]], wait=True)
                case "POST", "/points/delete":
                    kind = models.FilterSelector if "filter" in body else models.PointIdsList
                    await self.client.delete(name, kind(**body), wait=True)
                case "POST", "/points/query":
                    return await self._query(name, body)
                case "POST", "/points/scroll":
                    records, after = await self.client.scroll(name, body["limit"], body.get("offset"), False, False)
                    points = [{"id": record.id, "payload": None} for record in records]
                    return {"points": points, "next_page_offset": after}
                case _:
                    raise _Refusal(404, "no such address")
        except UnexpectedResponse as error:
            raise _Refusal(error.status_code or 500, f"Not found: Collection `{name}` doesn't exist!") from error
        return {"operation_id": 1, "status": "completed"}

    async def _query(self, name: str, body: Any) -> Any:
        from qdrant_client import models

        found = await self.client.query_points(
            name, body["query"]["nearest"], models.Filter(**body["filter"]), models.SearchParams(**body["params"]),
            body["limit"], False, False,
        )  # fmt: skip
        return {"points": [{"id": point.id, "version": 1, "score": point.score} for point in found.points]}


def _failed(text: str) -> bytes:
    return json.dumps({"status": {"error": text}, "time": 0.0, "result": None}).encode()


async def _read(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.rstrip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return method, path, headers, json.loads(body) if body else None


if __name__ == "__main__":
    asyncio.run(_Server(Path(sys.argv[1]), os.environ["STAND_IN_KEY"]).serve(int(sys.argv[2])))
