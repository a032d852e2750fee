"""The earliest and the latest time of each `SPAN` records, kept beside an audit log.

The log is in the order of its numbers, and a clock may be set back or forth, so times do not say where to look. With
these a query about a window reads the records that may lie in it and no others, whatever the clock did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import BindParameter, bindparam, case, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from audit.record import Event
from audit.tables import events, spans

SPAN: Final = 1_024

_at: Final[BindParameter[int]] = bindparam("of")
_first: Final[BindParameter[float]] = bindparam("first")
_last: Final[BindParameter[float]] = bindparam("last")
_WIDEN: Final = (
    update(spans)
    .where(spans.c.at == _at)
    .values(
        first=case((spans.c.first < _first, spans.c.first), else_=_first),
        last=case((spans.c.last > _last, spans.c.last), else_=_last),
    )
)
_BEGIN: Final = insert(spans)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Records `low` to `high` - 1 are all that may lie in a window."""

    low: int
    high: int


def extend(connection: Connection, stamped: Iterable[Event]) -> None:
    """Take new records into account, in the transaction that writes them."""
    times: dict[int, list[float]] = {}
    for event in stamped:
        times.setdefault(event.seq // SPAN, []).append(event.time)
    for at, found in times.items():
        first, last = min(found), max(found)
        if not connection.execute(_WIDEN, {"of": at, "first": first, "last": last}).rowcount:
            connection.execute(_BEGIN, {"at": at, "first": first, "last": last})


def rebuild(connection: Connection) -> None:
    """Compute all of them anew, for a log whose records were written without."""
    connection.execute(delete(spans))
    at = (events.c.seq // SPAN).label("at")
    times = select(at, func.min(events.c.ts), func.max(events.c.ts)).group_by(at)
    connection.execute(insert(spans).from_select(["at", "first", "last"], times))


def bounds(connection: Connection, size: int, since: float | None, until: float | None) -> Bounds:
    """Where to look in the first `size` records for those of `since` <= time < `until` (UTC epoch seconds)."""
    low, high = 0, size
    if since is not None:
        first = connection.execute(select(func.min(spans.c.at)).where(spans.c.last >= since)).scalar_one()
        low = size if first is None else first * SPAN
    if until is not None:
        last = connection.execute(select(func.max(spans.c.at)).where(spans.c.first < until)).scalar_one()
        high = 0 if last is None else min(size, (last + 1) * SPAN)
    return Bounds(low, max(low, high))
