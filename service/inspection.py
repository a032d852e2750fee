"""What the audit routes and the audit commands share: filters from text, and events as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from audit.log import AuditLog
from audit.query import Filters, Page, view
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
    "cache": "cache_status",
    "entry": "cache_entry",
    "request": "request",
    "root": "root",
    "order": "order",
}
PARAMETERS: Final = frozenset({*NAMES, "since", "until", "actor", "limit", "after"})


def filters_of(
    control: Control, principal: Principal | None, log: AuditLog, given: Mapping[str, str | None]
) -> Filters:
    """Filters from parameters by name; `actor` is a user's name or a reference out of an event.

    Raises `InvalidInput` for a value that no event can have, `NotFound` for an unknown user.
    """
    values: dict[str, Any] = {
        NAMES[name]: value for name, value in given.items() if name in NAMES and value is not None
    }
    for name in ("since", "until"):
        if (text := given.get(name)) is not None:
            values[name] = moment(text, name)
    if (actor := given.get("actor")) is not None:
        values["actor"] = _reference(control, principal, log, actor)
    return Filters(**values)


def events_of(page: Page, log: AuditLog) -> list[dict[str, Any]]:
    """The events of a page with their sealed texts opened."""
    return [view(stored, log.subjects) for stored in page.events]


def window_of(page: Page) -> dict[str, Any]:
    """The window really applied and the state of the log that the page is true as of."""
    return {
        "since": _iso(page.since),
        "until": _iso(page.until),
        "checkpoint": {"size": page.head.size, "root": page.head.root.hex()},
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


def _reference(control: Control, principal: Principal | None, log: AuditLog, actor: str) -> str:
    if actor.startswith("u_") and len(actor) == 34:
        return actor
    found = None if principal is None else control.tenants.find_user(principal.tenant_id, actor)
    if found is None:
        raise NotFound("no such user in this tenant", item="actor", remedy="use a name or an event's actor.ref")
    return log.subjects.ref(found)


def _iso(value: float | None) -> str | None:
    if value is None:
        return None
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
