"""Tables of one audit log. `payload` is the record; every other column repeats it for queries, and is verified so."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Float, Index, LargeBinary, MetaData, Table

from audit.record import Event
from tenancy.types import Integer, Text, partial_index

AUDIT_FILE: Final = "audit.sqlite"

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False),
    Column("leaf", LargeBinary, nullable=False),
    # The leaf before: unique, so that two writers cannot both follow the same record.
    Column("prev", LargeBinary, nullable=False, unique=True),
    Column("ts", Float, nullable=False),
    Column("action", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("outcome", Text),
    Column("actor", Text),
    Column("request", Text, nullable=False),
    Column("root", Text),
    Column("intent", Integer),
    Column("cache_status", Text),
    Column("cache_entry", Text),
)
# Behind `seq` stands what else a query may ask, so that it is decided in the index: a record is read to be shown alone.
Index("events_by_action", events.c.action, events.c.seq, events.c.ts, events.c.outcome, events.c.phase)
partial_index(
    "events_by_outcome", events.c.outcome, events.c.seq, events.c.ts, events.c.action,
    where=events.c.outcome.is_not(None),
)  # fmt: skip
partial_index(
    "events_by_actor", events.c.actor, events.c.seq, events.c.ts, events.c.action, events.c.outcome, events.c.phase,
    events.c.cache_status, where=events.c.actor.is_not(None),
)  # fmt: skip
Index("events_by_request", events.c.request, events.c.seq)
partial_index("events_by_root", events.c.root, events.c.seq, where=events.c.root.is_not(None))
partial_index("events_by_intent", events.c.intent, where=events.c.intent.is_not(None))
partial_index(
    "events_by_cache_status", events.c.cache_status, events.c.seq, events.c.ts, events.c.action, events.c.outcome,
    where=events.c.cache_status.is_not(None),
)  # fmt: skip
partial_index("events_by_cache_entry", events.c.cache_entry, events.c.seq, where=events.c.cache_entry.is_not(None))

# `actor` and `outcome` are those of the record, so that "who saw it" is read from here alone.
event_documents = Table(
    "event_documents",
    metadata,
    Column("document", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("stage", Text, primary_key=True),
    Column("actor", Text),
    Column("outcome", Text),
    sqlite_with_rowid=False,
)
Index("documents_by_seq", event_documents.c.seq)

# The earliest and the latest time of a number of records, by their place; see `audit.spans`.
spans = Table(
    "spans",
    metadata,
    Column("at", Integer, primary_key=True, autoincrement=False),
    Column("first", Float, nullable=False),
    Column("last", Float, nullable=False),
)

# Intents that have no outcome yet, so that recovery need not read the log.
open_intents = Table(
    "open_intents",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("writer", Text, nullable=False),
)

head = Table(
    "head",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("size", Integer, nullable=False),
    Column("frontier", LargeBinary, nullable=False),
    Column("root", LargeBinary, nullable=False),
    Column("last_leaf", LargeBinary, nullable=False),
)

# The keys that sign this log's checkpoints, one at a time; `wrapped` is sealed under a key of the log.
signers = Table(
    "signers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("public", LargeBinary, nullable=False, unique=True),
    Column("wrapped", LargeBinary, nullable=False),
    Column("created", Float, nullable=False),
    Column("retired", Float),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("size", Integer, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
    Column("ts", Float, nullable=False, index=True),
    Column("signer", Text, nullable=False),
    Column("note", Text, nullable=False),
)

# Roots of perfect subtrees, so that a proof need not read every leaf. See `audit.merkle`.
nodes = Table(
    "nodes",
    metadata,
    Column("level", Integer, primary_key=True, autoincrement=False),
    Column("at", Integer, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
)

# Records `first` to `last` whose bytes were destroyed after their time; `seq` is the record that says so.
prunings = Table(
    "prunings",
    metadata,
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("last", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("ts", Float, nullable=False),
)


def columns(event: Event) -> dict[str, Any]:
    """The extracted columns of an event's row; verification compares them with the payload."""
    return {
        "seq": event.seq,
        "ts": event.time,
        "action": event.action,
        "phase": event.phase,
        "outcome": event.outcome,
        "actor": event.actor.ref,
        "request": event.request.id,
        "root": event.request.root,
        "intent": event.intent,
        "cache_status": event.cache.status if event.cache else None,
        "cache_entry": event.cache.entry if event.cache else None,
    }


def documents(event: Event) -> set[tuple[str, str, str | None, str | None]]:
    """The rows of an event in `event_documents`: document, stage, actor, outcome."""
    return {(resource.document, resource.stage, event.actor.ref, event.outcome) for resource in event.resources}
