"""`strongroom audit hold|release|holds|prune` and `strongroom user hold`: what is kept longer than its time, and what
goes after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, iso, note, opened, show_record, show_table

if TYPE_CHECKING:
    from audit.holds import Hold
    from audit.log import AuditLog
    from audit.trail import Trail
    from service.control import Control
    from tenancy.contract import Retention
    from tenancy.identity import Principal

Reason = Annotated[str, Parameter(help="Why, for instance the number of a case. It is in no event.")]
OneTenant = Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")]
Deleted = Annotated[str | None, Parameter(help="The id of a deleted tenant, whose log is retained.")]
System = Annotated[bool, Parameter(negative=(), help="The log of what belongs to no tenant.")]


def hold_user(user: str, /, *, tenant: Tenant, reason: Reason, common: Common = DEFAULT) -> None:
    """Keep every record of a user and the key of their texts: the user can be neither erased nor deleted meanwhile.

    Parameters
    ----------
    user: str
        The user's name or id; of one who was deleted before, the `actor.ref` of an event.
    """
    from audit.retention import PLACED, hold_subject
    from service.erasure import subject_of

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> Hold:
            subject = subject_of(control, principal, trail.log, user)
            placed = hold_subject(
                trail.log, subject, lambda said: trail.aside(PLACED, said), reason=reason, by=principal.user
            )
            trail.note(detail={"user": subject, "hold": placed.id})
            return placed

        placed = audited(control, principal, "user.hold", work)
    show_record(common, _row(placed))


def hold(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    since: Annotated[str | None, Parameter(help="First moment (ISO 8601); without, from the beginning.")] = None,
    until: Annotated[str | None, Parameter(help="Moment after the last one; without, whatever comes too.")] = None,
    reason: Reason,
    common: Common = DEFAULT,
) -> None:
    """Keep the records of a time: they are not pruned, and nobody who has one among them can be erased."""
    from audit.retention import PLACED, hold_window
    from service.inspection import moment
    from service.retention import one_log

    first = None if since is None else moment(since, "since")
    last = None if until is None else moment(until, "until")
    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> Hold:
            placed = hold_window(
                log, first, last, lambda said: trail.aside(PLACED, said), reason=reason, by=_by(principal)
            )
            trail.note(detail={"hold": placed.id, "since": iso(first), "until": iso(last), "log": log.log_id})
            return placed

        placed = audited(control, principal, "audit.hold", work)
    show_record(common, _row(placed))


def release(
    hold: Annotated[str, Parameter(help="The id of the hold; see `audit holds`.")],
    /,
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    common: Common = DEFAULT,
) -> None:
    """End a legal hold. What it kept may be erased and pruned from then on; nothing is by itself."""
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> Hold:
            trail.note(detail={"hold": hold[:64], "log": log.log_id})
            return log.subjects.holds.release(hold, by=_by(principal))

        ended = audited(control, principal, "audit.release", work)
    show_record(common, _row(ended))


def holds(
    *, tenant: OneTenant = None, system: System = False, deleted: Deleted = None, common: Common = DEFAULT
) -> None:
    """All legal holds of one log, also those that were released."""
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> list[dict[str, Any]]:
            found = [_row(one) for one in log.subjects.holds.all()]
            trail.note(detail={"holds": len(found), "log": log.log_id})
            return found

        rows = audited(control, principal, "audit.holds", work)
    columns = ["id", "kind", "subject", "since", "until", "reason", "placed", "placed_by", "released"]
    show_table(common, rows, columns)


def prune(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    dry_run: Annotated[bool, Parameter(negative=(), help="Only say what would go.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Destroy the bytes of records whose retention time is over; without a log named, of the system's and all tenants'.

    The time is that of the tenant's contract (`audit.retention`), else of the settings; the log of a deleted tenant is
    kept for the longest class. Hashes stay, so that the log verifies as before, and the log says what was pruned. Open
    intents and what a legal hold covers stay.
    """
    from service.retention import class_of, one_log, prune_log

    rows = []
    with opened(common) as control:
        for name, of_system in _named(control, tenant, system, deleted):
            principal, log = one_log(control, name, system=of_system, deleted=deleted)
            kind = class_of(control, name, deleted=deleted is not None)

            def work(trail: Trail, log: AuditLog = log, kind: Retention = kind) -> dict[str, Any]:
                return prune_log(trail, log, kind, dry_run=dry_run)

            rows.append({"log": name or deleted or "system"} | audited(control, principal, "audit.retention", work))
    show_table(common, rows, ["log", "retention", "before", "records", "ranges", "kept", "dry_run"])
    if not dry_run and any(row["records"] for row in rows):
        note("older backups and exports still hold what was pruned")


def _named(control: Control, tenant: str | None, system: bool, deleted: str | None) -> list[tuple[str | None, bool]]:
    """The logs that are meant: name of the tenant, whether it is the system's."""
    if tenant is None and not system and deleted is None:
        return [(None, True), *((record.name, False) for record in control.tenants.listed())]
    return [(tenant, system)]


def _by(principal: Principal | None) -> str:
    return "operator" if principal is None else principal.user


def _row(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.id,
        "kind": hold.kind,
        "subject": hold.subject,
        "since": iso(hold.since),
        "until": iso(hold.until),
        "reason": hold.reason,
        "placed": iso(hold.placed),
        "placed_by": hold.placed_by,
        "released": iso(hold.released),
    }
