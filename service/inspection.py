"""What the audit routes and the audit commands share: filters from text, and events as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from audit.log import AuditLog
from audit.query import Filters, Page, view
from audit.record import Detail
from audit.reports.frame import Report
from service.control import Control
from tenancy.errors import InvalidInput, NotFound
from tenancy.identity import Principal

DEFAULT_LIMIT: Final = 100
_END_OF_TIME: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
# Parameters of a query, by the filter that each sets.
NAMES: Final[Mapping[str, str]] = {
    "action": "action",
    "phase": "phase",
    "outcome": "outcome",
    "document": "document",
    "cache.status": "cache_status",
    "cache.entry": "cache_entry",
    "request": "request",
    "root": "root",
    "order": "order",
}
PARAMETERS: Final = frozenset({*NAMES, "since", "until", "actor", "limit", "after", "as_of"})
_OPERATOR: Final = "operator:"
_UNTOLD: Final = frozenset({"order"})


def filters_of(
    control: Control, principal: Principal | None, log: AuditLog, given: Mapping[str, str | int | None]
) -> Filters:
    """Filters from parameters by name; `actor` is a user's name or a reference out of an event.

    Raises `InvalidInput` for a value that no event can have, `NotFound` for an unknown user.
    """
    values: dict[str, Any] = {
        NAMES[name]: value for name, value in given.items() if name in NAMES and value is not None
    }
    values["as_of"] = given.get("as_of")
    for name in ("since", "until"):
        if (text := given.get(name)) is not None:
            values[name] = moment(str(text), name)
    if (actor := given.get("actor")) is not None:
        values["actor"] = reference(control, principal, log, str(actor))
    return Filters(**values)


def told(filters: Filters) -> dict[str, Detail]:
    """What was looked for, as the event of the reading says it: ids and references, no person's name."""
    given = msgspec.structs.asdict(filters)
    return {name: _told(value) for name, value in given.items() if value is not None and name not in _UNTOLD}


def _told(value: Any) -> Detail:
    return _iso(value) if isinstance(value, float) else value


def events_of(page: Page, log: AuditLog) -> list[dict[str, Any]]:
    """The events of a page with their sealed texts opened."""
    texts = log.subjects.reader()
    return [view(stored, texts) for stored in page.events]


def window_of(page: Page | Report) -> dict[str, Any]:
    """The window really applied, and the state of the log that the page is true as of: its size and root, and the note
    that signs them where one was made of just this state.
    """
    return {
        "since": _iso(page.since),
        "until": _iso(page.until),
        "checkpoint": {"size": page.head.size, "root": page.head.root.hex(), "note": page.note},
        "after": page.cursor,
    }


def moment(text: str, name: str) -> float:
    """UTC epoch seconds of an ISO 8601 time with a zone (or a date, in UTC), or of a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _seconds(text)
    if not 0 <= seconds <= _END_OF_TIME:
        raise InvalidInput("not a time", item=name, remedy="use ISO 8601, as in 2026-11-29T15:00:00Z")
    return seconds


def _seconds(text: str) -> float:
    """UTC epoch seconds of an ISO 8601 time, not a number where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def reference(control: Control, principal: Principal | None, log: AuditLog, actor: str) -> str:
    """The reference of a user by name, or of an operator (`operator:root`); one out of an event stays what it is.

    Raises `NotFound` for a user whom the tenant does not have, as one that was deleted.
    """
    if actor.startswith("u_") and len(actor) == 34:
        return actor
    if actor.startswith(_OPERATOR):
        return log.subjects.ref(actor)
    found = None if principal is None else control.tenants.find_user(principal.tenant_id, actor)
    if found is None:
        raise NotFound("no such user in this tenant", item="actor", remedy="use a name or an event's actor.ref")
    return log.subjects.ref(found)


def _iso(value: float | None) -> str | None:
    if value is None:
        return None
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
