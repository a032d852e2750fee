"""A real SGLang server on the CPU, for contract tests: set up once per machine, started once per test run.

Its virtual environment (about 3 GB, four minutes) is kept in the folder that `STRONGROOM_TEST_CACHE` names, by
default `~/.cache/strongroom-tests`.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

MODEL = "tiny"
API_KEY = "user-key-of-the-tests"
ADMIN_KEY = "admin-key-of-the-tests"

_HERE = Path(__file__).parent / "sglang_cpu"
_RELEASE = "sglang-0.5.23"
_START_SECONDS = 240


class SglangNotRunning(RuntimeError):
    """The server could not be set up or started; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    base_url: str
    python: Path
    model: Path


@contextmanager
def running_server(logs: Path, *flags: str) -> Iterator[RunningServer]:
    """Start the server on a free port, with both keys, and stop it afterwards. Raises `SglangNotRunning`."""
    home = _set_up(logs / "setup.log")
    python, model = home / "venv/bin/python", home / "model"
    port = _free_port()
    command = [
        *("nice", "-n", "10", str(python), str(_HERE / "serve.py")),
        *("--model-path", str(model), "--served-model-name", MODEL, "--port", str(port)),
        *("--api-key", API_KEY, "--admin-api-key", ADMIN_KEY, *flags),
    ]
    log = logs / "serve.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        server = RunningServer(f"http://127.0.0.1:{port}", python, model)
        _await_health(process, server, log)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)


def _set_up(log: Path) -> Path:
    cache = Path(os.environ.get("STRONGROOM_TEST_CACHE", "~/.cache/strongroom-tests")).expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / _RELEASE
    with (cache / f"{_RELEASE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test runs at the same time share one set-up
        with log.open("wb") as output:
            command = ["nice", "-n", "15", "bash", str(_HERE / "setup.sh"), str(home)]
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise SglangNotRunning(f"SGLang could not be set up in {home} (needs 3 GB and a package index):\n{_tail(log)}")
    return home


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_health(process: subprocess.Popen[bytes], server: RunningServer, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=5) as client:
        while time.monotonic() < until:
            try:
                if client.get("/health").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            try:
                process.wait(timeout=0.5)  # the interval between two tries
            except subprocess.TimeoutExpired:
                continue
            raise SglangNotRunning(f"SGLang ended with status {process.returncode} while starting:\n{_tail(log)}")
    raise SglangNotRunning(f"SGLang was not healthy after {_START_SECONDS} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines[-40:])
