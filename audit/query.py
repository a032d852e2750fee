"""Reading one audit log: bounded filters, stable cursors, and the view of an event that a role may have.

These functions block on the database: call them from a worker thread, never from the event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

from audit.cursors import cursor, position_of
from audit.filters import Filters as Filters
from audit.log import AuditLog, Head
from audit.logs import AuditLogs
from audit.matching import matching
from audit.record import Sealed, decode
from audit.spans import Bounds, bounds
from audit.state import state
from audit.subjects import Erased
from audit.tables import events
from tenancy.errors import Corrupt, InvalidInput, NotFound
from tenancy.identity import Principal, Role
from tenancy.types import among

MAX_LIMIT: Final = 1_000

_PAYLOADS: Final = select(events.c.seq, events.c.payload).where(among(events.c.seq, "wanted"))


class Texts(Protocol):
    """Opens sealed texts: `SubjectKeys`, or its reader for many."""

    def open(self, subject: str, field: str, sealed: Sealed) -> str: ...


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as stored: `payload` is the exact canonical JSON that the log hashes, empty where it was pruned."""

    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Up to `limit` records; `cursor` goes on after them and is None at the end.

    The window (UTC epoch seconds) is the one really applied: where the query gave no bound it is the time of the
    first or last record. Both are None for an empty log. All of it is true as of `head`, and `note` is the signed
    checkpoint of that size where there is one.
    """

    events: tuple[Stored, ...]
    cursor: str | None
    since: float | None
    until: float | None
    head: Head
    note: str | None


def query(
    principal: Principal, logs: AuditLogs, filters: Filters, *, limit: int = 100, after: str | None = None
) -> Page:
    """One page of the log of the principal's own tenant. Raises `Forbidden` without the auditor role."""
    principal.require(Role.AUDITOR)
    return query_log(logs.of(principal), filters, limit=limit, after=after)


def query_log(log: AuditLog, filters: Filters, *, limit: int = 100, after: str | None = None) -> Page:
    """One page of `log`, with all that this process had submitted before.

    Raises `InvalidInput` for a limit out of range or a cursor of another query.
    """
    require_limit(limit)
    about = msgspec.json.encode(filters)
    position = None if after is None else position_of(log, about, after, 1)[0]
    descending = filters.order == "desc"
    log.flush()
    with log.database.reading() as connection:
        then = state(connection, filters.as_of)
        within = bounds(connection, then.head.size, filters.since, filters.until)
        if position is not None:
            low, high = (within.low, position) if descending else (position + 1, within.high)
            within = Bounds(max(low, within.low), min(high, within.high))
        found = matching(connection, filters, within, descending=descending, limit=limit + 1)
        payloads = payloads_of(connection, found[:limit])
    return Page(
        events=tuple(Stored(seq, payloads[seq]) for seq in found[:limit]),
        cursor=cursor(log, about, found[limit - 1]) if len(found) > limit else None,
        since=filters.since if filters.since is not None else then.first,
        until=filters.until if filters.until is not None else then.last,
        head=then.head,
        note=then.note,
    )


def require_limit(limit: int) -> None:
    """Raise `InvalidInput` for a limit out of range."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"must be 1 to {MAX_LIMIT}", item="limit")


def payloads_of(connection: Connection, wanted: Collection[int]) -> dict[int, bytes]:
    """The stored bytes of records by number; a number that the log does not have is left out."""
    if not wanted:
        return {}
    return {row.seq: row.payload for row in connection.execute(_PAYLOADS, {"wanted": wanted})}


def fetch(log: AuditLog, seq: int) -> Stored:
    """One record by its sequence number. Raises `NotFound`."""
    log.flush()
    with log.database.reading() as connection:
        size = connection.execute(select(func.max(events.c.seq))).scalar_one()
        # Compared here: a number beyond 64 bits never reaches the database.
        known = size is not None and 0 <= seq <= size
        payload = (
            connection.execute(select(events.c.payload).where(events.c.seq == seq)).scalar_one_or_none()
            if known
            else None
        )
    if payload is None:
        raise NotFound("no such audit event", item=str(seq)[:20])
    return Stored(seq, payload)


def view(stored: Stored, subjects: Texts | None) -> dict[str, Any]:
    """An event as a plain dict. With `subjects` its sealed texts are opened; without, they are left out.

    Each field of `content` keeps its commitment and says what became of the text: `text`, `erased` or `redacted`. Of a
    record that was pruned there is its number alone.
    """
    if not stored.payload:
        return {"seq": stored.seq, "pruned": True}
    event = decode(stored.payload)
    plain: dict[str, Any] = msgspec.json.decode(stored.payload)
    if event.content is not None:
        sealed: Mapping[str, Sealed | None] = msgspec.structs.asdict(event.content)
        plain["content"] = {
            field: {"commit": value.commit, **opened(subjects, event.actor.ref or "", field, value)}
            for field, value in sealed.items()
            if value is not None
        }
    plain["redacted"] = subjects is None and event.content is not None
    return plain


def opened(subjects: Texts | None, subject: str, field: str, sealed: Sealed) -> dict[str, Any]:
    """What became of a sealed text: its `text`, or that it is `erased`, `redacted` or `corrupt`."""
    if subjects is None:
        return {"redacted": True}
    try:
        return {"text": subjects.open(subject, field, sealed)}
    except Erased:
        return {"erased": True}
    except Corrupt:
        # One unreadable text must not hide the rest of the log from the auditor.
        return {"corrupt": True}
