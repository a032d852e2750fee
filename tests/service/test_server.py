"""The real process: its address, its lock, its signals, its log, and commands beside it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from service.settings import load_settings
from service.wiring import ServerLock
from tenancy.errors import Conflict

STRONGROOM = Path(sys.executable).parent / "strongroom"
QUESTION = {"query": "How long is the notice period?"}

pytestmark = pytest.mark.slow


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STRONGROOM_")}
    return {
        **clean,
        "STRONGROOM_DATA_DIR": str(folder / "data"),
        "STRONGROOM_MASTER_KEY": "A" * 43 + "=",
        "STRONGROOM_EMBEDDING__MODEL": "hashing:256",
    }


def command(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STRONGROOM, *words], env=environment, capture_output=True, text=True, check=False)


@contextmanager
def serving(
    environment: dict[str, str], log: Path, limit_s: float = 60.0
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with log.open("w") as errors:
        process = subprocess.Popen(
            [STRONGROOM, "serve", "--port", "0"], env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    watchdog = threading.Timer(limit_s, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("listening on http://127.0.0.1:"), log.read_text()
        yield process, line.removeprefix("listening on ").strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        watchdog.cancel()
        if process.stdout is not None:
            process.stdout.close()


def test_a_server_and_commands_beside_it(environment: dict[str, str], folder: Path) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "notice.md").write_text("The notice period is three months.")
    command(environment, "tenant", "create", "acme")
    made = command(environment, "key", "create", "--tenant", "acme", "--user", "ana", "--json")
    headers = {"Authorization": f"Bearer {json.loads(made.stdout)['key']}"}
    log = folder / "server.log"
    with serving(environment, log) as (process, address), httpx.Client(base_url=address, headers=headers) as client:
        assert client.get("/healthz/ready").status_code == 200
        assert client.post("/v1/answers", json=QUESTION).json()["finish"] == "abstain"
        command(environment, "ingest", "--tenant", "acme", str(folder / "docs"), "--allow", "group:staff")
        assert client.post("/v1/answers", json=QUESTION).json()["finish"] == "abstain"
        command(environment, "group", "add", "staff", "ana", "--tenant", "acme")
        assert "three months" in client.post("/v1/answers", json=QUESTION).json()["answer"]
        with client.stream("POST", "/v1/answers", json={**QUESTION, "stream": True}) as response:
            assert "event: done" in "".join(response.iter_text())
        assert "server" not in response.headers
        command(environment, "group", "remove", "staff", "ana", "--tenant", "acme")
        assert client.post("/v1/answers", json=QUESTION).json()["finish"] == "abstain"
        second = command(environment, "serve", "--port", "0")
        assert (second.returncode, "another server runs on this data directory" in second.stderr) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert len(requests) == 6
    assert {line["tenant"] for line in requests} == {None, "acme"}
    assert all(len(line["request_id"]) == 32 for line in requests)
    assert "notice" not in log.read_text()
    assert command(environment, "audit", "verify").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_lets_a_request_in_flight_end(
    environment: dict[str, str], folder: Path, number: signal.Signals
) -> None:
    command(environment, "tenant", "create", "acme")
    made = command(environment, "key", "create", "--tenant", "acme", "--user", "ana", "--json")
    key = json.loads(made.stdout)["key"]
    body = json.dumps(QUESTION).encode()
    head = (
        f"POST /v1/retrieve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    with serving(environment, folder / "server.log") as (process, address):
        host, port = address.removeprefix("http://").split(":")
        with closing(socket.create_connection((host, int(port)), timeout=30)) as connection:
            # The body is held back until the server has begun to stop.
            connection.sendall(head + body[:5])
            httpx.get(f"{address}/healthz/live")
            process.send_signal(number)
            connection.sendall(body[5:])
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert process.wait(30) == 0


def test_ctrl_c_ends_an_ingestion_and_the_next_run_goes_on(environment: dict[str, str], folder: Path) -> None:
    docs = folder / "docs"
    docs.mkdir()
    for number in range(1_000):
        # Names so long that the lines about all of them do not fit into the pipe: it cannot be done before the signal.
        (docs / f"{number:04}-{'rule' * 25}.md").write_text(f"Rule {number}: holidays are {number} days. " * 20)
    command(environment, "tenant", "create", "acme")
    words = ["ingest", "--tenant", "acme", str(docs), "--allow", "tenant"]
    process = subprocess.Popen(
        [STRONGROOM, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A run in the background has its children ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("indexed: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, "stopped")
    assert out.count("\n") < 999
    events = json.loads(command(environment, "audit", "query", "--tenant", "acme", "--json").stdout)["events"]
    assert ("ingest", "aborted") in [(event["action"], event.get("outcome")) for event in events]
    finished = command(environment, *words, "--json")
    summary = json.loads(finished.stdout.splitlines()[-1])
    assert (finished.returncode, summary["failed"]) == (0, 0)
    assert summary["unchanged"] > 0
    assert summary["unchanged"] + summary["indexed"] == 1_000


def test_a_data_directory_has_one_server(folder: Path) -> None:
    first = ServerLock(folder / "data")
    with pytest.raises(Conflict, match="another server"):
        ServerLock(folder / "data")
    ServerLock(folder / "other").release()
    first.release()
    ServerLock(folder / "data").release()


def test_an_address_in_use_is_an_error_with_a_remedy(environment: dict[str, str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = command(environment, "serve", "--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: 127.0.0.1:{port}: cannot be listened on: address already in use (stop what" in done.stderr
    assert "Traceback" not in done.stderr
    # What it held is free again.
    with serving(environment, Path(environment["STRONGROOM_DATA_DIR"]) / "log"):
        pass


def test_a_certificate_that_cannot_be_loaded_is_wrong_usage(environment: dict[str, str], folder: Path) -> None:
    (folder / "bad.pem").write_text("no certificate")
    for path in ("none.pem", "bad.pem"):
        done = command(environment | {"STRONGROOM_SERVER__TLS_CERTIFICATE": str(folder / path)}, "serve", "--port", "0")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert f"{path}: the certificate or its key cannot be loaded" in done.stderr


def test_the_default_settings_name_a_private_place() -> None:
    settings = load_settings(environment={})
    assert settings.data_path.is_absolute()
    assert settings.data_path not in settings.master_key_path.parents
