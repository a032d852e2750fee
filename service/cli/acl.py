"""`strongroom acl`: who may read one document. A change holds from the next question on."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, note, opened, show_pages, show_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from audit.trail import Trail
    from tenancy.sweep import Swept
    from tenancy.tenant import ReadView

app = App(name="acl", help="Show or set who may read a document, and find documents that nobody or everybody reads.")

_PAGE: Final = 500

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


@app.command
def sweep(
    *,
    tenant: Tenant,
    everything: Annotated[
        bool, Parameter(name="--all", negative=(), help="Also the documents that some people read.")
    ] = False,
    common: Common = DEFAULT,
) -> None:
    """Name the documents that nobody reads, and those that everybody does, with what makes it so.

    Readers are users of the tenant's directory: groups that only an identity provider's tokens name count as empty.
    """
    from tenancy.sweep import sweep as swept

    counts: Counter[str] = Counter()

    def pages(found: Iterator[Swept]) -> Iterator[list[dict[str, object]]]:
        while page := list(islice(found, _PAGE)):
            counts.update(one.reach for one in page)
            yield [asdict(one) for one in page]

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> None:
            with control.tenants.open(principal).reading() as view:
                show_pages(common, pages(swept(view, some=everything)), ["reach", "document", "readers", "why"])
            trail.note(detail=dict(counts))

        audited(control, principal, "acl.sweep", work)
    if not common.as_json:
        note(f"nobody reads {counts['nobody']} documents, everybody {counts['everybody']}")
