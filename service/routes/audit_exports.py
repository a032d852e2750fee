"""POST /v1/audit/exports: the tenant's own log as evidence that others can verify, for auditors."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from litestar import Request, Router, post
from litestar.openapi.spec import Example
from litestar.params import Body

from service.audit_exports import ExportRequest, ExportResponse, export_next
from service.auth import principal_of
from service.charging import EVIDENCE, FREE
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.identity import Role

EXAMPLES = [
    Example(summary="From the beginning", value={}),
    Example(summary="Of the first record alone", value={"as_of": 1}),
]


def router(services: Services) -> Router:
    control, workers = services.control, services.workers

    @post("/", status_code=200, summary="Export the audit log", responses=PROBLEMS)
    async def export_log(
        request: Request[Any, Any, Any], data: Annotated[ExportRequest, Body(examples=EXAMPLES)]
    ) -> ExportResponse:
        """Records as they are stored, their hashes and a signed manifest, at most 10,000 records at a time: ask again
        with the manifest's text as `after` until `size` is `log_size`. Personal texts are ciphertext.
        """
        principal = principal_of(request)
        async with operation(control, request, "audit.export", Role.AUDITOR, tenant=data.tenant) as trail:
            await trail.intent()
            found = await workers.run(lambda: export_next(control, control.logs.of(principal), data))
            trail.note(detail={"first": found.first, "size": found.size})
            for one in found.files:
                if one.file.startswith("manifest"):
                    trail.note(detail={"manifest": hashlib.sha256(one.text.encode()).hexdigest()})
            return found

    return Router("/audit/exports", route_handlers=[export_log], tags=["audit"], opt={FREE: EVIDENCE})
