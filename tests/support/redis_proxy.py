"""Stands before a Redis server: ends TLS (the packaged server has none), or accepts connections and never answers."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class RedisProxy:
    """Forwards to `port`; with `tls` (certificate and key in one file) only what came encrypted. `silent` answers
    nothing. `accepted` counts connections.
    """

    def __init__(self, port: int, *, tls: Path | None = None, silent: bool = False) -> None:
        self._target = port
        self._silent = silent
        self._context = None
        if tls is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(tls)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            # A thread that waits in it is woken; closing alone would leave it there.
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._open.append(taken)
            if not self._silent:
                threading.Thread(target=self._connect, args=(taken,), daemon=True).start()

    def _connect(self, taken: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._context is not None:
                taken = self._context.wrap_socket(taken, server_side=True)
                self._open.append(taken)
            behind = socket.create_connection(("127.0.0.1", self._target))
            self._open.append(behind)
            threading.Thread(target=_copy, args=(behind, taken), daemon=True).start()
            _copy(taken, behind)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def certificate(folder: Path, name: str = "127.0.0.1") -> tuple[Path, Path]:
    """A self-signed certificate for an address: the file with its key, and the file to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")])
    now = datetime.now(UTC)
    alternative: Any = x509.IPAddress(ipaddress.ip_address(name))
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    public, both = folder / "public.pem", folder / "both.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    both.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + public.read_bytes()
    )
    return both, public
