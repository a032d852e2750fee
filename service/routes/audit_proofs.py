"""GET /v1/audit/checkpoint and /v1/audit/proof: what shows an auditor that the tenant's own log only ever grew."""

from __future__ import annotations

from typing import Annotated, Any, Final

from litestar import Request, Router, get
from litestar.params import QueryParameter

from service.auth import QUERY, principal_of
from service.charging import EVIDENCE, FREE
from service.openapi import PROBLEMS
from service.operation import operation
from service.proofs import CONSISTENCY, INCLUSION, checkpoint_of, consistency_of, inclusion_of
from service.wiring import Services
from tenancy.identity import Role

_LARGEST: Final = 1 << 53

Number = Annotated[int, QueryParameter(ge=0, le=_LARGEST)]
OneNumber = Annotated[int | None, QueryParameter(ge=0, le=_LARGEST)]


def router(services: Services) -> Router:
    control, workers = services.control, services.workers

    @get("/checkpoint", summary="A signed checkpoint of the audit log", responses=PROBLEMS)
    async def show_checkpoint(request: Request[Any, Any, Any]) -> dict[str, Any]:
        """The log as it is now: size and root, signed (a C2SP signed note), and the log's public keys. Whoever keeps it
        can show later that nothing before it was altered or left out.
        """
        principal = principal_of(request)
        async with operation(control, request, "audit.checkpoint", Role.AUDITOR) as trail:
            await trail.intent()
            found = await workers.run(lambda: checkpoint_of(control.logs.of(principal)))
            trail.note(detail={"size": found["size"]})
            return found

    @get("/proof/inclusion", opt={QUERY: INCLUSION}, summary="Prove that a record is in the log", responses=PROBLEMS)
    async def prove_inclusion(request: Request[Any, Any, Any], seq: Number, size: OneNumber = None) -> dict[str, Any]:
        """The audit path (RFC 9162, 2.1.3) of record `seq` in the tree of the first `size` records; without `size`, in
        that of a checkpoint made now. Hashes are hexadecimal.
        """
        principal = principal_of(request)
        async with operation(control, request, "audit.prove", Role.AUDITOR) as trail:
            trail.note(detail={"seq": seq})
            await trail.intent()
            found = await workers.run(lambda: inclusion_of(control.logs.of(principal), seq, size))
            trail.note(detail={"size": found["size"]})
            return found

    @get("/proof/consistency", opt={QUERY: CONSISTENCY}, summary="Prove that the log only grew", responses=PROBLEMS)
    async def prove_consistency(request: Request[Any, Any, Any], old: Number, new: OneNumber = None) -> dict[str, Any]:
        """The proof (RFC 9162, 2.1.4) that the tree of the first `new` records begins with the first `old` ones;
        without `new`, in that of a checkpoint made now. Hashes are hexadecimal.
        """
        principal = principal_of(request)
        async with operation(control, request, "audit.prove", Role.AUDITOR) as trail:
            trail.note(detail={"old": old})
            await trail.intent()
            found = await workers.run(lambda: consistency_of(control.logs.of(principal), old, new))
            trail.note(detail={"new": found["new"]})
            return found

    return Router(
        "/audit",
        route_handlers=[show_checkpoint, prove_inclusion, prove_consistency],
        tags=["audit"],
        opt={FREE: EVIDENCE},
    )
