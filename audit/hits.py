"""Past hits of the cache as the log has them: what was asked, what the served answer had been made for, and from what.

Nothing is guessed. A text whose key was destroyed, an origin that was pruned or that the log does not have are named in
`missing`, and what would follow from them stays open. Which of the pruned records were hits nobody knows any more:
`pruned` counts them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Float, Select, bindparam, func, select
from sqlalchemy.engine import Connection

from audit.log import AuditLog, Head, read_head
from audit.record import Event, decode
from audit.subjects import Erased, SubjectKeys
from audit.tables import events, prunings
from tenancy.errors import Corrupt
from tenancy.types import Integer, among

PAGE: Final = 200
"""Hits that are read at one time."""

_LEFT: Final = frozenset({"allowed", "aborted", None})
"""Outcomes of a hit whose answer left, or may have left: also one that is still under way."""

_PAYLOADS: Final = select(events.c.seq, events.c.payload).where(among(events.c.seq, "wanted"))
_OUTCOMES: Final = select(events.c.intent, events.c.outcome).where(among(events.c.intent, "wanted"))


@dataclass(frozen=True, slots=True)
class PastHit:
    """One hit that left. `event` is its intent, `origin` the intent of the answer that was stored.

    `question` is what was asked, `cached` what the stored answer had been made for, `sources` the (document, version)
    of everything in that answer's prompt; each None where it cannot be had, and then `missing` says why, in short codes
    such as "question erased".
    """

    event: Event
    origin: Event | None
    question: str | None
    cached: str | None
    sources: tuple[tuple[str, str], ...] | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hits:
    """Some hits in their order, and how many more were announced and did not leave."""

    served: tuple[PastHit, ...]
    withheld: int


def state_of(log: AuditLog) -> Head:
    """The log as it is now, with all that this process had submitted before."""
    log.flush()
    with log.database.reading() as connection:
        return read_head(connection)


def pruned(log: AuditLog, head: Head, *, since: float | None = None, until: float | None = None) -> int:
    """How many of the first `head.size` records were pruned that are of this time."""
    inside = (events.c.seq >= prunings.c.first) & (events.c.seq <= prunings.c.last) & (events.c.seq < head.size)
    query = select(func.count()).select_from(prunings).join(events, inside).where(*_window(since, until))
    with log.database.reading() as connection:
        return int(connection.execute(query).scalar_one())


def past_hits(
    log: AuditLog, head: Head, *, since: float | None = None, until: float | None = None, actor: str | None = None
) -> Iterator[Hits]:
    """The hits among the first `head.size` records, oldest first. `since` and `until` as in `audit.query.Filters`.

    Each page is one read transaction, so that a long reading holds up nobody.
    """
    after = -1
    statement = _hits(since, until, actor)
    while True:
        with log.database.reading() as connection:
            rows = connection.execute(statement, {"after": after, "size": head.size}).all()
            if not rows:
                return
            found = [decode(row.payload) for row in rows]
            outcomes = {
                row.intent: row.outcome
                for row in connection.execute(_OUTCOMES, {"wanted": [event.seq for event in found]})
            }
            left = [event for event in found if outcomes.get(event.seq) in _LEFT]
            origins = _origins(connection, left)
        yield Hits(tuple(_past(event, origins, log.subjects) for event in left), len(found) - len(left))
        after = found[-1].seq


def _hits(since: float | None, until: float | None, actor: str | None) -> Select[tuple[int, bytes]]:
    conditions = [
        events.c.cache_status == "hit",
        events.c.phase == "intent",
        events.c.seq > bindparam("after", type_=Integer),
        events.c.seq < bindparam("size", type_=Integer),
        *_window(since, until),
    ]
    if actor is not None:
        conditions.append(events.c.actor == actor)
    return select(events.c.seq, events.c.payload).where(*conditions).order_by(events.c.seq).limit(PAGE)


def _window(since: float | None, until: float | None) -> Iterator[ColumnElement[bool]]:
    if since is not None:
        yield events.c.ts >= bindparam(None, since, type_=Float)
    if until is not None:
        yield events.c.ts < bindparam(None, until, type_=Float)


def _origins(connection: Connection, hits: Sequence[Event]) -> dict[int, bytes]:
    wanted = sorted(
        {hit.cache.origin_seq for hit in hits if hit.cache is not None and hit.cache.origin_seq is not None}
    )
    if not wanted:
        return {}
    return {row.seq: row.payload for row in connection.execute(_PAYLOADS, {"wanted": wanted})}


def _past(event: Event, origins: dict[int, bytes], subjects: SubjectKeys) -> PastHit:
    assert event.cache is not None
    missing: list[str] = []
    origin = _origin(event, origins, missing)
    question = _text(event, subjects, "question", missing)
    cached, sources = None, None
    if origin is not None:
        cached = _text(origin, subjects, "origin", missing)
        sources = _sources(origin)
        if not sources:
            missing.append("sources not on record")
    return PastHit(event, origin, question, cached, sources or None, tuple(missing))


def _origin(event: Event, origins: dict[int, bytes], missing: list[str]) -> Event | None:
    assert event.cache is not None
    payload = None if event.cache.origin_seq is None else origins.get(event.cache.origin_seq)
    if payload is None:
        missing.append("origin not on record")
        return None
    if not payload:
        missing.append("origin pruned")
        return None
    origin = decode(payload)
    if origin.phase != "intent" or origin.seq >= event.seq or origin.action != event.action:
        # As after a restore under another name: the number is one of another log.
        missing.append("origin not on record")
        return None
    return origin


def _sources(origin: Event) -> tuple[tuple[str, str], ...]:
    """Everything that stood in the prompt, cited or not: what the stored answer rests on."""
    found = {
        (resource.document, resource.version)
        for resource in origin.resources
        if resource.stage in ("in_prompt", "cited") and resource.version is not None
    }
    return tuple(sorted(found))


def _text(event: Event, subjects: SubjectKeys, what: str, missing: list[str]) -> str | None:
    """The question of an event; `what` it is called where it is missing."""
    sealed = None if event.content is None else event.content.question
    if sealed is None:
        missing.append(f"{what} without text")
        return None
    try:
        return subjects.open(event.actor.ref or "", "question", sealed)
    except Erased:
        missing.append(f"{what} erased")
    except Corrupt:
        missing.append(f"{what} unreadable")
    return None
