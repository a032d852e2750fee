"""`strongroom backup`, `restore` and `export`: one tenant out of this data directory and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, note, opened, show_record
from tenancy.errors import NotFound

if TYPE_CHECKING:
    from audit.trail import Trail


def backup(
    path: Path,
    /,
    *,
    tenant: Tenant,
    recipient: Annotated[
        Path | None, Parameter(name="--for", help="A public recovery key (PEM): its owner can restore it elsewhere.")
    ] = None,
    ledger_only: Annotated[
        bool, Parameter(negative=(), help="Only what was withdrawn, for a restore elsewhere of an older backup.")
    ] = False,
    common: Common = DEFAULT,
) -> None:
    """Write one encrypted file of a tenant's documents and audit log, while it is in use.

    It opens with this data directory's keys, and with the recovery key of `--for`. API keys, remembered answers and
    the keys of the audit log's subjects are not in it.

    Parameters
    ----------
    path: Path
        A new file.
    """
    from service.backup import back_up, write_ledger
    from tenancy.archive import read_public_key

    public = None if recipient is None else read_public_key(recipient)
    with opened(common) as control:

        def work(trail: Trail) -> dict[str, Any]:
            made = (write_ledger if ledger_only else back_up)(control, tenant, path, public)
            trail.note(detail={"ledger_only": ledger_only, "recovery": public is not None, "tenant": made["tenant_id"]})
            return made

        try:
            principal = control.authenticator.operator(tenant)
        except NotFound:
            # A deleted tenant's ledger is asked for by its id.
            principal = None
        show_record(common, audited(control, principal, "tenant.backup", work))


def restore(
    path: Path,
    /,
    *,
    name: Annotated[str | None, Parameter(name="--as", help="Under another name, as a tenant of its own.")] = None,
    key: Annotated[Path | None, Parameter(help="The private recovery key of a backup made elsewhere.")] = None,
    ledger: Annotated[
        Path | None, Parameter(help="What was withdrawn where the backup was made, from `backup --ledger-only`.")
    ] = None,
    replace: Annotated[
        bool, Parameter(negative=(), help="In the place of the suspended tenant, whatever state its file is in.")
    ] = False,
    although_deleted: Annotated[
        bool, Parameter(negative=(), help="Bring back a tenant that was deleted after the backup.")
    ] = False,
    common: Common = DEFAULT,
) -> None:
    """Restore a tenant, all of it or nothing. What was withdrawn after the backup stays withdrawn.

    Rights that were given after the backup do not come back, nor do API keys: make new ones.

    Parameters
    ----------
    path: Path
        A file from `strongroom backup`.
    """
    from service.restore import KNOWN, Wish, restore_tenant
    from tenancy.archive import read_private_key

    private = None if key is None else read_private_key(key)
    wish = Wish(name, replace, although_deleted, private, ledger)
    with opened(common) as control:

        def work(trail: Trail) -> dict[str, Any]:
            found = restore_tenant(control, path, wish)
            again = sum(found["withdrawn_again"].values())
            trail.note(
                detail={
                    "tenant": found["tenant_id"], "backup_of": found["backup_of"],
                    "withdrawals": found["withdrawals"], "withdrawn_again": again,
                }
            )  # fmt: skip
            return found

        found = audited(control, None, "tenant.restore", work)
        own = control.authenticator.operator(found["tenant"])
        audited(control, own, "tenant.restore", lambda trail: trail.note(detail={"backup_of": found["backup_of"]}))
    show_record(common, found)
    if found["withdrawals"] not in KNOWN:
        note(
            "what was withdrawn after the backup is not known here: bring it along with --ledger, or go through the "
            "documents and access lists before anybody asks"
        )
    note(
        "API keys are not restored: make new ones with `strongroom key create`" if not replace else "resume the tenant"
    )


def export(
    directory: Path,
    /,
    *,
    tenant: Tenant,
    vectors: Annotated[
        bool, Parameter(negative="--no-vectors", help="Also vectors.parquet, which needs pyarrow.")
    ] = True,
    common: Common = DEFAULT,
) -> None:
    """Write documents, chunks, access lists, users and groups as JSON Lines and vectors as Parquet, not encrypted.

    Parameters
    ----------
    directory: Path
        A new folder.
    """
    from service.export import export_tenant

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> dict[str, Any]:
            made = export_tenant(control.tenants.open(principal, suspended=True), directory, vectors=vectors)
            trail.note(detail={name: made[name] for name in ("documents", "chunks")})
            return made

        show_record(common, audited(control, principal, "tenant.export", work))
