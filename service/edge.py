"""The outermost layer around every request: its id, its security headers, its log line.

The id is minted here. One that the client sends is not used: it would let a caller forge entries of logs and audit.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, Final

import structlog
from litestar import Litestar
from litestar.types import Message, Receive, Scope, Send

from admission.counters import Room
from admission.gate import ROOMS
from service.ratelimit import room_headers

REQUEST_ID: Final = "request_id"
PRINCIPAL: Final = "principal"

_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PRIVATE: Final = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
# The OpenAPI page has inline style and nothing else.
_PAGE: Final = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)

_log = structlog.get_logger("strongroom.request")


class Edge:
    """An ASGI application around the Litestar one; a layer inside it would miss requests that match no route."""

    def __init__(self, app: Litestar) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = secrets.token_hex(16)
        scope.setdefault("state", {})[REQUEST_ID] = request_id
        begun, status = time.perf_counter(), 0
        rooms: list[Room] = []
        ROOMS.set(rooms)
        headers = _HEADERS + (_PAGE if scope["path"].startswith("/schema") else _PRIVATE)

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = message["headers"]
                # A refusal brings the limit that refused; all others say how far the caller's limits are used.
                limits = [] if any(name.lower() == b"ratelimit" for name, _ in own) else _limits(rooms)
                message["headers"] = [*own, *headers, *limits, (b"x-request-id", request_id.encode())]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, send_on)
            except Exception:  # noqa: BLE001  whatever it was, it must not reach the server's own log
                # The response has begun, so all that is left is to cut the connection, which the server does.
                _log.exception("broken off", **_subject(scope))
            finally:
                milliseconds = round((time.perf_counter() - begun) * 1000, 1)
                _log.info("request", status=status, ms=milliseconds, **_subject(scope))


def _limits(rooms: list[Room]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode()) for name, value in room_headers(rooms)]


def _subject(scope: Scope) -> dict[str, Any]:
    """Who asked what: the route's pattern and not its path, which names documents."""
    principal = scope["state"].get(PRINCIPAL)
    return {
        "method": scope.get("method"),
        "route": scope.get("path_template"),
        "tenant": getattr(principal, "tenant", None),
        "credential": getattr(principal, "credential_id", None),
    }
