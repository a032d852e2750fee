"""`strongroom acl`: who may read one document. A change holds from the next question on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, note, opened, show_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from audit.trail import Trail
    from tenancy.tenant import ReadView

app = App(name="acl", help="Show or set who may read a document.")

Document = Annotated[str, Parameter(help="The document's name.")]


@app.command(name="set")
def set_list(
    document: Document,
    *,
    tenant: Tenant,
    allow: Annotated[
        tuple[str, ...], Parameter(negative=(), help="user:NAME, group:NAME or tenant; repeat for more.")
    ] = (),
    deny: Annotated[tuple[str, ...], Parameter(negative=(), help="Likewise; deny wins.")] = (),
    common: Common = DEFAULT,
) -> None:
    """Replace a document's access list as a whole; without `--allow` nobody reads it."""
    from audit.record import Resource
    from service.engines import settle
    from service.selection import document_id, label_summary
    from tenancy.acl import AccessList, set_access_list

    access = AccessList.of(allow, deny)
    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> bool:
            trail.note(
                resources=[Resource(document=document[:1000], stage="access")],
                detail={"allow": label_summary(access.allow), "deny": label_summary(access.deny)},
            )
            handle = control.tenants.open(principal)
            with handle.writing() as view:
                found = document_id(view, document)
                _warn(view, [*access.allow, *access.deny])
                changed = set_access_list(view, found, access, time.time())
            settle(control.settings.collections, handle)
            return changed

        changed = audited(control, principal, "acl.set", work)
    show_record(
        common, {"document": document, "allow": sorted(access.allow), "deny": sorted(access.deny), "changed": changed}
    )


@app.command
def show(document: Document, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """A document's access list."""
    from service.selection import document_id
    from tenancy.acl import get_access_list

    with opened(common) as control, control.tenants.open(control.authenticator.operator(tenant)).reading() as view:
        access = get_access_list(view, document_id(view, document))
    show_record(common, {"document": document, "allow": sorted(access.allow), "deny": sorted(access.deny)})


def _warn(view: ReadView, labels: Iterable[str]) -> None:
    """Say which names are new: a misspelt group holds nobody."""
    from tenancy import directory

    for label in sorted(set(labels)):
        kind, _, name = label.partition(":")
        find = directory.find_user if kind == "user" else directory.find_group
        if kind != "tenant" and find(view, name) is None:
            note(f"there was no {kind} {name} yet; it is created")
