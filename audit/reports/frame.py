"""What all reports share: the part of a log that is read, rows in pages, and the form of the result."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.engine import Connection

from audit.cursors import cursor, position_of
from audit.filters import Filters, check_window
from audit.log import AuditLog, Head
from audit.matching import matching
from audit.query import require_limit
from audit.record import Event
from audit.reports.uses import Use, paired
from audit.spans import Bounds, bounds
from audit.state import State, state
from audit.tables import events
from tenancy.errors import InvalidInput

Row = dict[str, Any]

_LEAST: Final = 64
"""Records that are looked at in one step, however few rows are wanted."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the log that a report is about: a window of UTC epoch seconds (`until` is exclusive) of the log as it
    is, or as it was with `as_of` records. `limit` rows a page; `after` is the cursor of the page before.
    """

    since: float | None = None
    until: float | None = None
    as_of: int | None = None
    limit: int = 100
    after: str | None = None

    def __post_init__(self) -> None:
        check_window(self.since, self.until)
        require_limit(self.limit)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under the names of `columns`; values are text, numbers, booleans or None."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """`about` names what was asked for; `tables` stand in the order in which they are read. `cursor` goes on after the
    rows of the table `paged`, newest first; the other tables are about the whole window. All of it is true as of
    `head`, of which `note` is the signed checkpoint where there is one.
    """

    kind: str
    about: Mapping[str, str | int | None]
    tables: Mapping[str, Table]
    paged: str
    cursor: str | None
    since: float | None
    until: float | None
    head: Head
    note: str | None


class Reading:
    """One read transaction over the part of a log that was asked for. `whole` are the records that may lie in the
    window, `within` those of them that earlier pages have left.
    """

    def __init__(self, log: AuditLog, connection: Connection, asked: Asked, about: bytes) -> None:
        self._log = log
        self._asked = asked
        self._about = about
        size, position = asked.as_of, None
        if asked.after is not None:
            # Later pages are about the same state as the first: nobody is lost between two of them.
            position, size = position_of(log, about, asked.after, 2)
        self.connection = connection
        self.state: State = state(connection, size)
        self.size = self.state.head.size
        self.whole = bounds(connection, self.size, asked.since, asked.until)
        high = self.whole.high if position is None else min(position, self.whole.high)
        self.within = Bounds(min(self.whole.low, high), high)
        self.texts = log.subjects.reader()
        self._names: dict[str, str] = {}

    def inside(self, event: Event) -> bool:
        """Whether a record lies in the window."""
        since, until = self._asked.since, self._asked.until
        return (since is None or event.time >= since) and (until is None or event.time < until)

    def find(self, wanted: Sequence[Filters], within: Bounds, limit: int) -> list[int]:
        """Up to `limit` numbers of records of the window that meet any of `wanted`, newest first."""
        each = [
            matching(self.connection, self._windowed(filters), within, descending=True, limit=limit)
            for filters in wanted
        ]
        found: list[int] = []
        for seq in heapq.merge(*each, reverse=True):
            if not found or found[-1] != seq:
                found.append(seq)
        return found[:limit]

    def user(self, use: Use) -> str | None:
        """The name of who asked, None where it was erased. Opened once for each person."""
        actor = use.last.actor.ref or ""
        if actor not in self._names and (name := use.user(self.texts)) is not None:
            self._names[actor] = name
        return self._names.get(actor)

    def name_of(self, actor: str | None) -> str | None:
        """The name of somebody who was met before."""
        return self._names.get(actor or "")

    def users(self, seqs: Sequence[int]) -> dict[int, str | None]:
        """Who asked, by the number of a record of the request."""
        found = [(seq, use) for seq, use in paired(self.connection, seqs, self.size, _nowhere) if use is not None]
        self.texts.load({key for _, use in found for key in use.sealed_under()})
        return {seq: self.user(use) for seq, use in found}

    def uses(self, wanted: Sequence[Filters], listed: Callable[[Event], bool]) -> tuple[list[Use], str | None]:
        """A page of requests of which a record meets `wanted`, newest first, and the cursor behind it.

        Each is there once, at its outcome where `listed` says that this one meets `wanted` too.
        """
        limit, within, found = self._asked.limit, self.within, list[Use]()
        while True:
            step = max(_LEAST, 2 * (limit - len(found)) + 1)
            seqs = self.find(wanted, within, step)
            for seq, use in paired(
                self.connection, seqs, self.size, lambda event: self.inside(event) and listed(event)
            ):
                if use is not None:
                    found.append(use)
                if len(found) == limit:
                    more = seq != seqs[-1] or len(seqs) == step
                    return self._readable(found), cursor(self._log, self._about, seq, self.size) if more else None
            if len(seqs) < step:
                return self._readable(found), None
            within = Bounds(within.low, seqs[-1])

    def _readable(self, found: list[Use]) -> list[Use]:
        self.texts.load({key for use in found for key in use.sealed_under()})
        return found

    def report(
        self,
        kind: str,
        about: Mapping[str, str | int | None],
        tables: Mapping[str, Table],
        paged: str,
        after: str | None,
    ) -> Report:
        asked, then = self._asked, self.state
        return Report(
            kind=kind,
            about=about,
            tables=tables,
            paged=paged,
            cursor=after,
            since=asked.since if asked.since is not None else then.first,
            until=asked.until if asked.until is not None else then.last,
            head=then.head,
            note=then.note,
        )

    def counts(self, *conditions: ColumnElement[bool]) -> Table:
        """How many records of the window meet `conditions`, by action and outcome."""
        counted = (
            select(events.c.action, events.c.outcome, func.count().label("records"))
            .where(*conditions, *self.window(events.c.seq), events.c.outcome.is_not(None))
            .group_by(events.c.action, events.c.outcome)
            .order_by(events.c.action, events.c.outcome)
        )
        rows = self.connection.execute(counted).all()
        return Table(("action", "outcome", "records"), tuple(dict(row._mapping) for row in rows))

    def window(self, seq: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """Conditions on `events` and on a column of numbers that hold in the window alone."""
        found: list[ColumnElement[bool]] = [seq >= self.whole.low, seq < self.whole.high]
        if self._asked.since is not None:
            found.append(events.c.ts >= self._asked.since)
        if self._asked.until is not None:
            found.append(events.c.ts < self._asked.until)
        return found

    def _windowed(self, filters: Filters) -> Filters:
        return msgspec.structs.replace(filters, since=self._asked.since, until=self._asked.until)


def _nowhere(_: Event) -> bool:
    return False


@contextmanager
def reading(log: AuditLog, kind: str, about: str, asked: Asked) -> Iterator[Reading]:
    """Read `log`, with all that this process had submitted before. Raises `InvalidInput` for a cursor of another report
    and for a state that the log never had.
    """
    log.flush()
    bound = msgspec.json.encode([kind, about, asked.since, asked.until, asked.as_of])
    with log.database.reading() as connection:
        yield Reading(log, connection, asked, bound)


def require_name(value: str, item: str) -> str:
    """Raise `InvalidInput` for a name that no event can have."""
    try:
        Filters(document=value)
    except InvalidInput as error:
        raise InvalidInput(error.reason, item=item) from None
    return value
