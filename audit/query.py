"""Reading one audit log: bounded filters, stable cursors, and the view of an event that a role may have.

These functions block on the database: call them from a worker thread, never from the event loop.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import msgspec
from sqlalchemy import ColumnElement, func, select

from audit.log import AuditLog, Head, read_head
from audit.logs import AuditLogs
from audit.record import CacheStatus, Outcome, Phase, Sealed, decode
from audit.subjects import Erased, SubjectKeys
from audit.tables import event_documents, events
from tenancy.errors import Corrupt, InvalidInput, NotFound
from tenancy.identity import Principal, Role
from tenancy.keys import keyed_hash
from tenancy.names import holds_control

MAX_LIMIT: Final = 1_000
_MAC_BYTES: Final = 16

Order = Literal["asc", "desc"]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What to find; everything given must hold. `since` (inclusive) and `until` (exclusive) are UTC epoch seconds.

    `actor` is a reference, see `SubjectKeys.ref`. Raises `InvalidInput` for values that no event can have.
    """

    since: float | None = None
    until: float | None = None
    actor: str | None = None
    action: str | None = None
    phase: Phase | None = None
    outcome: Outcome | None = None
    document: str | None = None
    cache_status: CacheStatus | None = None
    cache_entry: str | None = None
    request: str | None = None
    root: str | None = None
    order: Order = "desc"

    def __post_init__(self) -> None:
        for name, kind in (
            ("phase", Phase), ("outcome", Outcome), ("cache_status", CacheStatus), ("order", Order),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                raise InvalidInput(f"must be one of {', '.join(get_args(kind))}", item=name)
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise InvalidInput("must be a time", item=name)
        if self.since is not None and self.until is not None and self.since > self.until:
            raise InvalidInput("the window ends before it begins", item="until")
        for name in ("actor", "action", "document", "cache_entry", "request", "root"):
            value = getattr(self, name)
            if value is not None and holds_control(value):
                raise InvalidInput("must not hold control characters or lone surrogates", item=name)


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as stored: `payload` is the exact canonical JSON that the log hashes."""

    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """Up to `limit` records; `cursor` goes on after them and is None at the end.

    The window (UTC epoch seconds) is the one really applied: where the query gave no bound it is the time of the
    first or last record. Both are None for an empty log. All of it is true as of `head`.
    """

    events: tuple[Stored, ...]
    cursor: str | None
    since: float | None
    until: float | None
    head: Head


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
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"must be 1 to {MAX_LIMIT}", item="limit")
    conditions = _conditions(filters)
    descending = filters.order == "desc"
    if after is not None:
        position = _parse_cursor(log, filters, after)
        conditions.append(events.c.seq < position if descending else events.c.seq > position)
    statement = (
        select(events.c.seq, events.c.payload)
        .where(*conditions)
        .order_by(events.c.seq.desc() if descending else events.c.seq)
        .limit(limit + 1)
    )
    log.flush()
    with log.database.reading() as connection:
        head = read_head(connection)
        edges = select(events.c.ts).where(events.c.seq.in_([0, head.size - 1])).order_by(events.c.seq)
        times = connection.execute(edges).scalars().all()
        rows = connection.execute(statement).all()
    found = tuple(Stored(row.seq, row.payload) for row in rows[:limit])
    return Page(
        events=found,
        cursor=_cursor(log, filters, found[-1].seq) if len(rows) > limit else None,
        since=filters.since if filters.since is not None or not times else times[0],
        until=filters.until if filters.until is not None or not times else times[-1],
        head=head,
    )


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


def view(stored: Stored, subjects: SubjectKeys | None) -> dict[str, Any]:
    """An event as a plain dict. With `subjects` its sealed texts are opened; without, they are left out.

    Each field of `content` keeps its commitment and says what became of the text: `text`, `erased` or `redacted`.
    """
    event = decode(stored.payload)
    plain: dict[str, Any] = msgspec.json.decode(stored.payload)
    if event.content is not None:
        sealed: Mapping[str, Sealed | None] = msgspec.structs.asdict(event.content)
        plain["content"] = {
            field: {"commit": value.commit, **_opened(subjects, event.actor.ref or "", field, value)}
            for field, value in sealed.items()
            if value is not None
        }
    plain["redacted"] = subjects is None and event.content is not None
    return plain


def _opened(subjects: SubjectKeys | None, subject: str, field: str, sealed: Sealed) -> dict[str, Any]:
    if subjects is None:
        return {"redacted": True}
    try:
        return {"text": subjects.open(subject, field, sealed)}
    except Erased:
        return {"erased": True}
    except Corrupt:
        # One unreadable text must not hide the rest of the log from the auditor.
        return {"corrupt": True}


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    equal = {
        events.c.actor: filters.actor,
        events.c.action: filters.action,
        events.c.phase: filters.phase,
        events.c.outcome: filters.outcome,
        events.c.cache_status: filters.cache_status,
        events.c.cache_entry: filters.cache_entry,
        events.c.request: filters.request,
        events.c.root: filters.root,
    }
    conditions: list[ColumnElement[bool]] = [column == value for column, value in equal.items() if value is not None]
    if filters.since is not None:
        conditions.append(events.c.ts >= filters.since)
    if filters.until is not None:
        conditions.append(events.c.ts < filters.until)
    if filters.document is not None:
        named = unicodedata.normalize("NFC", filters.document)
        touched = select(event_documents.c.seq).where(event_documents.c.document == named)
        conditions.append(events.c.seq.in_(touched))
    return conditions


def _cursor(log: AuditLog, filters: Filters, seq: int) -> str:
    return base64.urlsafe_b64encode(seq.to_bytes(8, "big") + _mac(log, filters, seq)).decode()


def _parse_cursor(log: AuditLog, filters: Filters, cursor: str) -> int:
    """The position in a cursor, which is bound to its log and its filters by a keyed hash."""
    try:
        data = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        data = b""
    seq = int.from_bytes(data[:8], "big")
    if len(data) != 8 + _MAC_BYTES or not hmac.compare_digest(data[8:], _mac(log, filters, seq)):
        raise InvalidInput(
            "the cursor does not belong to this query",
            item="after",
            remedy="repeat the filters of the page that gave it, or leave it out to start again",
        )
    return seq


def _mac(log: AuditLog, filters: Filters, seq: int) -> bytes:
    digest = keyed_hash(log.files.purpose("cursor"), log.log_id, msgspec.json.encode(filters), str(seq))
    return digest[:_MAC_BYTES]
