"""The listener for whoever operates the service: metrics, and the signals of one tenant. Never on the API's port.

Figures hold no text and no person, so that reading them is no event of a log.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any, Final

from litestar import Litestar, Request, Response, Router, get
from litestar.exceptions import HTTPException
from litestar.params import FromPath
from litestar.types import ASGIApp, Receive, Scope, Send

from service import problems
from service.auth import request_id_of
from service.edge import Edge
from service.loopback import is_loopback
from service.metrics.pools import waiting
from service.metrics.signals import TenantSignals
from service.signal_settings import AdminSettings
from service.wiring import Services
from tenancy.errors import InvalidInput, Unauthenticated, UnknownParameter

_LEAST_TOKEN: Final = 16


def create_admin(services: Services, settings: AdminSettings) -> Edge:
    """The ASGI application over `services`. Raises `InvalidInput` where anybody could read, or without its token."""
    token = _token(settings)

    @get("/metrics", summary="Prometheus series", sync_to_thread=False)
    def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        families = services.signals.families
        text, media_type = families.exposition(request.headers.get("accept", ""), lambda: waiting(services.path.routes))
        return Response(text, headers={"Content-Type": media_type})

    @get("/tenants/{tenant:str}/signals", summary="Figures of one tenant")
    async def signals(tenant: FromPath[str]) -> TenantSignals:
        record = await services.workers.run(services.control.tenants.show, tenant)
        return services.signals.report(record.id, record.name)

    def guarded(app: ASGIApp) -> ASGIApp:
        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            _require(scope, token)
            await app(scope, receive, send)

        return handle

    return Edge(
        Litestar(
            route_handlers=[
                Router("/v1/admin", route_handlers=[signals], middleware=[guarded]),
                Router("/", route_handlers=[metrics], middleware=[guarded]),
            ],
            exception_handlers={Exception: _problem},
            openapi_config=None,
            logging_config=None,
            debug=False,
        )
    )


def _require(scope: Scope, token: bytes | None) -> None:
    if scope["query_string"]:
        raise UnknownParameter("this address takes no parameters", item="query")
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if token is not None and not (len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + token)):
        raise Unauthenticated("the admin listener's token was not sent", remedy="send Authorization: Bearer TOKEN")


def _token(settings: AdminSettings) -> bytes | None:
    if not settings.token_file:
        if not is_loopback(settings.host):
            raise InvalidInput(
                "others could read the figures of every tenant",
                item="server.admin.host",
                remedy="listen on loopback, or name a server.admin.token_file",
            )
        return None
    path = Path(settings.token_file).expanduser()
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise InvalidInput(f"the admin token cannot be read: {reason}", item=str(path)) from None
    if len(token) < _LEAST_TOKEN or any(character.isspace() for character in token):
        raise InvalidInput(
            f"the admin token is one line of {_LEAST_TOKEN} characters at least",
            item=str(path),
            remedy="openssl rand -hex 32",
        )
    return token.encode()


def _problem(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    request_id = request_id_of(request)
    if isinstance(error, HTTPException):
        problem, headers = problems.problem_of_status(error.status_code, request_id), {}
    else:
        problem, headers = problems.problem_of(error, request_id), problems.headers_of(error)
    return Response(
        problems.encode(problem), status_code=problem.status, headers=headers, media_type=problems.MEDIA_TYPE
    )
