"""The Ed25519 keys (RFC 8032) that sign a log's checkpoints: one at a time, each replaced by the next.

The private key lies in the log's own database, sealed under a key that does not; it is destroyed when the key retires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import func, insert, select, update
from sqlalchemy.engine import Connection

from audit.notes import Signer, origin_of, vkey
from audit.tables import checkpoints, signers
from tenancy.errors import Corrupt
from tenancy.keys import decrypt, encrypt
from tenancy.names import enc

if TYPE_CHECKING:
    from audit.log import AuditLog

PURPOSE: Final = "audit/signer"
_REMEDY: Final = "compare with a copy of the log's public key that was kept elsewhere"
_LATER_S: Final = 1e-3

_LIVE: Final = select(signers.c.id, signers.c.public, signers.c.wrapped).where(signers.c.retired.is_(None))
_ALL: Final = select(signers.c.id, signers.c.public, signers.c.created, signers.c.retired).order_by(
    signers.c.created, signers.c.retired.is_(None)
)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key of a log, live or retired: `public` is raw (32 bytes), times are UTC epoch seconds."""

    id: str
    public: bytes
    vkey: str
    created: float
    retired: float | None


def current(log: AuditLog) -> Signer:
    """The key that signs now; the first one is made here. Raises `Corrupt` for one that cannot be what it was."""
    with log.database.reading() as connection:
        found = live_in(connection, log)
    if found is not None:
        return found
    with log.database.writing() as connection:
        return current_in(connection, log)


def current_in(connection: Connection, log: AuditLog) -> Signer:
    """As `current`, inside a write transaction of the log."""
    return live_in(connection, log) or add_in(connection, log)


def public_keys(log: AuditLog) -> tuple[PublicKey, ...]:
    """All keys that the log has had, the oldest first; none before the first checkpoint."""
    with log.database.reading() as connection:
        return public_keys_in(connection, log)


def public_keys_in(connection: Connection, log: AuditLog) -> tuple[PublicKey, ...]:
    name = origin_of(log.log_id)
    return tuple(
        PublicKey(row.id, row.public, vkey(name, row.public), row.created, row.retired)
        for row in connection.execute(_ALL)
    )


def add_in(connection: Connection, log: AuditLog) -> Signer:
    """Make a new key, inside a write transaction; whoever was live before is to be retired there too."""
    made = Signer(origin_of(log.log_id), Ed25519PrivateKey.generate())
    wrapped = encrypt(log.files.purpose(PURPOSE), made.private.private_bytes_raw(), enc(log.log_id, made.id))
    # They stand in the order of their making, also where a clock was set back in between.
    newest = connection.execute(select(func.max(signers.c.created))).scalar_one()
    created = log.now() if newest is None else max(log.now(), newest + _LATER_S)
    values = {"id": made.id, "public": made.public, "wrapped": wrapped, "created": created, "retired": None}
    connection.execute(insert(signers).values(values))
    return made


def retire_in(connection: Connection, log: AuditLog, signer: Signer) -> None:
    """Destroy the private key of `signer`, inside a write transaction."""
    gone = {"retired": log.now(), "wrapped": b""}
    connection.execute(update(signers).where(signers.c.id == signer.id).values(gone))


def live_in(connection: Connection, log: AuditLog) -> Signer | None:
    """The key that signs now; None for a log that was never signed. Raises `Corrupt` for one that is damaged."""
    rows = connection.execute(_LIVE).all()
    if not rows:
        _require_new(connection)
        return None
    if len(rows) > 1:
        raise Corrupt("the log has several signing keys", item=log.log_id, remedy=_REMEDY)
    (row,) = rows
    secret = decrypt(log.files.purpose(PURPOSE), row.wrapped, enc(log.log_id, row.id))
    found = Signer(origin_of(log.log_id), Ed25519PrivateKey.from_private_bytes(secret))
    if row.public != found.public or row.id != found.id:
        raise Corrupt("a signing key is not the one on record", item=log.log_id, remedy=_REMEDY)
    return found


def _require_new(connection: Connection) -> None:
    """A log that was signed before never gets a key as if it were its first."""
    earlier: Sequence[object] = connection.execute(select(checkpoints.c.size).limit(1)).all()
    if earlier or connection.execute(select(signers.c.id).limit(1)).all():
        raise Corrupt("the key that signs the log's checkpoints is missing", item="signers", remedy=_REMEDY)
