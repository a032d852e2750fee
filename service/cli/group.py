"""`strongroom group`: nested groups of one tenant. A change holds from the next question on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, opened, show_record, show_table
from tenancy.errors import NotFound

if TYPE_CHECKING:
    from audit.trail import Trail

app = App(name="group", help="Add, remove and list members of groups; groups nest.")

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
