"""The state of a log that an answer is true as of: its size, its root, and the signed checkpoint where there is one."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.engine import Connection

from audit.log import Head, read_head
from audit.proofs import Tree
from audit.tables import checkpoints, events
from tenancy.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class State:
    """`note` is the signed checkpoint of exactly this size, None where none was signed. `first` and `last` are the
    times of the first and of the last record (UTC epoch seconds), None in an empty log.
    """

    head: Head
    note: str | None
    first: float | None
    last: float | None


def state(connection: Connection, as_of: int | None) -> State:
    """The log as it is, or as it was with `as_of` records. Raises `InvalidInput` where it never had so many."""
    head = read_head(connection)
    if as_of is not None and as_of != head.size:
        if not 0 <= as_of < head.size:
            raise InvalidInput(f"the log has {head.size} records", item="as_of", remedy="name a size that it had")
        head = Head(as_of, Tree(connection).root(as_of))
    signed = select(checkpoints.c.note).where(checkpoints.c.size == head.size)
    edges = select(events.c.ts).where(events.c.seq.in_([0, head.size - 1])).order_by(events.c.seq)
    note = connection.execute(signed).scalar_one_or_none()
    times = connection.execute(edges).scalars().all() if head.size else []
    return State(head, note, times[0] if times else None, times[-1] if times else None)
