"""The frame of routes: trail, role, tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request

from audit.trail import Trail
from service.auth import principal_of, request_id_of
from service.bodies import require_same_tenant
from service.control import Control
from tenancy.identity import Role


async def require_own_tenant(control: Control, request: Request[Any, Any, Any], tenant: str | None) -> None:
    """Refuse, on record, a question whose body names another tenant than its credential."""
    principal = principal_of(request)
    if tenant is not None and tenant != principal.tenant:
        async with control.trail.open(principal, action="authorize", request_id=request_id_of(request)):
            require_same_tenant(tenant, principal)


@asynccontextmanager
async def operation(
    control: Control, request: Request[Any, Any, Any], action: str, role: Role, *, tenant: str | None = None
) -> AsyncIterator[Trail]:
    """A trail around one operation. A wrong role, or another tenant named in the body, is refused and recorded."""
    principal = principal_of(request)
    async with control.trail.open(principal, action=action, request_id=request_id_of(request)) as trail:
        principal.require(role)
        require_same_tenant(tenant, principal)
        yield trail
