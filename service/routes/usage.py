"""GET /v1/usage: what the tenant used and what it cost, by group. Reading it is itself an event."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, Response, Router, get
from litestar.params import FromQuery

from metering.usage import DEFAULT_GROUPS, csv_lines, grouped
from service.auth import QUERY, principal_of
from service.charging import FREE, STANDING
from service.openapi import PROBLEMS
from service.operation import operation
from service.usage import Window, usage_report
from service.wiring import Services
from tenancy.errors import InvalidInput
from tenancy.identity import Role

_PARAMETERS: Final = frozenset({"since", "until", "group_by", "format"})
_GROUPS: Final = ",".join(DEFAULT_GROUPS)


def router(services: Services) -> Router:
    control, workers = services.control, services.workers

    @get("/", opt={QUERY: _PARAMETERS, FREE: STANDING}, summary="Usage and its cost", responses=PROBLEMS)
    async def show_usage(
        request: Request[Any, Any, Any],
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        group_by: FromQuery[str] = _GROUPS,
        format: FromQuery[str] = "json",
    ) -> Response[Any]:
        """Sums by group, each a row, and their total: tokens computed and served, microunits, and what remembered
        answers saved. `group_by` names some of tenant, feature, model, hop, month, version, adapter, user, prices and
        basis. The window takes `since` and not `until` (ISO 8601). With `format=csv` the rows come as CSV.
        """
        principal = principal_of(request)
        role = Role.ADMIN if Role.ADMIN in principal.roles else Role.AUDITOR
        async with operation(control, request, "usage.query", role) as trail:
            if format not in {"json", "csv"}:
                raise InvalidInput("must be json or csv", item="format")
            window, by = Window.of(since, until), grouped(group_by)
            trail.note(detail={"group_by": ",".join(by), **window.told()})
            await trail.intent()
            found = await workers.run(lambda: usage_report(control.logs.of(principal), principal.tenant, by, window))
            trail.note(detail={"rows": len(found["rows"])})
        if format == "csv":
            return Response("".join(csv_lines(found["rows"], by)), media_type="text/csv; charset=utf-8")
        return Response(found, media_type="application/json")

    return Router("/usage", route_handlers=[show_usage], tags=["usage"])
