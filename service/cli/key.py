"""`strongroom key`: API keys of one tenant."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from service.cli.console import DEFAULT, Common, Tenant, audited, iso, note, opened, show_record, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from tenancy.apikeys import MintedKey

app = App(name="key", help="Create, list and revoke API keys.")

RoleName = Literal["reader", "ingest", "auditor", "admin"]
WorkName = Literal["interactive", "batch"]
_DAY_S = 86_400


@app.command
def create(
    *,
    tenant: Tenant,
    user: str,
    group: Annotated[
        tuple[str, ...], Parameter(negative=(), help="Put the user into this group; repeat for more.")
    ] = (),
    role: Annotated[tuple[RoleName, ...], Parameter(negative=(), help="Repeat for more.")] = ("reader",),
    work: Annotated[
        WorkName, Parameter(name="--class", help="Programs that do not wait are batch: they give way to people.")
    ] = "interactive",
    days: Annotated[float | None, Parameter(help="The key expires after so many days; without, never.")] = None,
    common: Common = DEFAULT,
) -> None:
    """Create a key for a user, who is created where there is none. The key is shown once.

    Parameters
    ----------
    user: str
        Whom the key stands for; what this user may read, its bearer may read.
    """
    from tenancy.identity import Role

    if days is not None and days <= 0:
        raise InvalidInput("a key lives for a positive number of days", item="--days")
    expires = None if days is None else time.time() + days * _DAY_S
    with opened(common) as control:

        def create_it(trail: Trail) -> MintedKey:
            minted = control.tenants.create_key(
                tenant, user, [Role(name) for name in role], groups=group, expires=expires, work=work
            )
            trail.note(
                detail={
                    "key": minted.key_id,
                    "roles": " ".join(sorted(set(role))),
                    "groups": " ".join(group) or None,
                    "class": work,
                }
            )
            return minted

        minted = audited(control, control.authenticator.operator(tenant), "key.create", create_it)
    show_record(
        common,
        {
            "key": minted.text,
            "id": minted.key_id,
            "tenant": tenant,
            "user": user,
            "groups": group,
            "roles": role,
            "class": work,
            "expires": iso(expires),
        },
    )
    note("the key is shown this once; only its hash is kept")


@app.command(name="list")
def list_keys(*, tenant: Tenant, common: Common = DEFAULT) -> None:
    """The keys of a tenant, without their secrets."""
    with opened(common) as control:
        rows: list[dict[str, Any]] = [
            {
                "id": key.id, "user": key.user, "roles": list(key.roles), "class": key.work,
                "created": iso(key.created), "expires": iso(key.expires), "revoked": iso(key.revoked),
            }
            for key in control.tenants.list_keys(tenant)
        ]  # fmt: skip
    show_table(common, rows, ["id", "user", "roles", "class", "created", "expires", "revoked"])


@app.command
def revoke(
    key: Annotated[str, Parameter(help="The key's id, from `key list`.")], *, tenant: Tenant, common: Common = DEFAULT
) -> None:
    """Revoke a key for good; it is refused from the next request on."""
    with opened(common) as control:

        def work(trail: Trail) -> None:
            trail.note(detail={"key": key[:64]})
            control.tenants.revoke_key(tenant, key)

        audited(control, control.authenticator.operator(tenant), "key.revoke", work)
    show_record(common, {"id": key, "revoked": True})
