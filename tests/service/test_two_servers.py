"""Two server processes over one PostgreSQL database serve the same tenants. Each has a folder of its own."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from audit.verify import verify
from service.control import Control, open_control
from service.settings import load_settings
from tenancy import directory
from tenancy.identity import Role
from tests.service.house import MASTER
from tests.service.test_server import command, serving
from tests.support.postgres import fresh_database
from tests.support.qdrant_http import QdrantHttp

QUESTION = {"query": "How long is the notice period?"}
TEXT = "The notice period is three months."

pytestmark = pytest.mark.slow


@dataclass
class Pair:
    """Two running servers, and a console beside them: this process."""

    environment: dict[str, str]
    processes: tuple[subprocess.Popen[str], ...]
    clients: tuple[httpx.Client, ...]
    control: Control

    def key(self, user: str, *roles: Role) -> dict[str, str]:
        made = self.control.tenants.create_key("acme", user, roles or (Role.READER,))
        return {"Authorization": f"Bearer {made.text}"}

    def staff(self, change: str, user: str) -> None:
        handle = self.control.tenants.open(self.control.authenticator.operator("acme"))
        with handle.writing() as view:
            if change == "add":
                directory.add_members(view, "staff", [user], 0.0)
            else:
                directory.remove_members(view, "staff", [user])

    def answers(self, key: dict[str, str]) -> list[bool]:
        """Of each server, whether its answer holds the sentence."""
        replies = [client.post("/v1/answers", json=QUESTION, headers=key) for client in self.clients]
        assert [reply.status_code for reply in replies] == [200] * len(replies), [reply.text for reply in replies]
        return ["three months" in reply.json()["answer"] for reply in replies]

    def statuses(self, key: dict[str, str]) -> list[int]:
        return [client.post("/v1/answers", json=QUESTION, headers=key).status_code for client in self.clients]


@pytest.fixture(params=["faiss", "qdrant"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Over the rows of the database, and over Qdrant's engine behind the stand-in for its HTTP."""
    if request.param == "faiss":
        with pair_of(tmp_path) as made:
            yield made
        return
    server = QdrantHttp(tmp_path / "qdrant")
    server.start()
    try:
        with pair_of(tmp_path, f'kind = "qdrant", url = "{server.url}"') as made:
            yield made
            assert server.requests() > 0
    finally:
        server.kill()


