"""Which records of a log meet filters: always by the index of one filter, the one that is expected to leave least.

SQLite has no statistics of a log and would have to guess. So the order is fixed here, and what the other filters ask is
decided from columns that stand in the same index; a record's bytes are read to be shown, and for nothing else.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.engine import Connection

from audit.filters import Filters
from audit.spans import Bounds
from audit.tables import event_documents, events

# From those that leave few records to those that leave many.
_NARROW_FIRST: Final = (
    "request", "cache_entry", "root", "document", "actor", "outcome", "cache_status", "action", "phase",
)  # fmt: skip
_BESIDE_DOCUMENTS: Final = frozenset({"actor", "outcome"})
_COMMON_OUTCOME: Final = "allowed"


def matching(
    connection: Connection, filters: Filters, within: Bounds, *, descending: bool, limit: int
) -> Sequence[int]:
    """Up to `limit` sequence numbers of `within`, in the order asked for."""
    given = {name: value for name in _NARROW_FIRST if (value := getattr(filters, name)) is not None}
    names = list(given)
    if given.get("outcome") == _COMMON_OUTCOME and "action" in given:
        # Most outcomes are this one: it narrows least.
        names.sort(key=lambda name: name == "outcome")
    leading = names[0] if names else None
    touching = leading == "document"
    seq = event_documents.c.seq if touching else events.c.seq
    conditions: list[ColumnElement[bool]] = [seq >= within.low, seq < within.high]
    if filters.since is not None:
        conditions.append(events.c.ts >= filters.since)
    if filters.until is not None:
        conditions.append(events.c.ts < filters.until)
    conditions += _of_documents(given) if touching else _of_events(given, leading)
    statement = select(seq).where(*conditions)
    if touching:
        if set(given) - {"document"} - _BESIDE_DOCUMENTS or filters.since is not None or filters.until is not None:
            statement = statement.join_from(event_documents, events, events.c.seq == seq)
        # One record may name a document at several stages.
        statement = statement.group_by(seq)
    found: Sequence[int] = connection.execute(
        statement.order_by(seq.desc() if descending else seq).limit(limit)
    ).scalars().all()  # fmt: skip
    return found


def _of_events(given: Mapping[str, Any], leading: str | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    for name, value in given.items():
        if name == "document":
            touched = select(event_documents.c.seq).where(
                event_documents.c.document == _named(value), event_documents.c.seq == events.c.seq
            )
            conditions.append(touched.exists())
        elif name == leading:
            conditions.append(events.c[name] == value)
        else:
            conditions.append(_beside(events.c[name], value))
    return conditions


def _of_documents(given: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    conditions = [event_documents.c.document == _named(given["document"])]
    for name in set(given) - {"document"}:
        table = event_documents if name in _BESIDE_DOCUMENTS else events
        conditions.append(_beside(table.c[name], given[name]))
    return conditions


def _beside(column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    """Equal, in a form that no index of the column itself answers."""
    return column.concat("") == value


def _named(document: str) -> str:
    return unicodedata.normalize("NFC", document)
