"""What the table of bad input stands on: one service behind a real socket, and requests sent to it byte for byte.

A client library would repair, refuse or encode much of what the rows send, so the bytes are written here.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Final

import httpx
import structlog
import uvicorn
from joserfc.jwk import RSAKey

from service.logs import configure_logging
from service.server import server_config
from tenancy.contract import Contract
from tenancy.identity import Role
from tests.service.house import House

ISSUER: Final = "https://id.acme.example"
OTHER_ISSUER: Final = "https://id.globex.example"
AUDIENCE: Final = "strongroom"
RSA: Final = RSAKey.generate_key(2048, {"kid": "acme-1", "use": "sig"})
OTHER_RSA: Final = RSAKey.generate_key(2048, {"kid": "globex-1", "use": "sig"})

# The table is about the edge; durability has its tests, on a real disk.
MEMORY: Final = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
MAX_BODY: Final = 100_000
MAX_DOCUMENT: Final = 300_000
OWN: Final = "The notice period is three months."
# Only the other tenant has this; nothing that this tenant is answered, and no log line, may hold a word of it.
FOREIGN: Final = "Quokka marmalade is kept in the seventh cellar."
FOREIGN_WORDS: Final = ("quokka", "marmalade", "cellar")


@dataclass(frozen=True)
class Sent:
    """One request. `who` names a caller of the bench; `credentials` gives its Authorization headers instead."""

    method: str
    target: str
    who: str | None = None
    body: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    credentials: Callable[[Bench], list[bytes]] | None = None
    unfinished: bool = False  # the empty line behind the headers is never sent

    def but(self, **changes: Any) -> Sent:
        return replace(self, **changes)

    def with_json(self, **fields: Any) -> Sent:
        """The same request with other fields in its JSON object; `...` removes one."""
        found = {**json.loads(self.body or b"{}"), **fields}
        return self.but(body=json.dumps({name: value for name, value in found.items() if value is not ...}).encode())

    def with_header(self, name: str, *values: bytes) -> Sent:
        return self.but(headers=(*self.headers, *((name, value) for value in values)))

    def with_query(self, query: str) -> Sent:
        return self.but(target=f"{self.target}{'&' if '?' in self.target else '?'}{query}")


@dataclass(frozen=True)
class Row:
    """`sent` is answered with exactly this status and problem code; `must`, beside it, is accepted, before and after.

    Code None: the HTTP parser refused, before the application, in plain text. `first` prepares for `must`, and
    `headers` must be on the refusal.
    """

    id: str
    sent: Sent
    status: int
    code: str | None
    must: Sent
    first: Sent | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Log(io.StringIO):
    """Log lines, and a way to wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self._written = threading.Condition()

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def wait_for(self, text: str, start: int) -> bool:
        with self._written:
            return self._written.wait_for(lambda: text in self.getvalue()[start:], timeout=30)


class Bench:
    """Two tenants, callers of each role, and everything that was answered and logged."""

    def __init__(self, folder: Path) -> None:
        for name, key in (("acme", RSA), ("globex", OTHER_RSA)):
            (folder / f"{name}.jwks").write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
        issuers = (
            f'{{ iss = "{ISSUER}", audience = "{AUDIENCE}", algorithms = ["RS256"], tenants = ["acme"], '
            f'jwks = "{folder}/acme.jwks", groups = "token" }}, '
            f'{{ iss = "{OTHER_ISSUER}", audience = "{AUDIENCE}", algorithms = ["RS256"], tenants = ["globex"], '
            f'jwks = "{folder}/globex.jwks" }}'
        )
        self.folder = folder
        self.house = House(
            folder,
            STRONGROOM_SERVER__PORT="0",
            STRONGROOM_SERVER__MAX_BODY=str(MAX_BODY),
            STRONGROOM_SERVER__MAX_DOCUMENT=str(MAX_DOCUMENT),
            # All that fails to authenticate comes from one address, and the good callers ask a lot.
            STRONGROOM_THROTTLE__SOURCE_FAILURES="100000",
            STRONGROOM_THROTTLE__CREDENTIAL_FAILURES="100000",
            STRONGROOM_THROTTLE__SPREAD_FAILURES="100000",
            STRONGROOM_ADMISSION__USER__REQUESTS_PER_MINUTE="100000",
            STRONGROOM_ADMISSION__USER__TOKENS_PER_MINUTE="1000000000",
            STRONGROOM_ADMISSION__TENANT__TOKENS_PER_MINUTE="1000000000",
            STRONGROOM_ISSUERS=f"[{issuers}]",
        )
        tenants = self.house.services.control.tenants
        tenants.create("acme", Contract(metadata={"year": "integer", "price": "number", "dept": "string"}))
        self.keys = {
            "reader": self.house.key("acme", "ana"),
            "ingest": self.house.key("acme", "loader", Role.INGEST),
            "auditor": self.house.key("acme", "audit", Role.AUDITOR),
            "admin": self.house.key("acme", "root", Role.ADMIN),
            "all": self.house.key("acme", "all", *Role),
            "foreign": self.house.key("globex", "eve", *Role),
            "expired": tenants.create_key("acme", "bo", [Role.READER], expires=1.0).text,
            "revoked": tenants.create_key("acme", "bo", [Role.READER]).text,
        }
        tenants.revoke_key("acme", self.keys["revoked"].split("_")[2])
        self.port = 0
        self.answers: list[httpx.Response] = []
        self.log = Log()
        self.accepted: set[Sent] = set()  # what was accepted as a control

    def send(self, sent: Sent) -> httpx.Response:
        """Send the bytes and read the one response."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(self._bytes(sent))
            response = HTTPResponse(connection, method=sent.method)
            response.begin()
            found = httpx.Response(response.status, headers=response.getheaders(), content=response.read())
        self.answers.append(found)
        return found

    def leave(self, sent: Sent) -> None:
        """Send the bytes and close the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(self._bytes(sent))

    def _bytes(self, sent: Sent) -> bytes:
        headers = [("Host", b"strongroom.test"), ("Connection", b"close")]
        if sent.credentials is not None:
            headers += [("Authorization", value) for value in sent.credentials(self)]
        elif sent.who is not None:
            headers.append(("Authorization", b"Bearer " + self.keys[sent.who].encode()))
        given = {name.lower() for name, _ in sent.headers}
        if sent.body is not None and not given & {"content-length", "transfer-encoding"}:
            headers.append(("Content-Length", str(len(sent.body)).encode()))
        if sent.body is not None and "content-type" not in given:
            headers.append(("Content-Type", b"application/json"))
        lines = [name.encode() + b": " + value for name, value in (*headers, *sent.headers)]
        request = f"{sent.method} {sent.target} HTTP/1.1".encode()
        end = [] if sent.unfinished else [b"", sent.body or b""]
        return b"\r\n".join((request, *lines, *end))


@contextmanager
def serving(folder: Path) -> Iterator[Bench]:
    """A bench whose service listens on loopback as `strongroom serve` does, with its log lines kept."""
    bench = Bench(folder)
    root, stderr = logging.getLogger(), sys.stderr
    before = (root.handlers, root.level)
    sys.stderr = bench.log
    try:
        configure_logging()
    finally:
        sys.stderr = stderr
    server = uvicorn.Server(server_config(bench.house.app, bench.house.settings.server))
    listening = socket.create_server(("127.0.0.1", 0))
    bench.port = listening.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield bench
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
        structlog.reset_defaults()
        root.handlers, root.level = before
        bench.house.close()