@contextmanager
def pair_of(tmp_path: Path, engine: str = "", more: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Two servers over a fresh database; `engine` is the TOML of a vector server's settings, `more` variables of all
    processes.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    with ExitStack() as stack:
        common = {
            "STRONGROOM_MASTER_KEY": base64.b64encode(MASTER.value).decode(),
            "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
            "STRONGROOM_DATABASE__URL": stack.enter_context(fresh_database()),
        }
        common |= more or {}
        if engine:
            common["STRONGROOM_COLLECTIONS__ENGINE"] = "vectors"
            common["STRONGROOM_COLLECTIONS__ENGINES"] = f"{{vectors = {{{engine}}}}}"
        processes, clients = [], []
        for name in ("one", "two"):
            environment = {**clean, **common, "STRONGROOM_DATA_DIR": str(tmp_path / name)}
            process, address = stack.enter_context(serving(environment, tmp_path / f"{name}.log", limit_s=280))
            processes.append(process)
            clients.append(stack.enter_context(httpx.Client(base_url=address, timeout=60)))
        settings = {**common, "STRONGROOM_DATA_DIR": str(tmp_path / "console")}
        control = stack.enter_context(closing(open_control(load_settings(environment=settings), MASTER)))
        yield Pair({**clean, **settings}, tuple(processes), tuple(clients), control)


def test_what_one_does_holds_at_once_in_the_other(pair: Pair) -> None:
    one, two = pair.clients
    pair.control.tenants.create("acme")
    loader = pair.key("loader", Role.INGEST)
    ana = pair.key("ana")
    assert pair.answers(ana) == [False, False]

    # A document written through one is found by the other, and so is its next version.
    body = {"text": TEXT, "allow": ["group:staff"], "deny": []}
    assert one.put("/v1/documents/notice.md", json=body, headers=loader).status_code == 200
    assert pair.answers(ana) == [False, False]
    pair.staff("add", "ana")
    assert pair.answers(ana) == [True, True]
    assert pair.answers(ana) == [True, True]

    # Membership and access lists.
    pair.staff("remove", "ana")
    assert pair.answers(ana) == [False, False]
    pair.staff("add", "ana")
    assert pair.answers(ana) == [True, True]
    denied = {"text": TEXT, "allow": ["group:staff"], "deny": ["user:ana"]}
    assert two.put("/v1/documents/notice.md", json=denied, headers=loader).status_code == 200
    assert pair.answers(ana) == [False, False]
    assert two.put("/v1/documents/notice.md", json=body, headers=loader).status_code == 200
    assert pair.answers(ana) == [True, True]
    assert two.delete("/v1/documents/notice.md", headers=loader).status_code in {200, 204}
    assert pair.answers(ana) == [False, False]

    # The tenant itself, and its credentials.
    pair.control.tenants.set_status("acme", "suspended")
    assert pair.statuses(ana) == [403, 403]
    pair.control.tenants.set_status("acme", "active")
    assert pair.statuses(ana) == [200, 200]
    assert verify(pair.control.logs.of(pair.control.authenticator.operator("acme"))).ok
    # Its data directory is each one's own.
    mine = pair.environment | {"STRONGROOM_DATA_DIR": pair.environment["STRONGROOM_DATA_DIR"].replace("console", "two")}
    second = command(mine, "serve", "--port", "0")
    assert (second.returncode, "another server runs on this data directory" in second.stderr) == (1, True)

    pair.control.tenants.delete("acme")
    assert pair.statuses(ana) == [401, 401]
    pair.control.tenants.create("acme")
    assert pair.answers(pair.key("ana")) == [False, False]


def test_a_killed_server_leaves_the_other_right_and_its_intents_are_closed(pair: Pair) -> None:
    one, two = pair.clients
    pair.control.tenants.create("acme")
    loader, ana = pair.key("loader", Role.INGEST), pair.key("ana")
    body = {"text": TEXT, "allow": ["tenant"]}
    assert one.put("/v1/documents/notice.md", json=body, headers=loader).status_code == 200
    assert pair.answers(ana) == [True, True]
    _kill_in_the_middle_of_an_answer(pair.processes[0], str(one.base_url), ana)
    reply = two.post("/v1/answers", json=QUESTION, headers=ana)
    assert "three months" in reply.json()["answer"]
    again = {**body, "text": "The notice period is six months."}
    assert two.put("/v1/documents/notice.md", json=again, headers=loader).status_code == 200
    assert "six months" in two.post("/v1/answers", json=QUESTION, headers=ana).json()["answer"]
    log = pair.control.logs.of(pair.control.authenticator.operator("acme"))
    before = verify(log).finding
    assert before is not None
    assert before.kind == "unsettled"
    assert verify(log, recover=True).recovered > 0
    after = verify(log)
    assert (after.ok, after.in_flight) == (True, 0)
    # A command as it is, over the same database.
    done = command(pair.environment, "audit", "verify", "--tenant", "acme")
    assert done.returncode == 0, done.stderr


def _kill_in_the_middle_of_an_answer(process: subprocess.Popen[str], address: str, key: dict[str, str]) -> None:
    """Send a request and kill the server as soon as it answers, with many more under way."""
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    body = json.dumps({**QUESTION, "stream": True, "cache": "bypass"})
    head = f"POST /v1/answers HTTP/1.1\r\nHost: x\r\nAuthorization: {key['Authorization']}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(8)]
        for each in sockets:
            each.sendall((head + body).encode())
        assert sockets[0].recv(64).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_the_embedded_store_still_has_one_server(tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    environment = {
        **clean,
        "STRONGROOM_MASTER_KEY": "A" * 43 + "=",
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
        "STRONGROOM_DATA_DIR": str(tmp_path / "data"),
    }
    with serving(environment, tmp_path / "log"):
        second = command(environment, "serve", "--port", "0")
    assert (second.returncode, "another server runs" in second.stderr) == (1, True)
