"""`strongroom audit`: query and verify the logs of who saw what."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, audited, opened, print_json, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.log import AuditLog
    from audit.trail import Trail
    from service.control import Control
    from tenancy.identity import Principal

app = App(name="audit", help="Query and verify the audit log of a tenant.")
app.command("service.cli.audit_report:app", name="report", help="Who saw what and why, what was refused or deleted.")
app.command("service.cli.audit_export:export", name="export", help="Write a log to a folder that others can verify.")
app.command("service.cli.audit_log:key", name="key", help="The public keys of a log's checkpoints and exports.")
app.command("service.cli.audit_log:rotate_key", name="rotate-key", help="Replace a log's signing key, on record.")
app.command("service.cli.audit_log:checkpoint", name="checkpoint", help="A signed checkpoint of a log as it is now.")
app.command("service.cli.audit_log:prove", name="prove", help="Prove that a record is in a log, or that it only grew.")
app.command("service.cli.holds:hold", name="hold", help="Put a legal hold on the records of a time.")
app.command("service.cli.holds:release", name="release", help="End a legal hold.")
app.command("service.cli.holds:holds", name="holds", help="The legal holds of a log.")
app.command("service.cli.holds:prune", name="prune", help="Destroy the bytes of records whose retention time is over.")
app.command(
    "service.cli.audit_replay:replay",
    name="replay",
    help="Decide past hits of the cache again and list those that would be refused today.",
)

OneTenant = Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")]
Deleted = Annotated[
    str | None, Parameter(help="The id of a deleted tenant, whose log is retained; see `tenant certificate`.")
]
System = Annotated[bool, Parameter(negative=(), help="The log of what belongs to no tenant, such as failed logins.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Wanted:
    """What to find; everything given must hold.

    Parameters
    ----------
    since: str
        First moment (ISO 8601).
    until: str
        Moment after the last one.
    actor: str
        A user's name, `operator:NAME`, or `actor.ref` of an event.
    action: str
        For example `answer`, `retrieve`, `ingest`, `acl.set`.
    document: str
        Events that touched this document.
    cache: str
        How the cache decided.
    entry: str
        Events about this remembered answer.
    request: str
        Events of one request.
    root: str
        Events of one conversation or job.
    as_of: int
        Read the log as it was when it had so many records.
    """

    since: str | None = None
    until: str | None = None
    actor: str | None = None
    action: str | None = None
    outcome: Literal["allowed", "refused", "error", "aborted", "revoked"] | None = None
    document: str | None = None
    cache: Annotated[
        Literal["hit", "miss", "bypass", "refresh", "stored"] | None, Parameter(name=["--cache.status", "--cache"])
    ] = None
    entry: Annotated[str | None, Parameter(name="--cache.entry")] = None
    request: str | None = None
    root: str | None = None
    order: Literal["asc", "desc"] = "desc"
    as_of: int | None = None

    def given(self) -> dict[str, str | int | None]:
        """Under the names of the parameters of the route."""
        found: dict[str, str | int | None] = {each.name: getattr(self, each.name) for each in fields(self)}
        return found | {"cache.status": found.pop("cache"), "cache.entry": found.pop("entry")}


ALL: Final = Wanted()


@app.command
def query(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    wanted: Wanted = ALL,
    limit: int = 50,
    after: str | None = None,
    common: Common = DEFAULT,
) -> None:
    """Events of one log, newest first; reading the log is itself an event.

    The table has one line for an intent and its outcome, and says what became of each document; `--json` has every
    event in full. Who saw a document: `audit query --tenant acme --document hr/salaries.md`.

    Parameters
    ----------
    limit: int
        At most so many events, 1 to 1000.
    after: str
        The cursor of the page before.
    """
    from audit.query import query_log
    from service.inspection import events_of, filters_of, told, window_of

    rows: list[dict[str, Any]] = []
    with opened(common) as control:
        principal, log = log_of(control, tenant, system, deleted)

        def read(trail: Trail) -> dict[str, Any]:
            filters = filters_of(control, principal, log, wanted.given())
            trail.note(detail=told(filters) | ({} if principal else {"log": log.log_id}))
            page = query_log(log, filters, limit=limit, after=after)
            trail.note(detail={"events": len(page.events)})
            events = events_of(page, log)
            rows[:] = [] if common.as_json else _rows(events, log, wanted.document)
            return {"events": events} | window_of(page)

        found = audited(control, principal, "audit.query", read)
    if common.as_json:
        print_json(found)
        return
    show_table(common, rows, _SYSTEM_COLUMNS if system else _COLUMNS)
    if found["after"]:
        print(f"more: --after {found['after']}")


@app.command
def verify(
    folder: Path | None = None,
    /,
    *,
    tenant: OneTenant = None,
    deleted: Deleted = None,
    key: Annotated[list[str] | None, Parameter(help="For an export: the log's public key; repeat for several.")] = None,
    checkpoint: Annotated[
        list[Path] | None, Parameter(help="A file with a checkpoint that was kept elsewhere; repeat for several.")
    ] = None,
    after: Annotated[
        Path | None, Parameter(help="For an export: an earlier manifest, where the parts before it are not there.")
    ] = None,
    common: Common = DEFAULT,
) -> int:
    """Hash every record again and build the tree anew; without `--tenant`, the system's log and all tenants'.

    Intents that a killed process left without an outcome are closed as `aborted` first.

    Parameters
    ----------
    folder: Path
        An export, checked by itself: nothing of this deployment is read.
    """
    from audit.verify import verify as verify_log
    from service.cli.audit_export import verify_folder
    from service.cli.audit_log import read_checkpoint

    if folder is not None and tenant is None and deleted is None:
        return verify_folder(common, folder, key or [], checkpoint or [], after)
    if folder is not None or key or after is not None:
        raise InvalidInput("an export is checked by itself", item="audit verify", remedy="give FOLDER and --key VKEY")
    if checkpoint and tenant is None and deleted is None:
        raise InvalidInput("a checkpoint is of one log", item="--checkpoint", remedy="name the log, or a FOLDER")
    known = [read_checkpoint(path) for path in checkpoint or []]
    with opened(common) as control:
        names = (
            [tenant]
            if tenant is not None or deleted is not None
            else [None, *(record.name for record in control.tenants.listed())]
        )
        rows = []
        for name in names:
            _, log = log_of(control, name, name is None and deleted is None, deleted)
            found = verify_log(log, recover=True, known=known)
            rows.append(
                {
                    "log": name or deleted or "system",
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


_COLUMNS = ["seq", "ts", "user", "action", "outcome", "cache", "question", "documents"]
_SYSTEM_COLUMNS = ["seq", "ts", "user", "action", "outcome", "tenant"]
_FIRST = ["cited", "replayed", "in_prompt"]
"""What became of a document, from most to least; the other stages follow."""
_SHOWN = 4
"""Documents of one line of the table."""


def log_of(
    control: Control, tenant: str | None, system: bool, deleted: str | None
) -> tuple[Principal | None, AuditLog]:
    """The log that was asked for. Reading a deleted tenant's is recorded in the system's."""
    from service.retention import one_log

    return one_log(control, tenant, system=system, deleted=deleted)


def _rows(events: list[dict[str, Any]], log: AuditLog, asked: str | None) -> list[dict[str, Any]]:
    """One row for an intent and its outcome, as far as they stand on one page."""
    from audit.query import fetch, view

    known = {event["seq"]: event for event in events}
    concluded = {event.get("intent") for event in events}
    rows = []
    for event in events:
        if event["seq"] not in concluded and not event.get("pruned"):
            begun = event.get("intent", event["seq"])
            intent = known[begun] if begun in known else view(fetch(log, begun), log.subjects)
            rows.append(_row(event, intent, asked))
    return rows


def _row(event: dict[str, Any], intent: dict[str, Any], asked: str | None) -> dict[str, Any]:
    """An event for people; `intent` says who began it and with what question."""
    content, cache = intent.get("content", {}), event.get("cache", {})
    bound = cache.get("bound", {}).get("state")
    return {
        "seq": event["seq"],
        "ts": f"{event['ts'][:19]}Z",
        "user": _text(content.get("user")),
        "action": event["action"],
        "outcome": " ".join(filter(None, (event.get("outcome", event["phase"]), event.get("reason")))),
        "cache": " ".join(filter(None, (cache.get("status"), cache.get("kind"), bound))) or None,
        "question": " under ".join(filter(None, (_text(content.get("question")), _text(content.get("filter")))))
        or None,
        "documents": _documents(event, asked),
        "tenant": event.get("detail", {}).get("tenant"),
    }


def _documents(event: dict[str, Any], asked: str | None) -> str | None:
    """Each document with the furthest that it came: what was asked for first, then what was cited."""
    furthest: dict[str, tuple[int, str]] = {}
    for resource in event.get("resources", []):
        stage = resource["stage"]
        place = (_FIRST.index(stage) if stage in _FIRST else len(_FIRST), stage)
        furthest[resource["document"]] = min(furthest.get(resource["document"], place), place)
    order = sorted(furthest, key=lambda name: (name != asked, furthest[name], name))
    shown = [f"{name} ({furthest[name][1].replace('_', ' ')})" for name in order[:_SHOWN]]
    more = [f"and {len(order) - _SHOWN} more"] if len(order) > _SHOWN else []
    return ", ".join([*shown, *more]) or None


def _text(sealed: dict[str, Any] | None) -> str | None:
    if sealed is None:
        return None
    return str(sealed["text"]) if "text" in sealed else "(erased)" if sealed.get("erased") else "(unreadable)"
