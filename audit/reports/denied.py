"""Who was refused, and whose access ended while they were being answered."""

from __future__ import annotations

from typing import Final

from audit.filters import Filters
from audit.log import AuditLog
from audit.reports.frame import Asked, Reading, Report, Row, Table, reading
from audit.reports.subject import documents_of
from audit.reports.uses import Use
from audit.tables import events

KIND: Final = "denied"

_DENIED: Final = ("refused", "revoked")
_USES: Final = (
    "seq", "ts", "user", "actor", "credential", "action", "outcome", "reason", "released", "question", "erased",
    "documents", "request",
)  # fmt: skip


def denied_report(log: AuditLog, asked: Asked) -> Report:
    """Requests that were `refused`, or `revoked` on the way, newest first (`uses`) and counted (`actions`); `reason` is
    a code. What was refused for want of a credential belongs to no tenant: that is in the system's log.
    """
    with reading(log, KIND, "", asked) as found:
        wanted = [Filters(outcome=outcome) for outcome in _DENIED]
        uses, after = found.uses(wanted, lambda event: event.outcome in _DENIED)
        counts = found.counts(events.c.outcome.in_(_DENIED))
        tables = {"actions": counts, "uses": Table(_USES, tuple(_use(found, use) for use in uses))}
        return found.report(KIND, {}, tables, "uses", after)


def _use(found: Reading, use: Use) -> Row:
    return {
        **use.who(found.user(use)),
        **use.texts(found.texts, "question"),
        "credential": use.last.actor.credential,
        "documents": documents_of(use),
    }
