"""The rows beside a record: times, its documents, and the intents that wait for their outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, insert
from sqlalchemy.engine import Connection

from audit import spans
from audit.record import Event
from audit.tables import documents, event_documents, open_intents
from tenancy.types import among

# Made once: for a single record, making the statements takes longer than running them.
_ADD_DOCUMENTS: Final = insert(event_documents)
_OPEN_INTENTS: Final = insert(open_intents)
_CLOSE_INTENTS: Final = delete(open_intents).where(among(open_intents.c.seq, "closed"))


def index(connection: Connection, stamped: Sequence[Event]) -> None:
    """Fill the tables beside the log: times, documents, and intents that wait for their outcome."""
    spans.extend(connection, stamped)
    touched = [
        {"document": document, "seq": event.seq, "stage": stage, "actor": actor, "outcome": outcome}
        for event in stamped
        for document, stage, actor, outcome in documents(event)
    ]
    if touched:
        connection.execute(_ADD_DOCUMENTS, sorted(touched, key=lambda row: (row["document"], row["seq"], row["stage"])))
    opened = [{"seq": event.seq, "writer": event.writer} for event in stamped if event.phase == "intent"]
    if opened:
        connection.execute(_OPEN_INTENTS, opened)
    closed = [event.intent for event in stamped if event.intent is not None]
    if closed:
        connection.execute(_CLOSE_INTENTS, {"closed": closed})
