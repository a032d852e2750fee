"""Pruning: destroying the bytes of records after their time, while the tree over all of them still verifies.

A pruned record keeps its number, time and hashes, and loses everything else. Which were pruned stands in the log
itself: one event `audit.prune` for each range, written in the same transaction, with the root of the tree over the
range's leaves (RFC 6962, section 2.1) and a signature of the log's key over `statement`.

What stays although its time is over: intents that are open, what a legal hold covers, and the records that are needed
to check the log later on (`audit.prune`, `audit.key`). An intent and its outcome go together or not at all.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, delete, func, insert, select, update
from sqlalchemy.engine import Connection

from audit import signers
from audit.holds import Hold
from audit.log import AuditLog
from audit.merkle import Frontier
from audit.record import Detail
from audit.retention import PLACED, Announce
from audit.tables import event_documents, events, open_intents, prunings
from tenancy.types import among

ACTION: Final = "audit.prune"
STEP: Final = 1_000
"""Records of one transaction, which the writers of the log wait for."""

_STAY: Final = frozenset({ACTION, "audit.key"})
_BARE: Final = frozenset({"seq", "payload", "leaf", "prev", "ts"})
_EMPTY: Final[Mapping[str, Any]] = {"payload": b""} | {
    column.name: None if column.nullable else column.type.python_type()
    for column in events.columns
    if column.name not in _BARE
}
_PRESENT: Final[ColumnElement[bool]] = func.length(events.c.payload) > 0
_NEWEST_HOLD: Final = select(func.max(events.c.seq)).where(events.c.action == PLACED)
_FACTS: Final = select(events.c.seq, events.c.ts, events.c.action, events.c.phase, events.c.actor, events.c.intent)


@dataclass(slots=True)
class Pruned:
    """How many records went, in which ranges (first, last); how many of their age stayed, by reason."""

    records: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    kept: Counter[str] = field(default_factory=Counter)


def plan(log: AuditLog, before: float) -> Pruned:
    """What `prune` would do now; nothing is changed."""
    found = Pruned()
    limit = _limit(log, before)
    chosen: set[int] = set()
    holds = log.subjects.holds.active()
    for first, last in _pieces(log, limit):
        with log.database.reading() as connection:
            chosen |= _Choice(connection, holds, limit, before).of(first, last, found.kept)
    found.records, found.ranges = len(chosen), list(_ranges(chosen))
    return found


def prune(log: AuditLog, before: float, announce: Announce) -> Pruned:
    """Destroy the bytes of the records of before `before` (UTC epoch seconds), up to the first that is not older.

    `announce` makes the event of each range. In steps: what a crash interrupts is done in part, and on record as far as
    it is done.
    """
    found = Pruned()
    limit = _limit(log, before)
    for first, last in _pieces(log, limit):
        while not _step(log, first, last, (limit, before), announce, found):
            pass
    # Also where nothing was left to prune: whoever pruned it may have died before this.
    log.database.truncate_wal()
    return found


def _step(log: AuditLog, first: int, last: int, until: tuple[int, float], announce: Announce, found: Pruned) -> bool:
    """Prune a piece in one transaction; False where a hold was placed after the holds were read, and nothing was done.

    Whoever places a hold writes its record after it, and is told that it is in force after that. So no hold of which
    somebody was told is missing here, although the holds lie in another database.
    """
    with log.database.reading() as connection:
        known = connection.execute(_NEWEST_HOLD).scalar_one()
    holds = log.subjects.holds.active()
    with log.database.writing() as connection:
        if connection.execute(_NEWEST_HOLD).scalar_one() != known:
            return False
        kept: Counter[str] = Counter()
        chosen = _Choice(connection, holds, *until).of(first, last, kept)
        ranges = list(_ranges(chosen))
        for start, end in ranges:
            _empty(connection, log, start, end, announce)
    found.records += len(chosen)
    found.ranges += ranges
    found.kept += kept
    return True


def statement(log_id: str, first: int, last: int, root: bytes) -> bytes:
    """The bytes that are signed for a pruned range."""
    return f"strongroom audit prune\n{log_id}\n{first}\n{last}\n{base64.b64encode(root).decode()}\n".encode()


def pruned_root(connection: Connection, first: int, last: int) -> bytes:
    """The root of a tree over the leaves of the records `first` to `last`."""
    tree = Frontier()
    inside = select(events.c.leaf).where(events.c.seq.between(first, last)).order_by(events.c.seq)
    for leaf in connection.execute(inside).scalars():
        tree.append(leaf)
    return tree.root()


def _empty(connection: Connection, log: AuditLog, first: int, last: int, announce: Announce) -> None:
    """Empty a range, and say so in the log."""
    signer, root = signers.current_in(connection, log), pruned_root(connection, first, last)
    signature = signer.private.sign(statement(log.log_id, first, last, root))
    said: dict[str, Detail] = {
        "first": first, "last": last, "root": root.hex(),
        "key": signer.id, "signature": base64.b64encode(signature).decode(),
    }  # fmt: skip
    (seq,) = log.append_in(connection, [announce(said)])
    connection.execute(update(events).where(events.c.seq.between(first, last)).values(_EMPTY))
    connection.execute(delete(event_documents).where(event_documents.c.seq.between(first, last)))
    connection.execute(insert(prunings).values(first=first, last=last, seq=seq, ts=log.now()))


def _limit(log: AuditLog, before: float) -> int:
    """The last record before the first one that is not old enough; -1 where there is none.

    A time in the future is of a clock that was set back since: it says nothing about the records behind it.
    """
    young = select(events.c.seq).where(events.c.ts >= before, events.c.ts <= log.now())
    young = young.order_by(events.c.seq).limit(1)
    with log.database.reading() as connection:
        found = connection.execute(young).scalar_one_or_none()
        newest = connection.execute(select(func.max(events.c.seq))).scalar_one()
    if found is not None:
        return int(found) - 1
    return -1 if newest is None else int(newest)


def _pieces(log: AuditLog, limit: int) -> Iterator[tuple[int, int]]:
    """What is not pruned yet up to `limit`, in pieces of `STEP` records."""
    with log.database.reading() as connection:
        done = connection.execute(select(prunings.c.first, prunings.c.last).order_by(prunings.c.first)).all()
    start = 0
    for first, last in [*done, (limit + 1, limit + 1)]:
        for piece in range(start, min(first, limit + 1), STEP):
            yield piece, min(piece + STEP, first, limit + 1) - 1
        start = max(start, last + 1)


class _Choice:
    """Which records may go, in one transaction: they are free themselves, and so is the other one of their pair."""

    def __init__(self, connection: Connection, holds: Sequence[Hold], limit: int, before: float) -> None:
        self._connection = connection
        self._holds = holds
        self._limit = limit
        self._before = before
        self._open = set(connection.execute(select(open_intents.c.seq)).scalars())

    def of(self, first: int, last: int, kept: Counter[str]) -> set[int]:
        """Of the records `first` to `last`, with their partners elsewhere; `kept` counts by reason what stays."""
        rows = self._rows(_FACTS.where(events.c.seq.between(first, last), _PRESENT))
        partners = self._partners(rows)
        chosen: set[int] = set()
        for row in rows.values():
            partner = partners.get(row.seq)
            reason = self._reason(row) or (None if partner is None else self._reason(partner))
            if reason is None:
                chosen |= {row.seq} if partner is None else {row.seq, partner.seq}
            else:
                kept[reason] += 1
        return chosen

    def _reason(self, row: Row[Any]) -> str | None:
        """Why a record stays."""
        if row.seq > self._limit:
            return "its outcome is younger"
        if row.ts >= self._before:
            return "its time is in the future"
        if row.seq in self._open:
            return "open intent"
        if row.action in _STAY:
            return "needed for verification"
        return "legal hold" if any(hold.covers(row.actor, row.ts) for hold in self._holds) else None

    def _partners(self, rows: dict[int, Row[Any]]) -> dict[int, Row[Any]]:
        """The intent of each outcome, the outcome of each intent, by the number of the other one."""
        intents = [seq for seq, row in rows.items() if row.phase == "intent"]
        begun = {row.intent for row in rows.values() if row.intent is not None}
        later = self._rows(_FACTS.where(among(events.c.intent, "numbers")), intents)
        earlier = rows | self._rows(_FACTS.where(among(events.c.seq, "numbers"), _PRESENT), sorted(begun - rows.keys()))
        found = {row.intent: row for row in later.values()}
        return found | {row.seq: earlier[row.intent] for row in rows.values() if row.intent in earlier}

    def _rows(self, query: Select[Any], numbers: Sequence[int] | None = None) -> dict[int, Row[Any]]:
        if numbers is None:
            return {row.seq: row for row in self._connection.execute(query)}
        return {row.seq: row for row in self._connection.execute(query, {"numbers": numbers})} if numbers else {}


def _ranges(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The runs of consecutive numbers, in order."""
    start = end = None
    for number in sorted(numbers):
        if start is None or end is None:
            start = number
        elif number != end + 1:
            yield start, end
            start = number
        end = number
    if start is not None and end is not None:
        yield start, end
