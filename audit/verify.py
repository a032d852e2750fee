"""Checking one audit log against itself: every stored byte is hashed again and the tree is built anew.

It tells what a change of the file looks like. It cannot tell that somebody who holds the log's key rewrote all of it:
that takes a root that was kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from audit.log import AuditLog, genesis
from audit.merkle import Frontier, leaf_hash
from audit.record import Event, decode
from audit.tables import columns, documents, event_documents, events, head, open_intents
from tenancy.errors import Corrupt

_PAGE: Final = 2_000

Kind = Literal["edited", "missing", "reordered", "forked", "truncated", "unmatched", "unsettled"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong first. `seq` is the first bad position, or None where the records do not tell it."""

    kind: Kind
    seq: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Verification:
    """`size` and `root` are the stored head; `in_flight` counts intents whose writer is alive."""

    log: str
    size: int
    root: bytes
    in_flight: int
    recovered: int
    finding: Finding | None

    @property
    def ok(self) -> bool:
        return self.finding is None


class _Bad(Exception):
    def __init__(self, kind: Kind, seq: int | None, reason: str) -> None:
        super().__init__(reason)
        self.finding = Finding(kind, seq, reason)


def verify(log: AuditLog, *, recover: bool = False) -> Verification:
    """Verify one state of `log`, while others may write to it. With `recover`, first close dead writers' intents."""
    recovered = log.recover() if recover else 0
    with log.database.reading() as connection:
        stored = connection.execute(select(head)).one()
        check = _Check(log, connection)
        finding: Finding | None = None
        try:
            check.records(stored.size)
            check.tree(stored)
            check.intents()
        except _Bad as bad:
            finding = bad.finding
    return Verification(log.log_id, stored.size, stored.root, len(check.open), recovered, finding)


class _Check:
    """One pass over the records in order; the first thing that does not fit raises `_Bad`."""

    def __init__(self, log: AuditLog, connection: Connection) -> None:
        self._log = log
        self._connection = connection
        self._frontier = Frontier()
        self._prev = genesis(log.log_id)
        self.open: dict[int, str] = {}

    def records(self, size: int) -> None:
        for rows in self._pages():
            touched = self._documents(rows[0].seq, rows[-1].seq)
            for row in rows:
                self._record(row, touched.pop(row.seq, set()))
            if touched:
                raise _Bad("edited", min(touched), "the document index names a record that is not there")
        found = self._frontier.size
        if found < size:
            raise _Bad("truncated", found, f"the log has {size} records by its head, and {found} are there")
        if found > size:
            raise _Bad("forked", size, f"the log has {size} records by its head, and more are there")
        if self._documents(size, None):
            raise _Bad("edited", size, "the document index goes beyond the last record")

    def tree(self, stored: Row[Any]) -> None:
        fits = stored.frontier == self._frontier.to_bytes() and stored.root == self._frontier.root()
        if not fits or stored.last_leaf != self._prev:
            raise _Bad("edited", None, "the records do not give the stored root")

    def intents(self) -> None:
        listed = {row.seq: row.writer for row in self._connection.execute(select(open_intents))}
        if listed != self.open:
            raise _Bad("edited", min(listed.items() ^ self.open.items())[0], "the list of open intents differs")
        for seq, writer in sorted(self.open.items()):
            if not self._log.live.alive(writer):
                raise _Bad("unsettled", seq, "an intent has no outcome, and its writer has ended")

    def _record(self, row: Row[Any], touched: set[tuple[str, str, str | None, str | None]]) -> None:
        seq = self._frontier.size
        if row.seq != seq:
            kind: Kind = "missing" if row.seq > seq else "forked"
            raise _Bad(kind, min(seq, row.seq), f"record {row.seq} stands where {seq} belongs")
        leaf = leaf_hash(row.payload)
        event = self._decoded(seq, row.payload)
        if event.seq != seq and (leaf == row.leaf or leaf == self._leaf_of(event.seq)):
            raise _Bad("reordered", seq, f"record {event.seq} stands where {seq} belongs")
        if leaf != row.leaf:
            raise _Bad("edited", seq, "the stored bytes do not give their hash")
        if event.log != self._log.log_id:
            raise _Bad("edited", seq, "the record belongs to another log")
        if row.prev != self._prev:
            raise _Bad("forked", max(seq - 1, 0), f"record {seq} does not follow the one that stands before it")
        differing = [name for name, value in columns(event).items() if row._mapping[name] != value]
        if differing:
            raise _Bad("edited", seq, f"columns differ from the stored bytes: {', '.join(differing)}")
        if touched != documents(event):
            raise _Bad("edited", seq, "the document index differs from the stored bytes")
        self._pair(event)
        self._frontier.append(leaf)
        self._prev = leaf

    def _pair(self, event: Event) -> None:
        if event.phase == "intent":
            self.open[event.seq] = event.writer
        elif event.intent is not None and self.open.pop(event.intent, None) is None:
            raise _Bad("unmatched", event.seq, f"the outcome closes {event.intent}, which is no open intent")

    def _decoded(self, seq: int, payload: bytes) -> Event:
        try:
            return decode(payload)
        except Corrupt:
            raise _Bad("edited", seq, "the stored bytes are no event") from None

    def _leaf_of(self, seq: int) -> bytes | None:
        leaf: bytes | None = self._connection.execute(
            select(events.c.leaf).where(events.c.seq == seq)
        ).scalar_one_or_none()
        return leaf

    def _pages(self) -> Iterator[Sequence[Row[Any]]]:
        statement = select(events).order_by(events.c.seq).limit(_PAGE)
        rows = self._connection.execute(statement).all()
        while rows:
            yield rows
            rows = self._connection.execute(statement.where(events.c.seq > rows[-1].seq)).all()

    def _documents(self, first: int, last: int | None) -> dict[int, set[tuple[str, str, str | None, str | None]]]:
        """Rows of the document index by sequence number, from `first` to `last` inclusive."""
        statement = select(event_documents).where(event_documents.c.seq >= first)
        if last is not None:
            statement = statement.where(event_documents.c.seq <= last)
        found: dict[int, set[tuple[str, str, str | None, str | None]]] = {}
        for row in self._connection.execute(statement):
            found.setdefault(row.seq, set()).add((row.document, row.stage, row.actor, row.outcome))
        return found
