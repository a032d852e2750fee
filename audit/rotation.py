"""Changing the key that signs a log's checkpoints, on record in the log itself.

The record `audit.key` names both keys and carries the old one's signature over the new one. It is the last that the old
key vouches for: the checkpoint behind it is signed by both keys, each of which is enough to check it.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from audit import signers
from audit.checkpoints import sign_in
from audit.notes import Checkpoint
from audit.record import Actor, Detail, Draft, Request

if TYPE_CHECKING:
    from audit.log import AuditLog

ACTION: Final = "audit.key"


Announce = Callable[[Mapping[str, Detail]], Draft]
"""Makes the record of a change from its details."""


def rotate(log: AuditLog, announce: Announce | None = None) -> Checkpoint:
    """Replace the log's signing key, in one transaction; returns the checkpoint that both keys signed.

    The old private key is destroyed. Raises `Corrupt` where the log does not extend its last checkpoint.
    """
    with log.database.writing() as connection:
        old = signers.current_in(connection, log)
        signers.retire_in(connection, log, old)
        new = signers.add_in(connection, log)
        detail: dict[str, Detail] = {
            "old": old.id,
            "new": new.id,
            "old_key": _text(old.public),
            "new_key": _text(new.public),
            "signature": _text(old.private.sign(statement(log.log_id, old.public, new.public))),
        }
        log.append_in(connection, [(announce or _announce)(detail)])
        made = sign_in(connection, log, [old, new])
    log.database.truncate_wal()
    return made


def statement(log_id: str, old: bytes, new: bytes) -> bytes:
    """What the old key signs: four lines, the keys raw (32 bytes) and in base64."""
    return f"strongroom audit key\n{log_id}\n{_text(old)}\n{_text(new)}\n".encode()


def is_rotation(log_id: str, detail: Mapping[str, Detail]) -> bool:
    """Whether the detail of a record `audit.key` names two keys, the first of which signed for the second."""
    try:
        old, new, signature = (
            base64.b64decode(str(detail.get(name)), validate=True) for name in ("old_key", "new_key", "signature")
        )
        Ed25519PublicKey.from_public_bytes(old).verify(signature, statement(log_id, old, new))
    except (InvalidSignature, ValueError):
        return False
    return True


def _announce(detail: Mapping[str, Detail]) -> Draft:
    return Draft(
        action=ACTION,
        phase="outcome",
        outcome="allowed",
        actor=Actor(kind="operator"),
        request=Request(id=secrets.token_hex(16)),
        detail=dict(detail),
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
