"""The usage ledger of one tenant: every usage event of its audit log, booked once.

The audit log is what the ledger is made from, and the only way in: a record is durable before an answer's first byte,
and an outcome is kept until it is written, so no use can be lost on its way here, whatever process ends when. The
ledger follows behind the answer. It is complete as of the log's head whenever it is read (`catch_up`), and before
records are pruned. How far it is, and the events up to there, are one transaction; an event that comes again is
recognised by its id. See docs/decisions/0013-usage-from-the-audit.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, func, insert, select, update
from sqlalchemy.engine import Connection

from audit.log import AuditLog
from audit.record import decode
from audit.tables import events
from metering.events import CORRECT, UsageEvent, usage_of
from metering.tables import USAGE_FILE, metadata, position, seed, usage
from tenancy.errors import Conflict, Corrupt, NotFound
from tenancy.registry import FIRST, named
from tenancy.types import among

STEP: Final = 500
"""Records of one transaction."""

_COST: Final = b'"cost":'
_CORRECT: Final = f'"{CORRECT}"'.encode()
_PLACE: Final = select(position.c.next, position.c.missed, position.c.conflicts)
_RECORDS: Final = (
    select(events.c.seq, events.c.payload).where(events.c.seq >= bindparam("start")).order_by(events.c.seq).limit(STEP)
)
_KNOWN: Final = select(usage).where(among(usage.c.id, "wanted"))

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a ledger is; see `metering.tables`."""

    next: int
    missed: int
    conflicts: int


class UsageLedger:
    """The ledger beside `log`. Its methods block on databases: call them from a worker thread."""

    def __init__(self, log: AuditLog) -> None:
        self.log = log
        self.generation = log.files.generation(USAGE_FILE)
        self.database = log.files.database(named(USAGE_FILE, self.generation), metadata, seed=seed)

    def place(self) -> Place:
        with self.database.reading() as connection:
            return _place(connection)

    def catch_up(self) -> int:
        """Book what the log has and the ledger has not, with what this process still writes; returns how many events.

        Raises `AuditUnavailable` where records that wait cannot be written.
        """
        self.log.flush()
        booked, start = 0, self.place().next
        # Pruned before there was a ledger is not missing in it; in one that is made again, or elsewhere, it is.
        beginning = start == 0 and self.generation == FIRST
        while found := self._records(start):
            with self.database.writing() as connection:
                if _place(connection).next == start:
                    booked += self._follow(connection, found, beginning=beginning)
            start = self.place().next
        return booked

    @contextmanager
    def alone(self) -> Iterator[Connection]:
        """A write transaction of the ledger, complete as of the log's head: until the block ends nobody else, of any
        process, books or is alone. Books nothing of what the block itself puts on record. Raises as `catch_up`.
        """
        # Most of it before: others wait meanwhile.
        self.catch_up()
        with self.database.writing() as connection:
            while found := self._records(_place(connection).next):
                self._follow(connection, found)
            yield connection

    def _records(self, start: int) -> Sequence[Any]:
        with self.log.database.reading() as connection:
            return connection.execute(_RECORDS, {"start": start}).all()

    def _follow(self, connection: Connection, found: Sequence[Any], *, beginning: bool = False) -> int:
        """Book the next records of the log; returns how many events."""
        missed = 0 if beginning else sum(not row.payload for row in found)
        said = [one for row in found if _speaks(row.payload) for one in usage_of(decode(row.payload))]
        booked = self._book(connection, said)
        moved = {"next": found[-1].seq + 1, "missed": position.c.missed + missed}
        connection.execute(update(position).values(moved))
        return booked

    def book(self, said: Iterable[UsageEvent]) -> int:
        """Book events that were delivered; those that stand here already are left. Returns how many were new."""
        with self.database.writing() as connection:
            return self._book(connection, list(said))

    def event(self, event_id: str) -> UsageEvent:
        """One event by its id. Raises `NotFound`."""
        with self.database.reading() as connection:
            row = connection.execute(_KNOWN, {"wanted": [event_id]}).one_or_none()
        if row is None:
            raise NotFound("no such usage event", item=event_id[:100], remedy="see `strongroom usage list`")
        return _event(row)

    def charged(self, event_id: str) -> int:
        """Microunits of an event with all its corrections."""
        with self.database.reading() as connection:
            return charged_in(connection, event_id)

    def _book(self, connection: Connection, said: Sequence[UsageEvent]) -> int:
        """The first record of an event stands; one that says something else later is counted and reported."""
        fresh: dict[str, UsageEvent] = {}
        conflicts = 0
        wanted = {one.id for one in said}
        known = {row.id: _event(row) for row in connection.execute(_KNOWN, {"wanted": wanted})} if wanted else {}
        for one in said:
            before = known.get(one.id) or fresh.get(one.id)
            if before is None:
                fresh[one.id] = one
            elif _content(before) != _content(one):
                conflicts += 1
        if fresh:
            connection.execute(insert(usage), [msgspec.structs.asdict(one) for one in fresh.values()])
        if conflicts:
            _logger.critical("usage ledger %s: %d events came again with other content", self.log.log_id, conflicts)
            connection.execute(update(position).values(conflicts=position.c.conflicts + conflicts))
        return len(fresh)


def charged_in(connection: Connection, event_id: str) -> int:
    """`UsageLedger.charged` within a transaction."""
    about = (usage.c.id == event_id) | (usage.c.corrects == event_id)
    return int(connection.execute(select(func.sum(usage.c.microunits)).where(about)).scalar() or 0)


def rebuilt(log: AuditLog) -> UsageLedger:
    """Make a ledger that is lost again, from the log. What stood there of records that were pruned since stays lost,
    and those are counted as missed. Raises `Conflict` where the ledger can be read.
    """
    try:
        UsageLedger(log).place()
    except Corrupt:
        log.files.begin_anew(USAGE_FILE)
        made = UsageLedger(log)
        made.catch_up()
        return made
    raise Conflict("the usage ledger is not lost", item=log.log_id, remedy="see `strongroom usage reconcile`")


def _speaks(payload: bytes) -> bool:
    """Whether a record may hold usage: most do not, and need not be read."""
    return _COST in payload or _CORRECT in payload


def _content(event: UsageEvent) -> UsageEvent:
    """An event without the record that it was read from: intent and outcome tell of the same hop."""
    return msgspec.structs.replace(event, seq=0, at=0.0, month="")


def _event(row: Any) -> UsageEvent:
    return UsageEvent(**row._mapping)


def _place(connection: Connection) -> Place:
    return Place(*connection.execute(_PLACE).one())
