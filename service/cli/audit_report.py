"""`strongroom audit report`: a compliance officer's questions, a command each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from service.cli.audit import Deleted, OneTenant, System, log_of
from service.cli.console import DEFAULT, Common, audited, clean, note, opened, print_json, show_record, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.log import AuditLog
    from audit.reports.frame import Asked, Report, Table
    from audit.trail import Trail
    from service.control import Control
    from tenancy.identity import Principal

    Make = Callable[[Control, Principal | None, AuditLog, Asked], Report]

app = App(name="report", help="Who saw what and why, what was refused or deleted. Each report is itself an event.")


@Parameter(name="*")
@dataclass(frozen=True)
class Part:
    """Which part of the log, and in which form.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    as_of: int
        Read the log as it was when it had so many records.
    limit: int
        At most so many rows of requests, 1 to 1000.
    after: str
        The cursor of the page before.
    csv: bool
        CSV on standard output; window and checkpoint stand on standard error.
    table: str
        With --csv: which table of the report. Without, the one with a row a request.
    """

    since: str | None = None
    until: str | None = None
    as_of: int | None = None
    limit: int = 100
    after: str | None = None
    csv: Annotated[bool, Parameter(negative=())] = False
    table: str | None = None


EVERYTHING: Final = Part()
_BRIEF: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("document", "uses"): ("seq", "ts", "user", "action", "outcome", "stage", "origin_user"),
    ("subject", "uses"): ("seq", "ts", "action", "outcome", "question", "erased", "cache", "documents"),
    ("cache-entry", "uses"): (
        "seq", "ts", "user", "outcome", "status", "kind", "why", "similarity", "score", "guards", "certificate",
    ),
    ("denied", "uses"): ("seq", "ts", "user", "action", "outcome", "reason", "documents"),
    ("deletions", "uses"): ("seq", "ts", "user", "action", "outcome", "documents", "detail"),
    ("attestations", "uses"): ("seq", "ts", "action", "outcome", "detail"),
}  # fmt: skip
"""What a terminal has room for; JSON and CSV have every column."""


@app.command
def document(
    name: Annotated[str, Parameter(help="The document's name, also of one that is no longer there.")],
    /,
    *,
    tenant: OneTenant = None,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """Who saw a document: at which stage, live or replayed from the cache, in which version."""
    from service import reports

    _show(common, part, tenant, False, deleted, lambda _c, _p, log, asked: reports.document(log, name, asked))


@app.command
def subject(
    user: Annotated[str, Parameter(help="A user's name, `operator:NAME`, or `actor.ref` of an event.")],
    /,
    *,
    tenant: OneTenant = None,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """What one person was shown and asked."""
    from service import reports

    _show(
        common, part, tenant, False, deleted,
        lambda control, principal, log, asked: reports.subject(control, principal, log, user, asked),
    )  # fmt: skip


@app.command(name="cache-entry")
def cache_entry(
    entry: Annotated[str, Parameter(help="The entry's id, or the number of an event that is about it.")],
    /,
    *,
    tenant: OneTenant = None,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """Why a remembered answer was served: who asked what made it, everyone it was served to, on which evidence."""
    from service import reports

    def make(control: Control, principal: Principal | None, log: AuditLog, asked: Asked) -> Report:
        return reports.cache_entry(log, entry, asked, lambda found: _origin(control, principal, found))

    _show(common, part, tenant, False, deleted, make)


@app.command
def denied(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """Who was refused, and whose access ended while they were being answered."""
    from service import reports

    _show(common, part, tenant, system, deleted, lambda _c, _p, log, asked: reports.denied(log, asked))


@app.command
def deletions(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """What was deleted, erased, pruned or put on hold; signed receipts, and with --system or --deleted certificates."""
    from service import reports

    _show(
        common, part, tenant, system, deleted,
        lambda control, _, log, asked: reports.deletions(control, log, asked),
    )  # fmt: skip


@app.command
def attestations(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    part: Part = EVERYTHING,
    common: Common = DEFAULT,
) -> None:
    """Which self-tests of isolation ran, and which verifications of this log, with their verdicts."""
    from service import reports

    _show(common, part, tenant, system, deleted, lambda _c, _p, log, asked: reports.attestations(log, asked))


def _show(common: Common, part: Part, tenant: str | None, system: bool, deleted: str | None, make: Make) -> None:
    from service import reports

    given: dict[str, str | int | None] = {
        "since": part.since, "until": part.until, "as_of": part.as_of, "limit": part.limit, "after": part.after,
    }  # fmt: skip
    if part.table is not None and not part.csv:
        raise InvalidInput(
            "only CSV has one table", item="--table", remedy="add --csv, or leave it out to see every table"
        )
    with opened(common) as control:
        principal, log = log_of(control, tenant, system, deleted)

        def read(trail: Trail) -> Report:
            report = make(control, principal, log, reports.asked_of(given))
            trail.note(detail=reports.told(report) | ({} if principal else {"log": log.log_id}))
            return report

        report = audited(control, principal, "audit.report", read)
        body = reports.body_of(report)
        text = reports.csv_of(report, part.table) if part.csv else ""
    if part.csv:
        sys.stdout.write(clean(text.replace("\r\n", "\n")) if sys.stdout.isatty() else text)
        _remark(body)
    elif common.as_json:
        print_json(body)
    else:
        for name, table in report.tables.items():
            _table(common, report.kind, name, table, report.about.get("persons"))
        _remark(body)
        asked = report.about.get("document") or report.about.get("entry")
        if asked and not any(table.rows for table in report.tables.values()):
            note(f"no record of this time is about {clean(str(asked))}: check the name, its folder too, and the time")


def _table(common: Common, kind: str, name: str, table: Table, persons: str | int | None) -> None:
    """A heading and the rows; columns in which no row says anything are left out. The origin of an answer, which is one
    row, is shown line by line.
    """
    wanted = _BRIEF.get((kind, name), table.columns)
    rows = [{**row, **_short(row)} for row in table.rows]
    if name == "uses":
        # Of a person who was erased only the reference is left, and tells them from others.
        rows = [{**row, "user": row.get("user") or row.get("actor")} for row in rows]
    told = [column for column in wanted if any(row.get(column) not in (None, 0) for row in rows)]
    print(f"{name}: {len(rows)}" + (f" of {persons}" if name == "people" and persons != len(rows) else ""))
    if name == "origin":
        for row in rows:
            show_record(common, {column: row[column] for column in told})
    elif rows:
        show_table(common, rows, told)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Times to the second."""
    return {name: f"{value[:19]}Z" for name in ("ts", "first", "last") if isinstance(value := row.get(name), str)}


def _remark(body: dict[str, Any]) -> None:
    checkpoint = body["checkpoint"]
    note(f"from {body['since'] or '-'} to {body['until'] or '-'}, as of {checkpoint['size']} records")
    note(f"root {checkpoint['root']}, {'signed' if checkpoint['note'] else 'not signed yet'}")
    if body["after"]:
        note(f"more: --after {body['after']}")


def _origin(control: Control, principal: Principal | None, entry: str) -> int | None:
    """What the cache itself knows of an entry that was never served."""
    from service import reports
    from service.wiring import cache_store
    from tenancy.errors import TenantSuspended

    if principal is None:
        return None
    store = cache_store(control.settings, patient=True)
    try:
        return reports.origin_in(store, control.tenants.open(principal), entry)
    except TenantSuspended:
        return None
    finally:
        store.shutdown()
