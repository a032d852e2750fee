"""A deployment whose tenants are at several engines, one of which fails on demand: what `test_engine_faults` stands on.

The product is whole and behind its own HTTP API. Between it and a server are wires (`tests/support/wire.py`): what one
engine of the deployment suffers, another of the same kind does not. The Milvus server is a real one; for Qdrant there
is a stand-in (`tests/support/qdrant_http.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from indexing.catalogue import Collection, serving
from indexing.remote.comparison import Comparison, compare
from tenancy.contract import Contract
from tenancy.identity import Role
from tenancy.tenant import TenantHandle
from tests.service.house import House, problem
from tests.support.milvus_server import MilvusServer
from tests.support.qdrant_http import QdrantHttp
from tests.support.wire import Wire

THREADS = 4
"""Of the product, for questions. Documents have two."""

LIMIT_S = 60
QUERY = "How long is the notice period?"
CANARY = "heliotrope"
"""Stands in every text and question, and must not stand in any refusal."""

NOTICE = f"The notice period is three months. Ask {CANARY}."


class Rig:
    """Engines `faulty` and `patient` are reached by `wire`, `sound` and `own` by wires of their own.

    `patient` waits a minute for an answer, `faulty` not; `own` serves the tenant `solo` alone. `globex` is at
    `sound`, `initech` at FAISS: they are to notice nothing.
    """

    def __init__(
        self, kind: str, server: QdrantHttp | MilvusServer, port: int, folder: Path, key: str, timeout_s: float
    ) -> None:
        self.kind = kind
        self.server = server
        self.folder = folder
        self.wire, self.sound, self.own = Wire(port), Wire(port), Wire(port)
        self.key_file = folder / "engine.key"
        self.key_file.write_text(key)
        self.timeout_s = timeout_s
        self.house = self._opened()
        self.begun = threading.Semaphore(0)
        self._pool = ThreadPoolExecutor(40)
        self._count = 0
        self.others = ("globex", "initech")
        self._revisions = 0
        self._second = ""
        for tenant, engine in (("globex", "sound"), ("initech", "faiss")):
            self.create(tenant, engine)
            assert self.put(tenant, "notice.md").status_code == 200

    def _opened(self) -> House:
        entries = {
            "faulty": (self.wire, self.timeout_s, ""),
            "patient": (self.wire, 60.0, ""),
            "sound": (self.sound, 60.0, ""),
            "own": (self.own, self.timeout_s, "solo"),
        }
        tables = ", ".join(
            f'{name} = {{kind = "{self.kind}", url = "http://127.0.0.1:{wire.port}", timeout_s = {timeout_s}, '
            f'dedicated_to = "{owner}", api_key_file = "{self.key_file}", plaintext = true}}'
            for name, (wire, timeout_s, owner) in entries.items()
        )
        house = House(
            self.folder,
            STRONGROOM_COLLECTIONS__ENGINES=f"{{{tables}}}",
            STRONGROOM_WORKERS__THREADS=str(THREADS),
            STRONGROOM_CACHE__ENABLED="false",
        )
        house.client.__enter__()
        return house

    @property
    def data(self) -> Path:
        """What the server keeps."""
        return self.folder / "engine"

    @contextmanager
    def at(self, *others: str) -> Iterator[None]:
        """While this lasts, these alone are the others: what befalls a server itself, all meet whose engine it is."""
        self.others, before = others, self.others
        try:
            yield
        finally:
            self.others = before

    @contextmanager
    def other_key(self) -> Iterator[None]:
        """The server asks for another key than the product sends, and for its first one again behind this."""
        first = self.key_file.read_text()
        self._second = self._changed(first)
        try:
            yield
        finally:
            self._changed(self._second, first)
            self.key_file.write_text(first)
            self.restart()

    def correct_key(self) -> None:
        self.key_file.write_text(self._second)

    def _changed(self, old: str, new: str = "") -> str:
        """Change the server's key from `old`; returns the new one."""
        if isinstance(self.server, MilvusServer):
            user, _, password = old.partition(":")
            changed = new.partition(":")[2] or "Other-secret1"
            self.server.change_password(user, password, changed)
            return f"{user}:{changed}"
        assert isinstance(self.server, QdrantHttp)
        self.server.change_key(new or "other-secret-key")
        return self.server.key

    def restart(self) -> None:
        """The product ends and starts again over the same data."""
        self._end()
        self.house = self._opened()

    def _end(self) -> None:
        self.house.client.__exit__(None, None, None)
        self.house.close()

    def close(self) -> None:
        self._pool.shutdown()
        self._end()
        for wire in (self.wire, self.sound, self.own):
            wire.close()

    def create(self, tenant: str, engine: str) -> None:
        tier: Any = "dedicated" if engine == "own" else "collection"
        self.house.services.control.tenants.create(tenant, Contract(engine=engine, tier=tier))

    def tenant(self, engine: str = "faulty") -> str:
        """A new tenant with one document."""
        self._count += 1
        name = f"tenant{self._count}"
        self.create(name, engine)
        assert self.put(name, "notice.md").status_code == 200
        return name

    # What callers do

    def ask(self, tenant: str, *, mode: str = "hybrid", top_k: int = 5) -> httpx.Response:
        body = {"query": f"{QUERY} {CANARY}", "mode": mode, "top_k": top_k}
        return self.house.post("/v1/retrieve", self.house.key(tenant, "ana"), body)

    def found(self, tenant: str, **options: Any) -> set[str]:
        """The documents that a question finds."""
        response = self.ask(tenant, **options)
        assert response.status_code == 200, response.text
        return {passage["document"] for passage in response.json()["passages"]}

    def comes_back(self, *tenants: str) -> None:
        """Ask until the server, which has just started, serves these: a Milvus takes up to half a minute."""
        for tenant in tenants:
            until = time.monotonic() + LIMIT_S
            while (response := self.ask(tenant)).status_code != 200:
                self.refused(response)
                assert time.monotonic() < until, "the server was there again, and questions went on failing"

    def put(self, tenant: str, name: str, text: str = NOTICE, allow: str = "tenant") -> httpx.Response:
        key = self.house.key(tenant, "loader", Role.INGEST)
        return self.house.send("PUT", f"/v1/documents/{name}", key, {"text": text, "allow": [allow]})

    def delete(self, tenant: str, name: str) -> httpx.Response:
        return self.house.send("DELETE", f"/v1/documents/{name}", self.house.key(tenant, "loader", Role.INGEST))

    def allow(self, tenant: str, name: str, label: str) -> httpx.Response:
        key = self.house.key(tenant, "loader", Role.INGEST)
        return self.house.send("PATCH", f"/v1/documents/{name}/acl", key, {"allow": [label], "deny": []})

    def names(self, tenant: str) -> set[str]:
        """The documents that are stored."""
        response = self.house.get("/v1/documents", self.house.key(tenant, "loader", Role.INGEST))
        assert response.status_code == 200, response.text
        return {document["id"] for document in response.json()["documents"]}

    def later(self, call: Callable[..., httpx.Response], *arguments: Any, **options: Any) -> Future[httpx.Response]:
        """`call` on a thread of its own."""
        return self._pool.submit(call, *arguments, **options)

    # What is asserted

    def refused(self, response: httpx.Response) -> dict[str, Any]:
        """The response is a 503 that says when to come back, and nothing of engines, documents or questions."""
        body = problem(response, 503, "unavailable")
        assert int(response.headers["retry-after"]) >= 1
        ports = [str(wire.port) for wire in (self.wire, self.sound, self.own)]
        key = self.key_file.read_text()
        told = (CANARY, "notice", "faulty", "patient", "own", self.kind, "127.0.0.1", "c_", "Trace", "collections.")
        for word in (*told, *ports, *([key] if key else [])):
            assert word.lower() not in response.text.replace("unknown", "").lower(), word
        return body

    def others_are_served(self) -> None:
        """Whoever is at another engine, of the same kind or not, gets answers and writes documents; probes too."""
        for tenant in self.others:
            self._revisions += 1
            assert self.found(tenant) >= {"notice.md"}
            written = self.put(tenant, "news.md", f"{NOTICE} Edition {self._revisions}.")
            assert written.status_code == 200, written.text
            assert self.found(tenant) == {"notice.md", "news.md"}
        assert self.house.get("/healthz/ready").status_code == 200

    def agrees(self, tenant: str) -> None:
        """The engine holds what the database does."""
        found = self.compared(tenant)
        assert found.agrees, found
        assert found.behind == 0

    def compared(self, tenant: str) -> Comparison:
        collection = self.collection(tenant)
        return compare(self.handle(tenant), self.house.services.engines[collection.engine], collection)

    def handle(self, tenant: str) -> TenantHandle:
        control = self.house.services.control
        return control.tenants.open(control.authenticator.operator(tenant))

    def collection(self, tenant: str) -> Collection:
        with self.handle(tenant).reading() as view:
            found = serving(view)
        assert found is not None
        return found

    @contextmanager
    def counting(self, engine: str) -> Iterator[None]:
        """While this lasts, `begun` is released for each call that the product makes of the engine."""
        self.begun = threading.Semaphore(0)
        loop = self.house.services.engines[engine]._loop  # type: ignore[attr-defined]
        inner = loop.call

        def call(*arguments: Any) -> Any:
            self.begun.release()
            return inner(*arguments)

        loop.call = call
        try:
            yield
        finally:
            del loop.call

    def await_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=LIMIT_S), "the engine was not asked"
