"""`strongroom group`: nested groups of one tenant. A change holds from the next question on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, iso, note, opened, show_record, show_table
from tenancy.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from audit.trail import Trail
    from tenancy.membership import Changes

app = App(name="group", help="Add, remove, list and import members of groups; groups nest.")

Members = Annotated[tuple[str, ...], Parameter(help="`user:NAME`, `group:NAME`, or a bare user name.")]


@app.command
def add(group: str, member: str, /, *more: str, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Put members into a group; what does not exist yet is created.

    Parameters
    ----------
    group: str
        The group's name.
    member: str
        `user:NAME`, `group:NAME`, or a bare user name.
    more: str
        Further members.
    """
    from tenancy import directory

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> int:
            trail.note(detail={"group": group[:200], "members": 1 + len(more)})
            with control.tenants.open(principal).writing() as view:
                return directory.add_members(view, group, [member, *more], time.time())

        added = audited(control, principal, "group.add", work)
    show_record(common, {"group": group, "added": added})


@app.command
def remove(group: str, member: str, /, *more: str, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Take members out of a group.

    Parameters
    ----------
    group: str
        The group's name.
    member: str
        `user:NAME`, `group:NAME`, or a bare user name.
    more: str
        Further members.
    """
    from tenancy import directory

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> int:
            trail.note(detail={"group": group[:200], "members": 1 + len(more)})
            with control.tenants.open(principal).writing() as view:
                return directory.remove_members(view, group, [member, *more])

        removed = audited(control, principal, "group.remove", work)
    show_record(common, {"group": group, "removed": removed})


@app.command(name="list")
def list_groups(group: str | None = None, /, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Groups with their direct members.

    Parameters
    ----------
    group: str
        Only this one.
    """
    from tenancy import directory

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        with control.tenants.open(principal).reading() as view:
            found = directory.list_groups(view)
    if group is not None and group not in found:
        raise NotFound("no such group", item=group, remedy="`strongroom group list` shows all")
    rows = [{"group": name, "members": found[name]} for name in ([group] if group is not None else found)]
    show_table(common, rows, ["group", "members"])


@app.command(name="import")
def import_groups(
    file: Path,
    /,
    *,
    tenant: Tenant,
    complete: Annotated[
        bool, Parameter(negative=(), help="The file names every group: those that it does not name lose all members.")
    ] = False,
    require_end: Annotated[
        bool, Parameter(negative=(), help="Refuse a file that does not say how many groups it has.")
    ] = False,
    most_removed: Annotated[
        float, Parameter(help="Refuse a file that takes away more than ten memberships and this share of all; 0: any.")
    ] = 0.2,
    dry_run: Annotated[bool, Parameter(negative=(), help="Show what would change; nothing is written.")] = False,
    common: Common = DEFAULT,
) -> None:
    """Bring in membership from a CSV or JSON Lines file, as a whole or not at all.

    Each group of the file then has exactly the members that the file gives it, from the next question on. A broken or
    cut file changes nothing: the last good membership holds, and `strongroom group status` says so.

    Parameters
    ----------
    file: Path
        CSV with the line `group,member` first, or JSON Lines with {"group": ..., "members": [...]}.
    """
    from tenancy import membership

    if not 0 <= most_removed <= 1:
        raise InvalidInput("is a share from 0 to 1", item="--most-removed", remedy="write 0.2 for a fifth")
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        handle = control.tenants.open(principal)

        def work(trail: Trail) -> Changes:
            try:
                wanted = membership.read_membership(_read(file), file.name, require_end=require_end)
                trail.note(detail={"groups": len(wanted.groups), "digest": wanted.digest})
                if dry_run:
                    with handle.reading() as view:
                        return membership.compare(view, wanted, complete=complete)
                with handle.writing() as view:
                    changes = membership.bring_in(
                        view, wanted, time.time(), complete=complete, most_removed=most_removed
                    )
            except InvalidInput as error:
                if not dry_run:
                    with handle.writing() as view:
                        membership.note_failure(view, f"{error.item}: {error.reason}", time.time())
                raise
            trail.note(
                detail={
                    "groups": len(wanted.groups),
                    "digest": wanted.digest,
                    "added": len(changes.added),
                    "removed": len(changes.removed),
                }
            )
            return changes

        changes = audited(control, principal, "group.preview" if dry_run else "group.import", work)
    _show(common, changes)
    if dry_run:
        # What would be refused is refused here as well, once it was shown.
        membership.check_removed(changes, most_removed)


@app.command
def status(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """When membership was last imported, and whether a file was refused since."""
    from tenancy import membership

    with opened(common) as control, control.tenants.open(control.authenticator.operator(tenant)).reading() as view:
        found = membership.last_import(view)
    if found is None:
        note("membership was never imported; `strongroom group import` does it")
        found = {}
    failed = found.get("failed") or {}
    record: dict[str, Any] = {
        "imported": iso(found.get("at")),
        "digest": found.get("digest"),
        "groups": found.get("groups"),
        "added": found.get("added"),
        "removed": found.get("removed"),
        "refused": iso(failed.get("at")),
        "reason": failed.get("reason"),
    }
    show_record(common, record)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", item=file.name, remedy="check the path") from None


def _show(common: Common, changes: Changes) -> None:
    rows = [
        {"change": change, "group": group, "member": f"{kind}:{name}"}
        for change, found in (("added", changes.added), ("removed", changes.removed))
        for group, (kind, name) in found
    ]
    if rows or common.as_json:
        show_table(common, rows, ["change", "group", "member"])
    else:
        note("membership is the same already")
