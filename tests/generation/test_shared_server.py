"""One server per test run: shared by its workers, stopped with the last of them, also where they are killed.

In SGLang's place a program that answers as soon as it is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.sglang_server import SglangNotRunning, shared_server

pytestmark = pytest.mark.slow

_SERVER = """#!{python}
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.do_GET()
        self.server.ending = True

server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler)
server.ending = False
while not server.ending:
    server.handle_request()
"""
_USER = """
import sys
from pathlib import Path
from tests.support.sglang_server import shared_server
with shared_server(Path(sys.argv[1])) as server:
    print(server.base_url, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of the environment's Python, which is to run SGLang."""
    home = tmp_path / "cache" / "sglang-0.5.23"
    program = home / "venv/bin/python"
    program.parent.mkdir(parents=True)
    (home / ".ready").touch()
    program.write_text(_SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("STRONGROOM_TEST_CACHE", str(tmp_path / "cache"))
    return program


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


class Worker:
    """Another process that uses the shared server until it is told to leave, or killed."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _USER, str(folder)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def leave(self, *, killed: bool = False) -> None:
        if killed:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def worker(folder: Path, program: Path) -> Iterator[Worker]:
    made = Worker(folder)
    yield made
    made.leave(killed=True)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).is_success
    except httpx.TransportError:
        return False


def await_end(url: str) -> None:
    until = os.times().elapsed + 20
    while answers(url):
        assert os.times().elapsed < until, "the server outlived its users"


@pytest.mark.parametrize("killed", [False, True])
def test_the_server_is_there_until_the_last_user_is_gone(folder: Path, worker: Worker, killed: bool) -> None:
    with shared_server(folder) as mine:
        assert mine.base_url == worker.url
        worker.leave(killed=killed)
        assert answers(mine.base_url)
    await_end(mine.base_url)
    with shared_server(folder) as another:
        assert answers(another.base_url)
        assert another.base_url != mine.base_url


def test_a_killed_run_leaves_no_server(worker: Worker) -> None:
    assert answers(worker.url)
    worker.leave(killed=True)
    await_end(worker.url)


def test_every_user_is_told_why_the_server_does_not_start(folder: Path, program: Path) -> None:
    program.write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    with ExitStack() as stack:
        for _ in range(2):
            with pytest.raises(SglangNotRunning, match=r"status 3 while starting:\n.*no luck today"):
                stack.enter_context(shared_server(folder))


def test_a_server_that_ended_is_noticed(folder: Path, worker: Worker) -> None:
    httpx.post(f"{worker.url}/end", trust_env=False)
    await_end(worker.url)
    with pytest.raises(SglangNotRunning, match="is gone"), shared_server(folder):
        pass
