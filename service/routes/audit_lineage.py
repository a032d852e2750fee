"""GET /v1/audit/lineage: did the tenant's data train a model? For auditors; asking is itself an event."""

from __future__ import annotations

from typing import Any

from litestar import Request, Router, get
from litestar.params import FromQuery

from service.auth import QUERY, principal_of
from service.charging import EVIDENCE, FREE
from service.lineage import SHOWN, asked_for, lineage
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.identity import Role


def router(services: Services) -> Router:
    control, workers = services.control, services.workers

    @get("/", opt={QUERY: frozenset({"document", "adapter"})}, summary="Lineage of models", responses=PROBLEMS)
    async def show_lineage(
        request: Request[Any, Any, Any],
        document: FromQuery[str | None] = None,
        adapter: FromQuery[str | None] = None,
    ) -> dict[str, Any]:
        """Whether adapters and models on record were trained on the tenant's data, or on one `document`: `trained` is
        yes, no or unknown. Revoked and replaced adapters stay on record. `adapter` is a name or an id.
        """
        principal = principal_of(request)
        async with operation(control, request, "lineage.query", Role.AUDITOR) as trail:
            trail.note(detail=asked_for(document, adapter))
            await trail.intent()
            found = await workers.run(
                lambda: lineage(control, principal, document=document, adapter=adapter, shown=SHOWN)
            )
            trail.note(detail={"trained": found["trained"], "adapters": len(found["adapters"])})
            return found

    return Router("/audit/lineage", route_handlers=[show_lineage], tags=["audit"], opt={FREE: EVIDENCE})
