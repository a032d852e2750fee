"""The tables of an audit log of schema version 1."""

from __future__ import annotations

from sqlalchemy import Column, Float, Index, LargeBinary, MetaData, Table

from tenancy.types import Integer, Text, partial_index

metadata = MetaData()

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("payload", LargeBinary, nullable=False),
    Column("leaf", LargeBinary, nullable=False),
    Column("prev", LargeBinary, nullable=False, unique=True),
    Column("ts", Float, nullable=False, index=True),
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
Index("events_by_action", events.c.action, events.c.seq)
partial_index("events_by_outcome", events.c.outcome, events.c.seq, where=events.c.outcome.is_not(None))
partial_index("events_by_actor", events.c.actor, events.c.seq, where=events.c.actor.is_not(None))
Index("events_by_request", events.c.request, events.c.seq)
partial_index("events_by_root", events.c.root, events.c.seq, where=events.c.root.is_not(None))
partial_index("events_by_intent", events.c.intent, where=events.c.intent.is_not(None))
partial_index("events_by_cache_status", events.c.cache_status, events.c.seq, where=events.c.cache_status.is_not(None))
partial_index("events_by_cache_entry", events.c.cache_entry, events.c.seq, where=events.c.cache_entry.is_not(None))

event_documents = Table(
    "event_documents",
    metadata,
    Column("document", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("stage", Text, primary_key=True),
    sqlite_with_rowid=False,
)
Index("documents_by_seq", event_documents.c.seq)

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
