"""`strongroom usage`: what tenants used, what it cost, and whether all counts of it agree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.audit import Deleted, OneTenant
from service.cli.console import (
    DEFAULT,
    Common,
    Tenant,
    audited,
    iso,
    note,
    opened,
    print_json,
    show_record,
    show_table,
)

if TYPE_CHECKING:
    from audit.log import AuditLog
    from audit.trail import Trail
    from service.control import Control

app = App(name="usage", help="What tenants used and what it cost; whether ledger, audit and engines agree.")

_GROUPS = "tenant,feature,model,hop"


@app.command
def report(
    *,
    tenant: OneTenant = None,
    deleted: Deleted = None,
    since: str | None = None,
    until: str | None = None,
    group_by: str = _GROUPS,
    csv: Annotated[bool, Parameter(negative=())] = False,
    common: Common = DEFAULT,
) -> None:
    """Show the sums of a tenant's usage by group, also of a deleted one.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    group_by: str
        Groups, separated by commas: tenant, feature, model, hop, month, version, adapter, user, prices, basis.
    csv: bool
        CSV on standard output.
    """
    from metering.usage import csv_lines, grouped
    from service.retention import one_log
    from service.usage import Window, usage_report
    from tenancy.errors import InvalidInput

    if (tenant is None) == (deleted is None):
        raise InvalidInput("usage is of one tenant", item="--tenant", remedy="give --tenant NAME or --deleted ID")
    window, by = Window.of(since, until), grouped(group_by)
    with opened(common) as control:
        principal, log = one_log(control, tenant, system=False, deleted=deleted)
        name = str(tenant or deleted)
        found: dict[str, Any] = audited(
            control, principal, "usage.query", lambda _: usage_report(log, name, by, window)
        )
    if csv:
        sys.stdout.writelines(csv_lines(found["rows"], by))
    elif common.as_json:
        print_json(found)
    else:
        columns = ("events", "tokens_computed", "tokens_served", "microunits", "saved")
        show_table(common, found["rows"], (*by, *columns))
        note(f"{found['total']['microunits']} microunits in all, {found['total']['saved']} saved by remembered answers")


@app.command(name="list")
def show_events(
    *,
    tenant: Tenant,
    since: str | None = None,
    until: str | None = None,
    limit: int = 100,
    after: str = "",
    common: Common = DEFAULT,
) -> None:
    """List the events themselves, a line a hop, in the order of the audit log.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    limit: int
        At most so many events.
    after: str
        The id of the event to go on behind.
    """
    from metering.usage import events_of
    from service.usage import Window, caught_up

    window = Window.of(since, until)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        ledger = caught_up(control.logs.of(principal))
        found = audited(
            control,
            principal,
            "usage.query",
            lambda _: events_of(ledger, since=window.since, until=window.until, after=after, limit=max(1, limit)),
        )
    rows = [{name: getattr(one, name) for name in one.__struct_fields__} | {"ts": iso(one.at)} for one in found]
    brief = ("id", "ts", "hop", "feature", "model", "served_input", "served_output", "microunits", "saved", "corrects")
    show_table(common, rows, brief)


@app.command
def correct(
    event: Annotated[str, Parameter(help="The id of the event, out of the ledger.")],
    /,
    *,
    tenant: Tenant,
    microunits: int,
    why: str,
    common: Common = DEFAULT,
) -> None:
    """Correct what one event costs, by another event; negative microunits give back.

    Parameters
    ----------
    microunits: int
        What is added to the event's cost.
    why: str
        The reason, for the record: no text of documents or questions.
    """
    from service.usage import caught_up
    from service.usage import correct as put_on_record

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        log = control.logs.of(principal)
        about = audited(
            control, principal, "usage.correct", lambda trail: put_on_record(log, trail, event, microunits, why)
        )
        charged = caught_up(log).charged(event)
    show_record(common, {"event": about.id, "hop": about.hop, "before": charged - microunits, "now": charged})


@app.command
def reconcile(
    *,
    tenant: Annotated[str | None, Parameter(name=["--tenant", "-t"])] = None,
    before: Path | None = None,
    after: Path | None = None,
    since: str | None = None,
    until: str | None = None,
    common: Common = DEFAULT,
) -> int:
    """Compare the ledger with the audit log, and with the counters of engines; exits with 1 where they differ.

    Parameters
    ----------
    tenant: str
        One tenant; all where it is left out.
    before: Path
        With --after: a copy of an SGLang server's /metrics at the beginning of the window.
    after: Path
        And at its end. Both are compared with the generators' tokens of the tenants; a difference is only shown.
    since: str
        First moment of that window (ISO 8601).
    until: str
        Moment after its last one.
    """
    from metering.reconcile import engine_totals
    from service.problems import DONE, FAILED
    from service.usage import Window, against_engines, reconciled
    from tenancy.errors import InvalidInput

    if (before is None) != (after is None):
        raise InvalidInput("two copies of the counters are compared", item="before", remedy="give --before and --after")
    window = Window.of(since, until)
    with opened(common) as control:
        logs = _logs(control, tenant)
        rows = reconciled(logs)
        found: dict[str, Any] = {"tenants": rows}
        if before is not None and after is not None:
            first, last = (engine_totals(path.read_text(encoding="utf-8"), str(path)) for path in (before, after))
            found["generation"] = against_engines([log for _, log in logs], last - first, window)
    if common.as_json:
        print_json(found)
    else:
        show_table(common, rows, list(rows[0]) if rows else ())
        for name, tokens in found.get("generation", {}).items():
            print(f"{name}: {tokens['prompt']} read, {tokens['cached']} of them cached, {tokens['generated']} written")
    return DONE if all(row["agrees"] for row in rows) else FAILED


@app.command
def rebuild(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Make a ledger again whose file is lost, from the audit log. Rows of pruned records are lost with it."""
    from dataclasses import asdict

    from metering.ledger import rebuilt

    def made(trail: Trail) -> dict[str, int]:
        place = asdict(rebuilt(log).place())
        trail.note(detail=dict(place))
        return place

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        log = control.logs.of(principal)
        found = audited(control, principal, "usage.rebuild", made)
    show_record(common, found)


def _logs(control: Control, tenant: str | None) -> list[tuple[str, AuditLog]]:
    names = [record.name for record in control.tenants.listed()] if tenant is None else [tenant]
    return [(name, control.logs.of(control.authenticator.operator(name))) for name in names]
