"""`strongroom document`: what a tenant holds, and taking a document away for good."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, iso, note, opened, show_record, show_table

if TYPE_CHECKING:
    from audit.trail import Trail
    from indexing.documents import DocumentDetail, DocumentRecord
    from indexing.items import Item

app = App(name="document", help="List, show and delete a tenant's documents.")

Document = Annotated[str, Parameter(help="The document's name.")]


@app.command(name="list")
def list_all(
    *,
    tenant: Tenant,
    status: Annotated[str, Parameter(help="What ingestion left in this state: partial, encrypted, corrupt ...")] = "",
    after: Annotated[str, Parameter(help="Names behind this one.")] = "",
    limit: Annotated[int, Parameter(help="At most so many, 1 to 1000.")] = 100,
    common: Common = DEFAULT,
) -> None:
    """Documents by name, also those that nobody may read; with --status, also files that gave no document."""
    from indexing.documents import list_documents
    from indexing.items import list_items

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> list[dict[str, Any]]:
            handle = control.tenants.open(principal)
            if status:
                found = [_item(item) for item in list_items(handle, status, after=after, limit=limit)]
            else:
                found = [_record(one) for one in list_documents(handle, after=after, limit=limit)]
            trail.note(detail={"documents": len(found), **({"status": status} if status else {})})
            return found

        rows = audited(control, principal, "document.list", work)
    columns = (
        ["name", "status", "reason", "remedy", "warnings"]
        if status
        else ["name", "title", "type", "language", "updated"]
    )
    show_table(common, rows, columns)
    if len(rows) == limit:
        note(f"perhaps more: --after {rows[-1]['name']}")


@app.command
def show(document: Document, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """What is known about a document, and who may read it."""
    from audit.record import Resource
    from indexing.documents import show_document

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> DocumentDetail:
            trail.note(resources=[Resource(document=document[:1000], stage="listed")])
            return show_document(control.tenants.open(principal), document)

        found = audited(control, principal, "document.show", work)
    record = found.record
    show_record(
        common,
        {
            "name": record.name, "title": record.title, "version": record.version, "type": record.media_type,
            "updated": iso(record.updated), "chunks": found.chunks, "metadata": dict(found.metadata),
            "warnings": list(found.warnings), "allow": sorted(found.access.allow), "deny": sorted(found.access.deny),
            "places": list(found.places), "hidden": found.hidden,
        },
    )  # fmt: skip


@app.command
def delete(document: Document, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Delete a document, or all that came from the lines of one file. No backup brings it back.

    Its text is gone from the disk when this ends, and a server gives no answer from it any more.
    """
    from audit.record import Resource
    from indexing.documents import delete_document
    from service.engines import settle

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> list[str]:
            trail.note(resources=[Resource(document=document[:1000], stage="deleted")])
            handle = control.tenants.open(principal)
            gone = delete_document(handle, document, time.time())
            trail.note(resources=[Resource(document=one, stage="deleted") for one in gone])
            settle(control.settings.collections, handle)
            return gone

        show_record(common, {"deleted": audited(control, principal, "document.delete", work)})


def _record(one: DocumentRecord) -> dict[str, Any]:
    return {
        "name": one.name, "title": one.title, "type": one.media_type, "language": one.language,
        "updated": iso(one.updated),
    }  # fmt: skip


def _item(item: Item) -> dict[str, Any]:
    """Of an item of ingestion, what there is to say."""
    return {
        "name": item.name, "status": item.status, "reason": item.reason, "remedy": item.remedy,
        "warnings": list(item.warnings), "title": item.title, "type": item.media_type, "language": item.language,
        "updated": iso(item.seen),
    }  # fmt: skip
