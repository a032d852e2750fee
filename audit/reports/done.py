"""What was deleted, erased, pruned or withdrawn; and which tests of isolation ran. Both list what some actions say."""

from __future__ import annotations

import json
from typing import Final

from audit.filters import Filters
from audit.log import AuditLog
from audit.reports.frame import Asked, Reading, Report, Row, Table, reading
from audit.reports.subject import documents_of
from audit.reports.uses import Use

DELETIONS: Final = "deletions"
ATTESTATIONS: Final = "attestations"

_DELETING: Final = (
    "tenant.delete", "document.delete", "user.delete", "user.erase", "key.revoke", "group.remove", "cache.invalidate",
    "cache.repair", "adapter.revoke", "template.withdraw", "audit.prune", "audit.hold",
)  # fmt: skip
_TESTING: Final = ("attest", "audit.verified")
_USES: Final = (
    "seq", "ts", "user", "actor", "action", "outcome", "reason", "documents", "detail", "request",
)  # fmt: skip


def deletions_report(log: AuditLog, asked: Asked) -> Report:
    """What was taken away, newest first: documents, users, keys, remembered answers, texts, records. Holds are listed
    too, since they keep something from it. `detail` is JSON: what the command counted and named.
    """
    return _listed(log, DELETIONS, _DELETING, asked)


def attestations_report(log: AuditLog, asked: Asked) -> Report:
    """The self-tests of isolation and of the log itself, newest first, with their verdicts in `detail` (JSON)."""
    return _listed(log, ATTESTATIONS, _TESTING, asked)


def _listed(log: AuditLog, kind: str, actions: tuple[str, ...], asked: Asked) -> Report:
    with reading(log, kind, "", asked) as found:
        wanted = [Filters(action=action) for action in actions]
        uses, after = found.uses(wanted, lambda event: event.action in actions)
        table = Table(_USES, tuple(_use(found, use) for use in uses))
        return found.report(kind, {}, {"uses": table}, "uses", after)


def _use(found: Reading, use: Use) -> Row:
    return {
        **use.who(found.user(use)),
        "documents": documents_of(use),
        "detail": json.dumps(use.detail, sort_keys=True, ensure_ascii=False) if use.detail else None,
    }
