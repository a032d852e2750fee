"""GET /v1/audit/reports/...: who saw what and why, what was refused, what was deleted; for auditors, and on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from litestar import Request, Response, Router, get
from litestar.di import NamedDependency, Provide
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from audit.log import AuditLog
from audit.reports.frame import Asked, Report
from audit.trail import Trail
from service import reports
from service.auth import QUERY, principal_of
from service.charging import EVIDENCE, FREE
from service.inspection import DEFAULT_LIMIT, window_of
from service.openapi import PROBLEMS
from service.operation import operation
from service.routes.documents import document_name
from service.wiring import Services
from tenancy.identity import Role

_DOCUMENTS: Final = b"/v1/audit/reports/document/"
_HINT: Final = {QUERY: reports.PARAMETERS}
_CSV: Final = "text/csv"

Given = dict[str, str | int | None]
Make = Callable[[AuditLog, Asked], Report]


def given_of(
    since: FromQuery[str | None] = None,
    until: FromQuery[str | None] = None,
    as_of: FromQuery[int | None] = None,
    limit: FromQuery[int] = DEFAULT_LIMIT,
    after: FromQuery[str | None] = None,
    format: FromQuery[Literal["json", "csv"]] = "json",
    table: FromQuery[str | None] = None,
) -> Given:
    """Parameters of every report. `since` and `until` are ISO 8601; with `as_of` the log is read as it was with so many
    records; `after` is the cursor of the page before; `format=csv` gives one `table`.
    """
    return {
        "since": since, "until": until, "as_of": as_of, "limit": limit, "after": after, "format": format,
        "table": table,
    }  # fmt: skip


def router(services: Services) -> Router:
    return Router(
        "/audit/reports",
        route_handlers=[*_about_one(services), *_about_all(services)],
        dependencies={"given": Provide(given_of, sync_to_thread=False)},
        tags=["audit"],
        opt={FREE: EVIDENCE},
    )


def _about_one(services: Services) -> list[HTTPRouteHandler]:
    control, store = services.control, services.path.cache

    @get("/document/{id:path}", opt=_HINT, summary="Who saw a document", responses=PROBLEMS)
    async def of_document(request: Request[Any, Any, Any], given: NamedDependency[Given]) -> Response[Any]:
        """`people` has a row for each person, with how often it came how far; `uses` a row a request: the stage, live
        or replayed from the cache, whose answer that was, which version. Also of a document that is no longer there.
        """
        name = document_name(request, prefix=_DOCUMENTS)
        return await _answer(services, request, given, lambda log, asked: reports.document(log, name, asked))

    @get("/subject/{user:str}", opt=_HINT, summary="What a person was shown and asked", responses=PROBLEMS)
    async def of_subject(
        request: Request[Any, Any, Any], user: FromPath[str], given: NamedDependency[Given]
    ) -> Response[Any]:
        """`user` is a name, or `actor.ref` of an event. Texts of a person that was erased are named as `erased`."""
        principal = principal_of(request)
        return await _answer(
            services, request, given, lambda log, asked: reports.subject(control, principal, log, user, asked)
        )

    @get("/cache-entry/{entry:str}", opt=_HINT, summary="Why a remembered answer was served", responses=PROBLEMS)
    async def of_cache_entry(
        request: Request[Any, Any, Any], entry: FromPath[str], given: NamedDependency[Given]
    ) -> Response[Any]:
        """`origin` is the request whose answer was kept; `uses` is everyone whom it was served to or kept from, on
        which evidence. `entry` is its id, or the number of an event that is about it.
        """
        principal = principal_of(request)

        def origin(name: str) -> int | None:
            return reports.origin_in(store, control.tenants.open(principal), name)

        return await _answer(
            services, request, given, lambda log, asked: reports.cache_entry(log, entry, asked, origin)
        )

    return [of_document, of_subject, of_cache_entry]


def _about_all(services: Services) -> list[HTTPRouteHandler]:
    control = services.control

    @get("/denied", opt=_HINT, summary="Who was refused", responses=PROBLEMS)
    async def of_denied(request: Request[Any, Any, Any], given: NamedDependency[Given]) -> Response[Any]:
        """Requests that were refused, or whose access ended on the way, with a code as the reason."""
        return await _answer(services, request, given, reports.denied)

    @get("/deletions", opt=_HINT, summary="What was deleted", responses=PROBLEMS)
    async def of_deletions(request: Request[Any, Any, Any], given: NamedDependency[Given]) -> Response[Any]:
        """What was deleted, erased, pruned, revoked or put on hold, and the signed receipts of erasures."""
        return await _answer(services, request, given, lambda log, asked: reports.deletions(control, log, asked))

    @get("/attestations", opt=_HINT, summary="Which self-tests ran", responses=PROBLEMS)
    async def of_attestations(request: Request[Any, Any, Any], given: NamedDependency[Given]) -> Response[Any]:
        """The self-tests of isolation and the verifications of this log, with their verdicts."""
        return await _answer(services, request, given, reports.attestations)

    return [of_denied, of_deletions, of_attestations]


async def _answer(services: Services, request: Request[Any, Any, Any], given: Given, make: Make) -> Response[Any]:
    control, principal = services.control, principal_of(request)

    def read(trail: Trail) -> Response[Any]:
        report = make(control.logs.of(principal), reports.asked_of(given))
        trail.note(detail=reports.told(report))
        return _as_csv(report, given["table"]) if given["format"] == "csv" else Response(reports.body_of(report))

    async with operation(control, request, "audit.report", Role.AUDITOR) as trail:
        await trail.intent()
        return await services.workers.run(read, trail)


def _as_csv(report: Report, table: str | int | None) -> Response[Any]:
    """What a table has no place for stands in the headers: window, checkpoint, cursor."""
    window = window_of(report)
    headers = {
        "Strongroom-Window": f"{window['since'] or '-'} {window['until'] or '-'}",
        "Strongroom-Checkpoint": f"{window['checkpoint']['size']} {window['checkpoint']['root']}",
    }
    after = {} if report.cursor is None else {"Strongroom-After": report.cursor}
    text = reports.csv_of(report, None if table is None else str(table))
    return Response(text, media_type=_CSV, headers=headers | after)
