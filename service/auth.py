"""From a bearer credential to a `Principal`, once per request, before anything of the body is read."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from litestar import Request
from litestar.enums import ScopeType
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from audit.trail import AuditTrail
from service.bodies import require_same_tenant
from service.edge import PRINCIPAL, REQUEST_ID
from service.problems import Malformed
from tenancy.errors import InvalidInput, TenantSuspended, Unauthenticated, UnknownParameter
from tenancy.identity import Authenticator, Principal
from tenancy.workers import Workers

QUERY: Final = "query"
_TENANT_HEADERS: Final = frozenset(
    {b"tenant", b"tenant-id", b"tenant-name", b"x-tenant", b"x-tenant-id", b"x-tenant-name", b"x-strongroom-tenant"}
)
_MAX_CREDENTIAL: Final = 16_384


class Authentication(ASGIMiddleware):
    """Puts the caller's `Principal` into the request's state, or refuses.

    A header, a parameter or (in `bodies.py`) a field that names a tenant must name the credential's own. A query
    parameter that the route does not declare (in its `opt`) is refused, and so is one that is given twice, and a body
    where the route takes none: nothing that was sent is silently left out.
    """

    scopes = (ScopeType.HTTP,)

    def __init__(self, authenticator: Authenticator, trail: AuditTrail, workers: Workers) -> None:
        self._authenticator = authenticator
        self._trail = trail
        self._workers = workers

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        headers = list(scope["headers"])
        state = scope["state"]
        principal = await self._authenticate(headers, source_of(scope), state[REQUEST_ID])
        state[PRINCIPAL] = principal
        parameters = _parameters(scope["query_string"])
        named = [_text(value) for name, value in headers if name in _TENANT_HEADERS]
        named += [parameters["tenant"]] if "tenant" in parameters else []
        if any(name != principal.tenant for name in named):
            async with self._trail.open(principal, action="authorize", request_id=state[REQUEST_ID]):
                for name in named:
                    require_same_tenant(name, principal)
        handler = scope["route_handler"]
        _require_known(parameters, handler.opt.get(QUERY, frozenset()))
        if handler.parsed_data_field is None and _announces_body(headers):
            raise Malformed("this address takes no body", item="body", remedy="send parameters in the address")
        await next_app(scope, receive, send)

    async def _authenticate(self, headers: list[tuple[bytes, bytes]], source: str, request_id: str) -> Principal:
        """Verify the one bearer credential. A failure is an event of the system's log; a throttled try is not, so
        that a flood does not fill it.
        """
        try:
            return await self._workers.run(self._authenticator.authenticate, _bearer(headers), source)
        except (Unauthenticated, TenantSuspended):
            async with self._trail.open(None, action="authenticate", request_id=request_id):
                raise


def principal_of(request: Request[Any, Any, Any]) -> Principal:
    """The caller; only routes behind `Authentication` have one."""
    principal = request.scope["state"][PRINCIPAL]
    if not isinstance(principal, Principal):
        raise Unauthenticated("the request was not authenticated")
    return principal


def request_id_of(request: Request[Any, Any, Any]) -> str:
    return str(request.scope["state"][REQUEST_ID])


def source_of(scope: Scope) -> str:
    """The client's address for throttling; one network counts as one source in IPv6 (its /64)."""
    client = scope.get("client")
    host = client[0] if client else "unknown"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return host


def _bearer(headers: list[tuple[bytes, bytes]]) -> str:
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) != 1:
        raise Unauthenticated(
            "no credential was sent" if not found else "more than one credential was sent",
            remedy="send Authorization: Bearer with an API key or a token",
        )
    scheme, _, credential = found[0].partition(b" ")
    if scheme.lower() != b"bearer" or not credential.strip() or len(credential) > _MAX_CREDENTIAL:
        raise Unauthenticated("the credential is not a bearer credential", remedy="send Authorization: Bearer")
    try:
        return credential.strip().decode("ascii")
    except UnicodeDecodeError:
        raise Unauthenticated("the credential is malformed", remedy="copy the whole key or token again") from None


def _parameters(query: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError:
        raise Malformed("the query string cannot be read", item="query") from None
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise InvalidInput("a query parameter is given twice", item="query")
    if any("\x00" in part for pair in pairs for part in pair):
        raise InvalidInput("a query parameter holds a NUL character", item="query", remedy="remove it")
    return parameters


def _require_known(parameters: Mapping[str, str], known: frozenset[str]) -> None:
    for name in parameters:
        if name not in known and name != "tenant":
            allowed = ", ".join(sorted(known)) or "none"
            raise UnknownParameter("this address knows no such parameter", item=name[:100], remedy=f"known: {allowed}")


def _announces_body(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 ")) for name, value in headers
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
