"""A real Milvus server (2.3.5, of the package `milvus`) for tests: a process of its own, with a folder of its own.

It binds fixed ports (2379 and 2380 for its own etcd), so a machine has one at a time: a lock file, held by the server
itself, makes others wait. It dies with the test run, however that ends. Its libraries (250 MB) are unpacked once into
the virtual environment.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import httpx

_START_SECONDS = 120
_STOP_SECONDS = 20
_PORT_SECONDS = 5
_SESSION_SECONDS = 15
_ETCD_PORTS = (2379, 2380)
_PR_SET_PDEATHSIG = 1


_running: set[MilvusServer] = set()


class MilvusNotRunning(RuntimeError):
    """The server could not be started; the message holds the end of its log."""


def missing() -> str | None:
    """Why no server can be started here, None if one can."""
    if importlib.util.find_spec("milvus") is None:
        return "no Milvus server: the package `milvus` is not installed; `make test-milvus` installs it"
    if sys.platform != "linux":
        return "no Milvus server: the package carries one for Linux alone"
    return None


class MilvusServer:
    """One server with the data in `folder`; after `kill` or `stop` it can be started again with the same data.

    `tls` is the pair of PEM files (certificate, key); `authenticated` asks for the user root, password Milvus.
    """

    def __init__(self, folder: Path, *, authenticated: bool = False, tls: tuple[Path, Path] | None = None) -> None:
        self._folder = folder
        self._authenticated = authenticated
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._environment: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def memory(self) -> int:
        """Resident bytes of the process."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024

    def start(self) -> None:
        """Returns when it is healthy. Waits for another server on this machine. Raises `MilvusNotRunning`."""
        if _running:
            raise MilvusNotRunning("this process runs one already, and a machine has one at a time")
        with _MachineLock() as lock:
            _require_free(*_ETCD_PORTS)
            if not self._environment:
                self._environment = self._configured()
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    [str(_unpacked() / "bin" / "milvus"), "run", "standalone"],
                    cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT,
                    pass_fds=[lock.fileno()], preexec_fn=_die_with_parent,
                )  # fmt: skip
            _running.add(self)
        try:
            self._await_health(int(self._environment["METRICS_PORT"]))
        except BaseException:
            self.kill()
            raise

    def _configured(self) -> dict[str, str]:
        """Writes the settings, with free ports, once: a second start must be found where the first one was."""
        import milvus

        milvus._initialize_data_files(str(_unpacked()))
        config = milvus.MilvusServerConfig(data_dir=str(self._folder))
        config.set("authorization_enabled", self._authenticated)
        # The next server waits so long for one that was killed; one that is paused for longer ends itself.
        config.set("common.session.ttl", _SESSION_SECONDS)
        if self._tls is not None:
            config.set("tls_mode", 1)
            config.set("server_pem_path", str(self._tls[0]))
            config.set("server_key_path", str(self._tls[1]))
        with warnings.catch_warnings():
            # It looks for free ports with sockets that it leaves to be collected.
            warnings.simplefilter("ignore", ResourceWarning)
            config.resolve()
            metrics, probe = config.resolve_port(9091)
            probe.close()
        self._port = int(config.get("proxy_port"))
        return {
            **os.environ,
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(metrics),
            "MILVUS_RUN_DIR": str(self._folder / "run"),
            "LD_LIBRARY_PATH": f"{_unpacked() / 'bin'}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        }

    def stop(self) -> None:
        """As an operator stops it; kills it where it takes longer than that should."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, also of a paused server; nothing where none runs."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def deny_writes(self, denied: bool) -> None:
        """Start again with this setting; the server denies writes the same way where a quota of its is used up."""
        self.stop()
        (path,) = (self._folder / "configs").glob("milvus.yaml")
        head, section, rest = path.read_text().partition("  limitWriting:")
        path.write_text(head + section + re.sub("forceDeny: \\w+", f"forceDeny: {str(denied).lower()}", rest, count=1))
        self.start()

    def change_password(self, user: str, old: str, new: str) -> None:
        """Of a server that was started with `authenticated`."""
        from pymilvus import MilvusClient

        client = MilvusClient(self.url, token=f"{user}:{old}")
        try:
            client.update_password(user, old, new)
        finally:
            client.close()

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        _running.discard(self)
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)

    def _await_health(self, port: int) -> None:
        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        with httpx.Client(trust_env=False, timeout=5) as client:
            while time.monotonic() < until:
                try:
                    if "OK" in client.get(f"http://127.0.0.1:{port}/healthz").text:
                        return
                except httpx.TransportError:
                    pass
                try:
                    self._process.wait(timeout=0.2)  # the interval between two tries
                except subprocess.TimeoutExpired:
                    continue
                raise MilvusNotRunning(f"Milvus ended with status {self._process.returncode}:\n{self._tail()}")
        raise MilvusNotRunning(f"Milvus was not healthy after {_START_SECONDS} s:\n{self._tail()}")

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line[:300] for line in lines[-30:])


class _MachineLock:
    """The right to run a server, taken over by the process that inherits the descriptor."""

    def __enter__(self) -> _MachineLock:
        path = Path(tempfile.gettempdir()) / f"strongroom-milvus-{os.getuid()}.lock"
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def fileno(self) -> int:
        return self._file.fileno()

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _unpacked() -> Path:
    import milvus

    return Path(sys.prefix) / "share" / f"milvus-{milvus.__version__}"


def _require_free(*ports: int) -> None:
    """Waits a moment: a server that dies gives up the lock just before its ports."""
    until = time.monotonic() + _PORT_SECONDS
    for port in ports:
        while not _is_free(port):
            if time.monotonic() > until:
                raise MilvusNotRunning(f"port {port}, which Milvus needs, is taken on this machine")
            time.sleep(0.05)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
