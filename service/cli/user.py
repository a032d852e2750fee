"""`strongroom user`: the users of one tenant."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from service.cli.console import (
    DEFAULT,
    Common,
    Tenant,
    audited,
    note,
    opened,
    print_json,
    show_record,
    show_table,
)
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.trail import Trail
    from service.users import Deleted

app = App(name="user", help="Delete and erase users of a tenant, and keep what a legal hold is on.")
app.command("service.cli.holds:hold_user", name="hold", help="Put a legal hold on all that a user was shown and asked.")

FAILED = 1


@app.command
def delete(user: str, /, *, tenant: Tenant, common: Common = DEFAULT) -> None:
    """Delete a user: memberships, API keys, and every remembered answer that came of the user's questions.

    Holds from the next question on. A later user of the same name is somebody else. What the audit recorded stays:
    `user erase` makes that unreadable too.

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


@app.command
def erase(
    user: str,
    /,
    *,
    tenant: Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")] = None,
    deleted: Annotated[str | None, Parameter(help="The id of a deleted tenant, whose log is retained.")] = None,
    yes: bool = False,
    common: Common = DEFAULT,
) -> int:
    """Delete a user and make every text of theirs in the audit unreadable for good; prints the signed receipt.

    The audit's records stay, and verify as before. A legal hold keeps everything: the receipt says so, and the exit
    code is 1. What was cut short goes on where the same name is erased again.

    Parameters
    ----------
    user: str
        The user's name or id; of one who was deleted before, or of a deleted tenant, the `actor.ref` of an event.
    yes: bool
        Do not ask; needed where there is no terminal.
    """
    from service.erasure import erase_retained, erase_user
    from service.retention import one_log
    from service.wiring import cache_store

    with opened(common) as control:
        principal, _ = one_log(control, tenant, system=False, deleted=deleted)
        if not yes:
            _confirm(user)
        store = cache_store(control.settings, patient=True)
        try:

            def work(trail: Trail) -> dict[str, Any]:
                if principal is None:
                    return erase_retained(control, deleted or "", user, trail)
                return erase_user(control, store, principal, user, trail)

            receipt = audited(control, principal, "user.erase", work)
        finally:
            store.shutdown()
    print_json(receipt)
    if receipt["outcome"] == "held":
        note("a legal hold keeps everything; `strongroom audit holds` shows it")
        return FAILED
    return 0


@app.command
def receipts(
    receipt: Annotated[str | None, Parameter(help="The id of one receipt, which is then printed in full.")] = None,
    /,
    *,
    tenant: Tenant,
    common: Common = DEFAULT,
) -> None:
    """The signed receipts of erasures, the oldest first."""
    from tenancy.errors import NotFound

    with opened(common) as control:
        principal = control.authenticator.operator(tenant)

        def work(trail: Trail) -> list[dict[str, Any]]:
            found = trail.log.subjects.receipts(receipt_id=receipt)
            trail.note(detail={"receipts": len(found)})
            return found

        found = audited(control, principal, "user.receipts", work)
    if receipt is None:
        rows = found if common.as_json else [_row(one) for one in found]
        show_table(common, rows, ["id", "subject", "outcome", "finished", "records", "entries"])
    elif found:
        print_json(found[0])
    else:
        raise NotFound("no such receipt in this tenant", item=receipt[:64])


def _row(receipt: dict[str, Any]) -> dict[str, Any]:
    gone = receipt["destroyed"]
    counts = {"records": gone["audit_texts"]["count"], "entries": gone["cache_entries"]["count"]} if gone else {}
    return {name: receipt[name] for name in ("id", "subject", "outcome", "finished")} | counts


def _confirm(user: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput("erasing a user cannot be undone", item=user[:200], remedy="confirm with --yes")
    if input(f"This makes everything of {user} unreadable for good. Type the name to go on: ").strip() != user:
        raise InvalidInput("not confirmed; nothing was erased", item=user[:200])
