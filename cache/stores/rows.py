"""Entries as a question reads them out of one tenant's file, within a read transaction."""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from sqlalchemy import Integer, Text, bindparam, column, func, select, table
from sqlalchemy.engine import Connection

from cache.entry import Entry, Vector, decode_dependencies
from cache.stores import tables
from cache.stores.vectors import VectorIndex
from tenancy.errors import Corrupt
from tenancy.prepared import Prepared

# Vectors that are read at a time into an index that is behind.
_BATCH: Final = 4_096
# Searches until every row that was found has an entry; before the last one the index is compared with the database.
_TURNS: Final = 4
_NAMES = tuple(field.name for field in fields(Entry))
_COLUMNS = [tables.entries.c[name] for name in _NAMES]


_BY_EXACT: Final = Prepared(
    select(*_COLUMNS).where(
        tables.entries.c.namespace == bindparam("namespace"), tables.entries.c.exact == bindparam("exact")
    )
)
_BY_SEQS: Final = Prepared(
    select(tables.entries.c.seq, *_COLUMNS).where(
        tables.entries.c.seq.in_(select(func.json_each(bindparam("seqs")).table_valued("value").c.value)),
        tables.entries.c.expires > bindparam("now"),
    )
)
_VECTORS_ABOVE: Final = Prepared(
    select(tables.entries.c.seq, tables.entries.c.vector)
    .where(tables.entries.c.namespace == bindparam("namespace"), tables.entries.c.seq > bindparam("high"))
    .order_by(tables.entries.c.seq)
    .limit(_BATCH)
)
_CHECKSUM: Final = Prepared(select(tables.entries.c.checksum).where(tables.entries.c.id == bindparam("id")))
_NEWEST: Final = Prepared(
    select(column("seq", Integer)).select_from(table("sqlite_sequence")).where(column("name", Text) == "entries")
)
_LIVE: Final = Prepared(
    select(tables.entries.c.seq).where(
        tables.entries.c.namespace == bindparam("namespace"), tables.entries.c.expires > bindparam("now")
    )
)


def by_exact(connection: Connection, namespace: bytes, exact: bytes) -> Entry | None:
    """The entry under an exact key."""
    found = _BY_EXACT.rows(connection, {"namespace": namespace, "exact": exact})
    return _entry(found[0]) if found else None


def holds(connection: Connection, entry: Entry) -> bool:
    """Whether the entry of this id still has this checksum."""
    found = _CHECKSUM.rows(connection, {"id": entry.id})
    return bool(found) and hmac.compare_digest(found[0][0], entry.checksum)


def nearest(
    connection: Connection, index: VectorIndex, namespace: bytes, vector: Vector, k: int, now: float
) -> list[Entry]:
    """Entries of the `k` nearest rows of a namespace that have not expired at `now`, best first.

    Rows that the index knows and the file lacks, or holds as expired, leave the index, unless they are newer than the
    state that this transaction sees.
    """
    newer: set[int] = set()
    for turn in range(_TURNS):
        with index.lock:
            if turn == _TURNS - 1:
                live = _LIVE.rows(connection, {"namespace": namespace, "now": now})
                index.retain((seq for (seq,) in live), _newest(connection))
            _catch_up(connection, index, namespace)
            wanted = index.search(vector, k + len(newer))
        seqs = [seq for seq in wanted if seq not in newer][:k]
        rows = {row[0]: row for row in _BY_SEQS.rows(connection, {"seqs": json.dumps(seqs), "now": now})}
        if missing := set(seqs) - rows.keys():
            newest = _newest(connection)
            newer |= {seq for seq in missing if seq > newest}
            with index.lock:
                index.forget(missing - newer)
            continue
        entries = [_entry(rows[seq][1:]) for seq in seqs]
        return [entry for entry in entries if entry is not None]
    return []


def _newest(connection: Connection) -> int:
    """The largest number given so far, whatever became of its entry."""
    found = _NEWEST.rows(connection, {})
    return int(found[0][0]) if found else 0


def _catch_up(connection: Connection, index: VectorIndex, namespace: bytes) -> None:
    """Read in what was written since the index was last used."""
    while True:
        rows = _VECTORS_ABOVE.rows(connection, {"namespace": namespace, "high": index.high})
        index.append([(seq, vector) for seq, vector in rows])
        if len(rows) < _BATCH:
            return


def _entry(row: Sequence[object]) -> Entry | None:
    """The row as an entry; None where its dependencies cannot be read (it could not be served)."""
    values = dict(zip(_NAMES, row, strict=True))
    try:
        values["dependencies"] = decode_dependencies(str(values["dependencies"]))
    except Corrupt:
        return None
    return Entry(**values)  # type: ignore[arg-type]
