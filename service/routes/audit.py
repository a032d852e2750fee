"""GET /v1/audit/events: the tenant's own log, for auditors. Reading it is itself an event."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Router, get
from litestar.params import FromPath, FromQuery, QueryParameter

from audit.query import fetch, query_log, view
from audit.trail import Trail
from service.auth import QUERY, principal_of
from service.charging import EVIDENCE, FREE
from service.inspection import DEFAULT_LIMIT, PARAMETERS, events_of, filters_of, told, window_of
from service.openapi import PROBLEMS
from service.operation import operation
from service.wiring import Services
from tenancy.identity import Role


def router(services: Services) -> Router:
    control, workers = services.control, services.workers

    @get("/", opt={QUERY: PARAMETERS}, summary="Query the audit log", responses=PROBLEMS)
    async def list_events(
        request: Request[Any, Any, Any],
        since: FromQuery[str | None] = None,
        until: FromQuery[str | None] = None,
        actor: FromQuery[str | None] = None,
        action: FromQuery[str | None] = None,
        phase: FromQuery[str | None] = None,
        outcome: FromQuery[str | None] = None,
        document: FromQuery[str | None] = None,
        cache_status: Annotated[str | None, QueryParameter(name="cache.status")] = None,
        cache_entry: Annotated[str | None, QueryParameter(name="cache.entry")] = None,
        of_request: Annotated[str | None, QueryParameter(name="request")] = None,
        root: FromQuery[str | None] = None,
        limit: FromQuery[int] = DEFAULT_LIMIT,
        after: FromQuery[str | None] = None,
        order: FromQuery[str] = "desc",
        as_of: FromQuery[int | None] = None,
    ) -> dict[str, Any]:
        """Events that match every parameter given, newest first. `after` is the cursor of the page before; `since`
        and `until` are ISO 8601. With `as_of` the log is read as it was with so many records. The answer says which
        window was really applied and as of which checkpoint.
        """
        principal = principal_of(request)
        given: dict[str, str | int | None] = {
            "since": since, "until": until, "actor": actor, "action": action, "phase": phase, "outcome": outcome,
            "document": document, "cache.status": cache_status, "cache.entry": cache_entry, "request": of_request,
            "root": root, "order": order, "as_of": as_of,
        }  # fmt: skip

        def read(trail: Trail) -> dict[str, Any]:
            log = control.logs.of(principal)
            filters = filters_of(control, principal, log, given)
            trail.note(detail=told(filters))
            page = query_log(log, filters, limit=limit, after=after)
            return {"events": events_of(page, log)} | window_of(page)

        async with operation(control, request, "audit.query", Role.AUDITOR) as trail:
            await trail.intent()
            found = await workers.run(read, trail)
            trail.note(detail={"events": len(found["events"])})
            return found

    @get("/{seq:int}", summary="One audit event", responses=PROBLEMS)
    async def show_event(request: Request[Any, Any, Any], seq: FromPath[int]) -> dict[str, Any]:
        """One event by its sequence number, with its texts opened where their key exists."""
        principal = principal_of(request)

        def read() -> dict[str, Any]:
            log = control.logs.of(principal)
            return view(fetch(log, seq), log.subjects)

        async with operation(control, request, "audit.query", Role.AUDITOR) as trail:
            await trail.intent()
            found = await workers.run(read)
            trail.note(detail={"event": seq, "events": 1})
            return found

    return Router("/audit/events", route_handlers=[list_events, show_event], tags=["audit"], opt={FREE: EVIDENCE})
