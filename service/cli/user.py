"""`strongroom user`: the users of one tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from service.cli.console import DEFAULT, Common, Tenant, audited, opened, show_record

if TYPE_CHECKING:
    from audit.trail import Trail
    from service.users import Deleted

app = App(name="user", help="Delete users of a tenant.")


@app.command
def delete(user: str, /, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Delete a user: memberships, API keys, and every remembered answer that came of the user's questions.

    Holds from the next question on. A later user of the same name is somebody else. What the audit recorded stays.

    Parameters
    ----------
    user: str
        The user's name.
    """
    from service.users import delete_user
    from service.wiring import cache_store

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)
        store = cache_store(control.settings, patient=True)

        def work(trail: Trail) -> Deleted:
            return delete_user(control.tenants, store, principal, user, trail)

        deleted = audited(control, principal, "user.delete", work)
    show_record(common, {"user": user, "deleted": True, "keys": deleted.keys, "entries": deleted.entries})
