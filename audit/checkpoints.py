"""Signed checkpoints of a log: what makes a change visible to whoever kept one.

A new checkpoint is signed only over a tree that extends the one signed last: a log that was cut or rewritten behind it
gets none. `audit.notes` has the format, for which the names below stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from sqlalchemy import cast, delete, func, insert, select
from sqlalchemy.engine import Connection

from audit import signers
from audit.notes import Checkpoint as Checkpoint
from audit.notes import Signer, make, origin_of
from audit.notes import parse as parse
from audit.notes import verify_note as verify_note
from audit.notes import vkey as vkey
from audit.proofs import Tree
from audit.tables import checkpoints, head
from tenancy.errors import Corrupt, InvalidInput
from tenancy.types import Integer

if TYPE_CHECKING:
    from audit.log import AuditLog

RECORDS: Final = 1_000
"""A writer leaves no more records than this without a checkpoint."""
DENSE_S: Final = 86_400.0
"""Seconds for which all checkpoints are kept; of those that are older, one an hour, which covers the others."""
_LOOK_BACK_S: Final = 7 * DENSE_S
_HOUR_S: Final = 3_600

_HEAD: Final = select(head.c.size, head.c.root)
_NEWEST: Final = select(checkpoints).order_by(checkpoints.c.size.desc()).limit(1)


def checkpoint(log: AuditLog, force: bool = False) -> Checkpoint | None:
    """Sign the log's state and keep the checkpoint; None where nothing was added since the last one.

    With `force` the last one is returned then, and an empty log has one too. Raises `Corrupt` for a log that does not
    extend what was signed before, and where its key or its last checkpoint is not what it was.
    """
    with log.database.reading() as connection:
        newest = _newest(connection)
        size = connection.execute(_HEAD).one().size
    if newest is None or newest.size != size:
        with log.database.writing() as connection:
            made = checkpoint_in(connection, log, empty=force)
        if made is not None:
            return made
        newest = latest(log)
    return newest if force else None


def checkpoint_in(connection: Connection, log: AuditLog, *, empty: bool = False) -> Checkpoint | None:
    """As `checkpoint`, inside a write transaction; of a log without records only with `empty`."""
    size = connection.execute(_HEAD).one().size
    newest = _newest(connection)
    if newest is None:
        if not size and not empty:
            return None
    elif newest.size == size:
        return None
    return sign_in(connection, log, [signers.current_in(connection, log)])


def sign_in(connection: Connection, log: AuditLog, keys: Sequence[Signer]) -> Checkpoint:
    """Sign the state that the write transaction sees with each of `keys`; the last of them is on record for it."""
    state = connection.execute(_HEAD).one()
    newest = _newest(connection)
    if newest is not None:
        _require_genuine(connection, log, newest)
        if not Tree(connection).extends(newest.size, newest.root, state.size, state.root):
            raise Corrupt(
                f"the log does not extend its checkpoint at {newest.size} records",
                item=log.log_id,
                remedy="`strongroom audit verify` says what was changed; keep the file as it is",
            )
    made = make(log.log_id, state.size, state.root, log.now(), keys)
    values = {"size": made.size, "root": made.root, "ts": made.time, "signer": keys[-1].id, "note": made.note}
    connection.execute(insert(checkpoints).values(values))
    if newest is not None and newest.time // _HOUR_S != made.time // _HOUR_S:
        _thin(connection, made.time - DENSE_S)
    return made


def latest(log: AuditLog) -> Checkpoint | None:
    """The checkpoint of the largest size, as it is stored. Raises `Corrupt` where it cannot be read."""
    with log.database.reading() as connection:
        return _newest(connection)


def at(log: AuditLog, size: int) -> Checkpoint | None:
    """The checkpoint that was signed when the log had `size` records, if there was one."""
    with log.database.reading() as connection:
        note = connection.execute(select(checkpoints.c.note).where(checkpoints.c.size == size)).scalar_one_or_none()
    return None if note is None else _read(note)


def _newest(connection: Connection) -> Checkpoint | None:
    row = connection.execute(_NEWEST).one_or_none()
    return None if row is None else _read(row.note)


def _thin(connection: Connection, until: float) -> None:
    """Of the checkpoints of the week before `until`, keep those of the largest size an hour."""
    within = (checkpoints.c.ts >= until - _LOOK_BACK_S) & (checkpoints.c.ts < until)
    kept = select(func.max(checkpoints.c.size)).where(within).group_by(cast(checkpoints.c.ts / _HOUR_S, Integer))
    connection.execute(delete(checkpoints).where(within, checkpoints.c.size.not_in(kept)))


def _require_genuine(connection: Connection, log: AuditLog, newest: Checkpoint) -> None:
    keys = signers.public_keys_in(connection, log)
    if newest.origin != origin_of(log.log_id) or not any(newest.signed_by(key.public) for key in keys):
        raise Corrupt(f"the checkpoint at {newest.size} records was not signed by this log", item=log.log_id)


def _read(note: str) -> Checkpoint:
    try:
        return parse(note)
    except InvalidInput:
        raise Corrupt("a stored checkpoint cannot be read", item="checkpoints") from None
