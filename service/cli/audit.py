"""`strongroom audit`: query and verify the logs of who saw what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, audited, opened, print_json, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.log import AuditLog
    from audit.trail import Trail
    from service.control import Control
    from tenancy.identity import Principal

app = App(name="audit", help="Query and verify the audit log of a tenant.")

OneTenant = Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")]
System = Annotated[bool, Parameter(negative=(), help="The log of what belongs to no tenant, such as failed logins.")]


@app.command
def query(
    *,
    tenant: OneTenant = None,
    system: System = False,
    since: str | None = None,
    until: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    outcome: Literal["allowed", "refused", "error", "aborted", "revoked"] | None = None,
    document: str | None = None,
    cache: Literal["hit", "miss", "bypass", "refresh", "stored"] | None = None,
    root: str | None = None,
    limit: int = 50,
    after: str | None = None,
    order: Literal["asc", "desc"] = "desc",
    common: Common = DEFAULT,
) -> None:
    """Events of one log, newest first; reading the log is itself an event.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    actor: str
        A user's name, or `actor.ref` of an event.
    action: str
        For example `answer`, `retrieve`, `ingest`, `acl.set`.
    document: str
        Events that touched this document.
    cache: str
        How the cache decided.
    root: str
        Events of one conversation or job.
    limit: int
        At most so many events, 1 to 1000.
    after: str
        The cursor of the page before.
    """
    from audit.query import query_log
    from service.inspection import events_of, filters_of, window_of

    given = {
        "since": since, "until": until, "actor": actor, "action": action, "outcome": outcome,
        "document": document, "cache": cache, "root": root, "order": order,
    }  # fmt: skip
    with opened(common) as control:
        principal, log = _log(control, tenant, system)

        def read(trail: Trail) -> dict[str, Any]:
            page = query_log(log, filters_of(control, principal, log, given), limit=limit, after=after)
            trail.note(detail={"events": len(page.events)})
            return {"events": events_of(page, log)} | window_of(page)

        found = audited(control, principal, "audit.query", read)
    if common.as_json:
        print_json(found)
        return
    show_table(common, [_row(event) for event in found["events"]], _COLUMNS)
    if found["after"]:
        print(f"more: --after {found['after']}")


@app.command
def verify(*, tenant: OneTenant = None, common: Common = DEFAULT) -> int:
    """Hash every record again and build the tree anew; without `--tenant`, the system's log and all tenants'.

    Intents that a killed process left without an outcome are closed as `aborted` first.
    """
    from audit.verify import verify as verify_log

    with opened(common) as control:
        names = [tenant] if tenant is not None else [None, *(record.name for record in control.tenants.all())]
        rows = []
        for name in names:
            _, log = _log(control, name, system=name is None)
            found = verify_log(log, recover=True)
            rows.append(
                {
                    "log": name or "system",
                    "verdict": "ok" if found.finding is None else found.finding.kind,
                    "records": found.size,
                    "root": found.root.hex(),
                    "in_flight": found.in_flight,
                    "recovered": found.recovered,
                    "at": found.finding.seq if found.finding else None,
                    "reason": found.finding.reason if found.finding else None,
                }
            )
    show_table(common, rows, ["log", "verdict", "records", "root", "in_flight", "recovered", "at", "reason"])
    return 0 if all(row["verdict"] == "ok" for row in rows) else 1


_COLUMNS = ["seq", "ts", "action", "phase", "outcome", "reason", "user", "cache", "documents", "question"]


def _log(control: Control, tenant: str | None, system: bool) -> tuple[Principal | None, AuditLog]:
    if system == (tenant is not None):
        raise InvalidInput("name one log", item="audit", remedy="give --tenant NAME or --system")
    principal = None if tenant is None else control.authenticator.operator(tenant)
    return principal, control.logs.of(principal)


def _row(event: dict[str, Any]) -> dict[str, Any]:
    content, cache = event.get("content", {}), event.get("cache", {})
    return {
        **{name: event.get(name) for name in ("seq", "ts", "action", "phase", "outcome", "reason")},
        "user": _text(content.get("user")),
        "cache": " ".join(filter(None, (cache.get("status"), cache.get("kind")))) or None,
        "documents": sorted({resource["document"] for resource in event.get("resources", [])}),
        "question": _text(content.get("question")),
    }


def _text(sealed: dict[str, Any] | None) -> str | None:
    if sealed is None:
        return None
    return str(sealed["text"]) if "text" in sealed else "(erased)" if sealed.get("erased") else "(unreadable)"
