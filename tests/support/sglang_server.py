"""A real SGLang server on the CPU, for contract tests: set up once per machine, started once per test run.

Its virtual environment (about 3 GB, four minutes) is kept in the folder that `STRONGROOM_TEST_CACHE` names, by
default `~/.cache/strongroom-tests`. A server dies with the process that started it, however that ends. The one that
the workers of a run share has a keeper (`sglang_keeper`), which stops it when the last of them is gone.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

MODEL = "tiny"
API_KEY = "user-key-of-the-tests"
ADMIN_KEY = "admin-key-of-the-tests"

_HERE = Path(__file__).parent / "sglang_cpu"
_RELEASE = "sglang-0.5.23"
_START_SECONDS = 400
_PR_SET_PDEATHSIG = 1
_LORA = (
    *("--enable-lora", "--lora-backend", "torch_native", "--max-lora-rank", "8"),
    *("--lora-target-modules", "q_proj", "k_proj", "v_proj", "o_proj"),
    *("--max-loras-per-batch", "3", "--max-loaded-loras", "4"),
)
"""Without these the server has no endpoint for adapters."""

USERS = "sglang-users.lock"
STATE = "sglang.json"
"""In the folder of a shared server: a lock that each of its users shares, and how it is reached, or why it is not."""


class SglangNotRunning(RuntimeError):
    """The server could not be set up or started; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    base_url: str
    python: Path
    model: Path


@contextmanager
def running_server(logs: Path, *flags: str, port: int | None = None) -> Iterator[RunningServer]:
    """Start a server on `port`, by default a free one, with both keys and room for adapters, and stop it afterwards.

    Raises `SglangNotRunning`.
    """
    home = _set_up(logs / "setup.log")
    python, model = home / "venv/bin/python", home / "model"
    port = port or _free_port()
    command = [
        *(str(python), str(_HERE / "serve.py")),
        *("--model-path", str(model), "--served-model-name", MODEL, "--port", str(port)),
        *("--api-key", API_KEY, "--admin-api-key", ADMIN_KEY, *_LORA, *flags),
    ]
    log = logs / "serve.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, preexec_fn=_die_with_parent
        )
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


@contextmanager
def shared_server(folder: Path) -> Iterator[RunningServer]:
    """The one server of everybody who names this folder: started by the first, and there until the last is gone.

    Who uses it is who holds a shared lock on a file, and the kernel releases that of a process that is killed. Raises
    `SglangNotRunning`, to each of them, where it could not be started.
    """
    with (folder / USERS).open("w") as users:
        with (folder / "sglang-joining.lock").open("w") as joining:
            fcntl.flock(joining, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits while the keeper stops the server of those who were before
            if not (folder / STATE).exists():
                _keep(folder)
        server = _published(folder)
        yield server


def _keep(folder: Path) -> None:
    """Start a keeper, and wait for what it publishes."""
    command = [sys.executable, "-m", "tests.support.sglang_keeper", str(folder)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout is not None
        if not keeper.stdout.readline():
            raise SglangNotRunning(f"the keeper of the SGLang server ended:\n{_tail(folder / 'keeper.log')}")


def _published(folder: Path) -> RunningServer:
    found: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if "error" in found:
        raise SglangNotRunning(found["error"])
    server = RunningServer(found["base_url"], Path(found["python"]), Path(found["model"]))
    try:
        httpx.get(f"{server.base_url}/health", trust_env=False, timeout=60).raise_for_status()
    except httpx.HTTPError as error:
        log = _tail(folder / "serve.log")
        raise SglangNotRunning(f"the shared SGLang server is gone ({type(error).__name__}):\n{log}") from None
    return server


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


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tail(log: Path) -> str:
    if not log.exists():
        return "no log"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines[-40:])
