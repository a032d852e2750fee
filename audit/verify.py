"""Checking one audit log against itself: every stored byte is hashed again and the tree is built anew.

It tells what a change of the file looks like. It cannot tell that somebody who holds the log's keys rewrote all of it:
that takes a checkpoint that was kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, select
from sqlalchemy.engine import Connection

from audit.checkpoints import Checkpoint
from audit.evidence import Evidence
from audit.findings import Bad, Finding, Kind
from audit.log import AuditLog, genesis
from audit.merkle import Frontier, leaf_hash
from audit.record import Event, decode
from audit.tables import columns, documents, event_documents, events, head, open_intents
from tenancy.errors import Corrupt

_PAGE: Final = 2_000
# What a pruned record has lost.
_GONE: Final = [column.name for column in events.c if column.name not in {"seq", "leaf", "prev", "ts"}]


@dataclass(frozen=True, slots=True)
class Verification:
    """`size` and `root` are the stored head; `in_flight` counts intents whose writer is alive, `pruned` the records
    whose bytes are gone, on record.
    """

    log: str
    size: int
    root: bytes
    in_flight: int
    recovered: int
    finding: Finding | None
    pruned: int = 0

    @property
    def ok(self) -> bool:
        return self.finding is None


def verify(
    log: AuditLog,
    *,
    recover: bool = False,
    known: Sequence[Checkpoint] = (),
    between: Callable[[], None] = lambda: None,
) -> Verification:
    """Verify one state of `log`, while others may write to it. With `recover`, first close dead writers' intents.

    `known` are checkpoints that were kept elsewhere; `between` is called after every few thousand records, and what it
    raises ends the verification.
    """
    stored: Row[Any] | None = None
    check = _Check(log)
    finding: Finding | None = None
    recovered = 0
    try:
        recovered = log.recover() if recover else 0
        with log.database.reading() as connection:
            stored = connection.execute(select(head)).one_or_none()
            if stored is None:
                raise Bad("edited", None, "the log has no head")
            check.records(connection, stored.size, known, between)
            check.whole(stored)
    except Bad as bad:
        finding = bad.finding
    except Corrupt as error:
        # A page of the file, behind the records that were read.
        finding = Finding("edited", check.size, error.reason)
    size, root = (0, b"") if stored is None else (stored.size, stored.root)
    return Verification(log.log_id, size, root, len(check.open), recovered, finding, check.pruned)


class _Check:
    """One pass over the records in order; the first thing that does not fit raises `Bad`."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self._frontier = Frontier()
        self._prev = genesis(log.log_id)
        self.open: dict[int, str] = {}
        self.pruned = 0

    @property
    def size(self) -> int:
        """How many records fitted."""
        return self._frontier.size

    def records(
        self, connection: Connection, size: int, known: Sequence[Checkpoint], between: Callable[[], None]
    ) -> None:
        """Every record, of a log that has `size` by its head."""
        self._connection = connection
        self._evidence = Evidence(self._log, connection, known)
        for rows in self._pages():
            between()
            touched = self._documents(rows[0].seq, rows[-1].seq)
            for row in rows:
                self._record(row, touched.pop(row.seq, set()))
            if touched:
                raise Bad("edited", min(touched), "the document index names a record that is not there")
        found = self._frontier.size
        if found < size:
            raise Bad("truncated", found, f"the log has {size} records by its head, and {found} are there")
        if found > size:
            raise Bad("forked", size, f"the log has {size} records by its head, and more are there")
        if self._documents(size, None):
            raise Bad("edited", size, "the document index goes beyond the last record")

    def whole(self, stored: Row[Any]) -> None:
        """What all the records together have to give."""
        self._evidence.checkpoints(stored.size)
        self._tree(stored)
        self._evidence.beside()
        self._intents()

    def _tree(self, stored: Row[Any]) -> None:
        fits = stored.frontier == self._frontier.to_bytes() and stored.root == self._frontier.root()
        if not fits or stored.last_leaf != self._prev:
            raise Bad("edited", None, "the records do not give the stored root")

    def _intents(self) -> None:
        listed = {row.seq: row.writer for row in self._connection.execute(select(open_intents))}
        if listed != self.open:
            raise Bad("edited", min(listed.items() ^ self.open.items())[0], "the list of open intents differs")
        for seq, writer in sorted(self.open.items()):
            if not self._log.live.alive(writer):
                raise Bad("unsettled", seq, "an intent has no outcome, and its writer has ended")

    def _record(self, row: Row[Any], touched: set[tuple[str, str, str | None, str | None]]) -> None:
        seq = self._frontier.size
        if row.seq != seq:
            kind: Kind = "missing" if row.seq > seq else "forked"
            raise Bad(kind, min(seq, row.seq), f"record {row.seq} stands where {seq} belongs")
        if not row.payload and self._evidence.range_of(seq) is not None:
            self._emptied(row, touched)
            return
        leaf = leaf_hash(row.payload)
        event = self._decoded(seq, row.payload)
        if event.seq != seq and (leaf == row.leaf or leaf == self._leaf_of(event.seq)):
            raise Bad("reordered", seq, f"record {event.seq} stands where {seq} belongs")
        if leaf != row.leaf:
            raise Bad("edited", seq, "the stored bytes do not give their hash")
        if event.log != self._log.log_id:
            raise Bad("edited", seq, "the record belongs to another log")
        self._follows(row)
        held = row._mapping
        differing = [name for name, value in columns(event).items() if held[name] != value]
        if differing:
            raise Bad("edited", seq, f"columns differ from the stored bytes: {', '.join(differing)}")
        if touched != documents(event):
            raise Bad("edited", seq, "the document index differs from the stored bytes")
        self._pair(event)
        self._evidence.note(event)
        self._add(row)

    def _emptied(self, row: Row[Any], touched: set[tuple[str, str, str | None, str | None]]) -> None:
        """A record whose bytes were destroyed: its hash stands in for them, and nothing else is left of it."""
        self._follows(row)
        if touched or any(row._mapping[name] for name in _GONE):
            raise Bad("edited", row.seq, "something of a pruned record is left beside its hash")
        self.pruned += 1
        self._add(row)

    def _follows(self, row: Row[Any]) -> None:
        if row.prev != self._prev:
            reason = f"record {row.seq} does not follow the one that stands before it"
            raise Bad("forked", max(row.seq - 1, 0), reason)

    def _add(self, row: Row[Any]) -> None:
        stored = self._frontier.append(row.leaf)
        self._evidence.take(row.seq, row.ts, row.leaf, stored, self._frontier)
        self._prev = row.leaf

    def _pair(self, event: Event) -> None:
        if event.phase == "intent":
            self.open[event.seq] = event.writer
        elif event.intent is not None and self.open.pop(event.intent, None) is None:
            raise Bad("unmatched", event.seq, f"the outcome closes {event.intent}, which is no open intent")

    def _decoded(self, seq: int, payload: bytes) -> Event:
        try:
            return decode(payload)
        except Corrupt:
            raise Bad("edited", seq, "the stored bytes are no event") from None

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
