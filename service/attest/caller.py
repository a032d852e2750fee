"""The service as an attestation sees it: HTTP at one address, with the credentials of canary tenants."""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from service.attest.canaries import Canary
from service.settings import ServerSettings
from tenancy.errors import InvalidInput, Unavailable

Stop = Callable[[], bool]

LIMIT_S: Final = 300.0
"""Seconds for one answer: an engine on a processor is slow."""
_RECORDED_S: Final = 10.0
_AGAIN_S: Final = 0.05


class Stopped(Exception):
    """The attestation is to end, and to remove what it made."""


class Caller:
    """Sends requests to the service at `url`. From when `stopped` is true, every call raises `Stopped`."""

    def __init__(self, url: str, trust: ssl.SSLContext | bool = True, *, stopped: Stop = lambda: False) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidInput("this is no address of a service", item=url[:200], remedy="http:// or https://")
        self.url = url.rstrip("/")
        self._stopped = stopped
        try:
            self._client = httpx.Client(base_url=self.url, timeout=LIMIT_S, trust_env=False, verify=trust)
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidInput("this is no address of a service", item=ascii(url[:200]), remedy=str(error)) from None

    @classmethod
    def of(
        cls,
        server: ServerSettings,
        url: str | None = None,
        ca: Path | None = None,
        *,
        port: int | None = None,
        stopped: Stop = lambda: False,
    ) -> Caller:
        """Of the service at `url`, by default that of these settings, at `port` where they leave it open. Certificates
        are checked against `ca`, by default the system's, the settings' own one being known. Raises `InvalidInput`.
        """
        if url is not None or not server.tls_certificate:
            return cls(url or _address("http", server, port), _trust(ca) if ca else True, stopped=stopped)
        trust = _trust(ca or Path(server.tls_certificate))
        # It is this certificate or none, whatever name it is for.
        trust.check_hostname = False
        return cls(_address("https", server, port), trust, stopped=stopped)

    def close(self) -> None:
        self._client.close()

    def send(self, method: str, path: str, key: str | None = None, body: Any = None, **options: Any) -> httpx.Response:
        """One request. Raises `Unavailable` where nothing answers."""
        if self._stopped():
            raise Stopped
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        if body is not None:
            options["json"] = body
        try:
            return self._client.request(method, path, headers=headers, **options)
        except httpx.TransportError as error:
            raise Unavailable(
                f"the service does not answer ({type(error).__name__})",
                item=self.url,
                remedy="start it with `strongroom serve`, or name its address with --url",
            ) from None

    def put(self, canary: Canary, name: str, text: str, *allow: str) -> None:
        """Store a document. Raises `Unavailable` where the service does not take it."""
        body = {"text": text, "allow": list(allow)}
        response = self.send("PUT", f"/v1/documents/{quote(name)}", canary.keys["loader"], body)
        if response.status_code != httpx.codes.OK:
            raise Unavailable(
                "the service did not store a canary document",
                item=f"HTTP {response.status_code}",
                remedy="its log says why",
            )

    def ask(self, canary: Canary, user: str, query: str, **more: Any) -> httpx.Response:
        """POST /v1/answers as `user`."""
        return self.send("POST", "/v1/answers", canary.keys[user], {"query": query, **more})

    def recorded(self, canary: Canary, request_id: str) -> dict[str, Any]:
        """The outcome of a request in its tenant's audit log, which follows the answer. Raises `Unavailable`."""
        until = time.monotonic() + _RECORDED_S
        while True:
            parameters = {"request": request_id, "phase": "outcome"}
            found = self.send("GET", "/v1/audit/events", canary.keys["auditor"], params=parameters)
            if found.status_code == httpx.codes.OK and (events := found.json()["events"]):
                event: dict[str, Any] = events[0]
                return event
            if time.monotonic() > until:
                raise Unavailable("an answer has no outcome in the audit log", item=request_id, remedy="see its log")
            time.sleep(_AGAIN_S)


def _address(scheme: str, server: ServerSettings, port: int | None) -> str:
    port = port or server.port
    if not port:
        raise InvalidInput("the settings do not say on which port the service listens", item="--url")
    try:
        # Who listens on every address is reached on this machine's own.
        own = {4: "127.0.0.1", 6: "::1"} if (at := ipaddress.ip_address(server.host)).is_unspecified else {}
        host = own.get(at.version, server.host)
    except ValueError:
        host = server.host
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _trust(ca: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca))
    except OSError as error:
        raise InvalidInput(
            f"the certificates cannot be loaded: {error.strerror or error}", item=str(ca), remedy="name a PEM file"
        ) from None
