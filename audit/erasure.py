"""Erasing one person's texts from an audit log: their keys are destroyed, every record and every proof stays.

A text is readable to whoever has its subject's key, which lies in `audit.subjects` alone, and in no backup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from audit.holds import Held, Hold
from audit.log import AuditLog
from audit.tables import events


@dataclass(frozen=True, slots=True)
class ErasedTexts:
    """`keys` were destroyed; of `records` of the subject, numbers `first` to `last`, no text can be read any more."""

    keys: int
    records: int
    first: int | None
    last: int | None


def holds_on(log: AuditLog, subject: str, among: Sequence[Hold] | None = None) -> tuple[Hold, ...]:
    """The active holds, or those of `among`, that keep texts of `subject`: on it, or on the time of a record of it."""
    active = log.subjects.holds.active() if among is None else among
    return tuple(hold for hold in active if _covers(log, subject, hold))


def require_free(log: AuditLog, subject: str, among: Sequence[Hold] | None = None) -> None:
    """Raise `Held` where a legal hold keeps texts of `subject`."""
    found = holds_on(log, subject, among)
    if found:
        raise Held(found, item=subject)


def erase_texts(log: AuditLog, subject: str, *, user: str | None = None, name: str = "") -> ErasedTexts:
    """Make every text of `subject` unreadable for good, those that are recorded later included. Raises `Held`.

    `user` and `name` are remembered until there is a receipt; see `SubjectKeys.erase`.
    """
    log.flush()
    keys = None
    while keys is None:
        known = log.subjects.holds.active()
        require_free(log, subject, known)
        keys = log.subjects.erase(subject, {hold.id for hold in known}, user=user, name=name)
    seq = events.c.seq
    query = select(func.count(), func.min(seq), func.max(seq)).where(events.c.actor == subject)
    with log.database.reading() as connection:
        records, first, last = connection.execute(query).one()
    return ErasedTexts(keys, records, first, last)


def _covers(log: AuditLog, subject: str, hold: Hold) -> bool:
    if hold.kind == "subject":
        return hold.subject == subject
    query = select(events.c.seq).where(events.c.actor == subject)
    if hold.since is not None:
        query = query.where(events.c.ts >= hold.since)
    if hold.until is not None:
        query = query.where(events.c.ts < hold.until)
    with log.database.reading() as connection:
        return connection.execute(query.limit(1)).first() is not None
