"""GET /v1/limits: the caller's own limits, and how far they are used."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, get

from admission.gate import Estimate
from retrieval.roots import draws_of, root_of
from service.auth import principal_of, request_id_of
from service.bodies import SignedRoot
from service.charging import FREE, STANDING
from service.openapi import PROBLEMS
from service.operation import operation
from service.routes.preview import RefusedBody, RoomBody
from service.routes.retrieve import AuditBody
from service.wiring import Services
from tenancy.identity import Role


class LimitsResponse(msgspec.Struct, frozen=True):
    """`admitted`: a request that uses nothing but itself would be; else `refused` says what stands in its way."""

    admitted: bool
    refused: RefusedBody | None
    room: list[RoomBody]
    audit: AuditBody
    request_id: str


def router(services: Services) -> Router:
    @get("/", opt={FREE: STANDING}, summary="Limits and how far they are used", responses=PROBLEMS)
    async def show_limits(request: Request[Any, Any, Any], signed_root: SignedRoot = None) -> LimitsResponse:
        """The limits of the caller, its tenant and its key, and with the header Strongroom-Root those of that root and
        of all above it. Looking uses nothing.
        """
        principal, path = principal_of(request), services.path
        # Any role will do: whoever draws on limits may see them.
        role = min(principal.roles, default=Role.READER)
        async with operation(services.control, request, "limits.show", role) as trail:
            tenant = await services.workers.run(path.tenants.open, principal)
            root = None if signed_root is None else root_of(tenant, principal, signed_root)
            roots = await draws_of(path, principal, root, trail.log)
            look = await path.admission.look(principal, Estimate(0, 0), tenant.contract, roots=roots)
            seq = await trail.intent()
        return LimitsResponse(
            admitted=look.refused is None,
            refused=None if look.refused is None else RefusedBody.of(look.refused),
            room=[RoomBody.of(room) for room in look.rooms],
            audit=AuditBody(seq),
            request_id=request_id_of(request),
        )

    return Router("/limits", route_handlers=[show_limits], tags=["questions"])
