"""`strongroom tenant`: create, list, show, suspend, resume, delete."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, audited, iso, note, opened, print_json, show_record
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from service.control import Control
    from tenancy.control import TenantRecord

app = App(name="tenant", help="Create, list, show, suspend, resume, move and delete tenants.")
app.command("service.cli.contract:app", name="contract", help="Show and change what was agreed with a tenant.")
app.command("service.cli.move:move", name="move", help="Move a tenant to another engine or embedding model.")
app.command("service.cli.move:confirm", name="confirm", help="End a move: drop the old collection.")
app.command("service.cli.move:rollback", name="rollback", help="Go back to the collection of before a move.")
app.command("service.cli.move:moves", name="moves", help="Show where a tenant's move stands.")
app.command("service.cli.listing:list_tenants", name="list", help="Tenants by name, without opening any.")

Name = Annotated[str, Parameter(help="1 to 63 of a-z 0-9 . _ -")]


@app.command
def create(
    name: Name,
    *,
    contract: Annotated[Path | None, Parameter(help="What was agreed (TOML): configs/contracts/example.toml.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Create an empty tenant with keys of its own."""
    from service.engines import require_possible
    from tenancy.contract import Contract, read_contract

    agreed = Contract() if contract is None else read_contract(contract)
    with opened(common) as control:
        require_possible(control.settings, name, agreed)

        def work(trail: Trail) -> TenantRecord:
            record = control.tenants.create(name, agreed)
            trail.note(detail={"tenant": record.id, "contract": json.dumps(agreed.stored())})
            return record

        show_record(common, _row(audited(control, None, "tenant.create", work)))


@app.command
def show(name: Name, *, common: Common = DEFAULT) -> None:
    """One tenant: state, documents, users, groups."""
    with opened(common) as control:
        record = control.tenants.show(name)
        contents = _contents(control, name) if record.status == "active" else {}
        show_record(common, _row(record) | contents)


@app.command
def suspend(name: Name, *, common: Common = DEFAULT) -> None:
    """Refuse questions and changes of a tenant from the next one on; its data stays, its audit log can be read."""
    _set_status(name, "suspended", common)


@app.command
def resume(name: Name, *, common: Common = DEFAULT) -> None:
    """Take a suspended tenant back into service."""
    _set_status(name, "active", common)


@app.command(name="rotate-key")
def rotate_key(name: Name, *, common: Common = DEFAULT) -> None:
    """Give a tenant's documents a new random key, beside a server and an ingestion. Writers wait until it is done.

    Its remembered answers are dropped; its audit log keeps its key.
    """
    from service.deletion import drop_unreadable

    with opened(common) as control:

        def work(trail: Trail) -> int:
            generation = control.tenants.rotate_key(name)
            trail.note(detail={"generation": generation})
            return generation

        generation = audited(control, control.authenticator.operator(name), "tenant.rotate_key", work)
        if not drop_unreadable(control, name):
            note("the cache is away: answers under the old key stay there, unreadable, until they expire")
    show_record(common, {"name": name, "generation": generation})


@app.command
def delete(name: Name, *, yes: bool = False, common: Common = DEFAULT) -> None:
    """Destroy a tenant's keys, documents, cache and credentials, and print the signed deletion certificate.

    Parameters
    ----------
    yes: bool
        Do not ask; needed where there is no terminal.
    """
    from service.deletion import delete_tenant
    from service.engines import build_engines
    from service.wiring import cache_store

    with opened(common) as control:
        principal = control.authenticator.operator(name)
        if not yes:
            _confirm(name)
        engines, store = build_engines(control.settings.collections), cache_store(control.settings, patient=True)
        try:
            # The tenant's own log is kept, and says that it ended; the system's log says which.
            certificate = audited(
                control, principal, "tenant.delete", lambda _: delete_tenant(control, principal, engines, store)
            )
        finally:
            engines.close()
            store.shutdown()
        audited(control, None, "tenant.delete", lambda trail: trail.note(detail={"tenant": principal.tenant_id}))
    print_json(certificate)
    note(f"tenant {name} is gone; keep the certificate")


@app.command
def certificate(
    name: Annotated[str, Parameter(help="The name or the id of a deleted tenant.")], *, common: Common = DEFAULT
) -> None:
    """The deletion certificate of a tenant, as it was printed when it was deleted."""
    with opened(common) as control:
        print_json(control.tenants.deletion.certificate(name))


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("deleting a tenant cannot be undone", item=name, remedy="confirm with --yes")
    if input(f"This destroys all data of {name} for good. Type its name to go on: ").strip() != name:
        raise InvalidInput("not confirmed; nothing was deleted", item=name)


def _set_status(name: str, status: str, common: Common) -> None:
    with opened(common) as control:
        principal = control.authenticator.operator(name)
        action = "tenant.suspend" if status == "suspended" else "tenant.resume"
        record = audited(control, principal, action, lambda _: control.tenants.set_status(name, status))
        show_record(common, _row(record))


def _contents(control: Control, name: str) -> dict[str, Any]:
    from sqlalchemy import func, select

    from tenancy import schema

    tables = {
        "documents": schema.documents, "chunks": schema.chunks, "users": schema.users, "groups": schema.groups,
    }  # fmt: skip
    with control.tenants.open(control.authenticator.operator(name)).reading() as view:
        counts = {
            title: view.execute(select(func.count()).select_from(table)).scalar_one() for title, table in tables.items()
        }
        epochs = {"acl_epoch": view.epochs.acl, "corpus_epoch": view.epochs.corpus}
        restored = view.execute(select(schema.meta.c.value).where(schema.meta.c.key == "restored")).scalar()
    return counts | epochs | ({} if restored is None else {"restored": restored})


def _row(record: TenantRecord) -> dict[str, Any]:
    return {"name": record.name, "status": record.status, "created": iso(record.created), "id": record.id}
