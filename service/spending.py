"""What scopes spent this month, from the usage ledgers: for counters that know nothing of it yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from admission.scopes import SHARED, Scope
from metering.events import month_of
from metering.ledger import UsageLedger
from metering.usage import spent
from service.control import Control
from service.usage import caught_up
from tenancy.errors import NotFound


def spent_this_month(
    control: Control, scopes: tuple[Scope, ...], clock: Callable[[], float] = time.time
) -> tuple[str, Mapping[Scope, int]]:
    """The month (UTC, as in "2026-11") and micro-units by scope, each ledger brought up to its log before.

    A user's and a key's are what their own requests cost; a model's all of requests that it answered; the deployment's
    those of all tenants that are not deleted. Roots have no months, and cost nothing here. Blocks on databases. Raises
    the errors of a log or a ledger that cannot be read.
    """
    month = month_of(clock())
    found = dict.fromkeys(scopes, 0)
    own = [scope for scope in scopes if scope.kind not in SHARED]
    for tenant in sorted({scope.tenant for scope in own}):
        ledger = caught_up(control.logs.of_id(tenant))
        for scope in own:
            if scope.tenant == tenant:
                found[scope] = _own(ledger, month, scope)
    shared = [scope for scope in scopes if scope.kind in SHARED]
    for ledger in _all(control) if shared else ():
        for scope in shared:
            found[scope] += spent(ledger, month, model=scope.id if scope.kind == "model" else None)
    return month, found


def _own(ledger: UsageLedger, month: str, scope: Scope) -> int:
    if scope.kind == "tenant":
        return spent(ledger, month)
    if scope.kind == "user":
        return spent(ledger, month, user=ledger.log.subjects.ref(scope.id))
    if scope.kind == "key":
        return spent(ledger, month, key=scope.id)
    return 0


def _all(control: Control) -> Iterator[UsageLedger]:
    for record in control.tenants.listed():
        try:
            yield caught_up(control.logs.of_id(record.id))
        except NotFound:
            # Deleted since it was listed: its keys are gone.
            continue
