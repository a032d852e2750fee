"""Legal holds: while one is active, nothing that it covers is erased or pruned. The place for the reason is here alone;
events name a hold by its id.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Row, insert, select, update
from sqlalchemy.engine import Connection

from audit.subject_tables import holds
from tenancy.errors import Conflict, InvalidInput, NotFound
from tenancy.names import nfc_name
from tenancy.storage import AnyDatabase


@dataclass(frozen=True, slots=True)
class Hold:
    """On one `subject` (a reference), or on the records of a window: `since` inclusive, `until` exclusive, each open
    where None. All times in UTC epoch seconds; `released` is None while the hold is active.
    """

    id: str
    kind: Literal["subject", "window"]
    subject: str | None
    since: float | None
    until: float | None
    reason: str
    placed: float
    placed_by: str
    released: float | None
    released_by: str | None

    def covers(self, actor: str | None, ts: float) -> bool:
        """Whether the hold keeps a record of `actor` of the time `ts`."""
        if self.kind == "subject":
            return actor == self.subject
        return (self.since is None or ts >= self.since) and (self.until is None or ts < self.until)


class Held(Conflict):
    """A legal hold keeps what was to be destroyed."""

    code = "legal-hold"

    def __init__(self, found: tuple[Hold, ...], *, item: str | None = None) -> None:
        named = ", ".join(hold.id for hold in found)
        super().__init__(
            f"a legal hold keeps it: {named}",
            item=item,
            remedy="`strongroom audit holds` shows it, `strongroom audit release` ends it",
        )
        self.holds = found


class Holds:
    """The holds of one audit log."""

    def __init__(self, database: AnyDatabase, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    def on_subject(self, subject: str, *, reason: str, by: str) -> Hold:
        """Keep every record of `subject`, and the key of their texts."""
        return self._place(kind="subject", subject=subject, reason=reason, placed_by=by)

    def on_window(self, since: float | None, until: float | None, *, reason: str, by: str) -> Hold:
        """Keep the records of a time, of everybody. Raises `InvalidInput` for a window that ends before it begins."""
        if since is not None and until is not None and since >= until:
            raise InvalidInput("the window ends before it begins", item="until")
        return self._place(kind="window", since=since, until=until, reason=reason, placed_by=by)

    def release(self, hold_id: str, *, by: str) -> Hold:
        """End a hold. Raises `NotFound`, `Conflict` where it has ended already."""
        with self._database.writing() as connection:
            row = connection.execute(select(holds).where(holds.c.id == hold_id)).one_or_none()
            if row is None:
                remedy = "`strongroom audit holds` shows those of a log"
                raise NotFound("no such hold in this log", item=hold_id[:64], remedy=remedy)
            if row.released is not None:
                raise Conflict("the hold has ended already", item=hold_id)
            ended = {"released": self._clock(), "released_by": by}
            connection.execute(update(holds).where(holds.c.id == hold_id).values(ended))
        return _hold(row, **ended)

    def all(self) -> tuple[Hold, ...]:
        """All holds that ever were, in the order in which they were placed."""
        with self._database.reading() as connection:
            rows = connection.execute(select(holds).order_by(holds.c.placed, holds.c.id)).all()
        return tuple(_hold(row) for row in rows)

    def active(self) -> tuple[Hold, ...]:
        with self._database.reading() as connection:
            return active(connection)

    def _place(self, **values: Any) -> Hold:
        reason = nfc_name(values["reason"], "reason")
        row = {
            "id": f"h_{secrets.token_hex(8)}", "subject": None, "since": None, "until": None,
            "placed": self._clock(), "released": None, "released_by": None, **values, "reason": reason,
        }  # fmt: skip
        with self._database.writing() as connection:
            connection.execute(insert(holds).values(row))
        return Hold(**row)


def active(connection: Connection) -> tuple[Hold, ...]:
    """The active holds, within a transaction on the subjects' database."""
    rows = connection.execute(select(holds).where(holds.c.released.is_(None)).order_by(holds.c.placed, holds.c.id))
    return tuple(_hold(row) for row in rows)


def _hold(row: Row[Any], **changed: Any) -> Hold:
    return Hold(**{**row._mapping, **changed})
