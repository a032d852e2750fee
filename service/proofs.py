"""What the routes and the commands about checkpoints and proofs share: answers as plain values. Hashes are hexadecimal
there; a checkpoint is its signed note.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from audit import proofs
from audit.checkpoints import Checkpoint, at, checkpoint
from audit.log import AuditLog
from audit.signers import PublicKey, public_keys
from tenancy.errors import Corrupt

INCLUSION: Final = frozenset({"seq", "size"})
CONSISTENCY: Final = frozenset({"old", "new"})


def checkpoint_of(log: AuditLog) -> dict[str, Any]:
    """A signed checkpoint of the log as it is now, and all its public keys."""
    found = newest(log)
    return {
        "checkpoint": found.note,
        "origin": found.origin,
        "size": found.size,
        "root": found.root.hex(),
        "time": _iso(found.time),
        "keys": keys_of(log),
    }


def keys_of(log: AuditLog) -> list[dict[str, Any]]:
    """The log's public keys, the oldest first; `key` is a C2SP verifier key."""
    return [_key(key) for key in public_keys(log)]


def inclusion_of(log: AuditLog, seq: int, size: int | None) -> dict[str, Any]:
    """The proof that record `seq` is in the tree of `size` records, by default that of a checkpoint made now.

    Raises `InvalidInput` where it is not.
    """
    now = newest(log) if size is None else None
    size = now.size if now else int(size or 0)
    path = proofs.inclusion(log, seq, size)
    signed = now or at(log, size)
    leaf, root = proofs.leaf(log, seq), signed.root if signed else proofs.root(log, size)
    if not proofs.verify_inclusion(leaf, seq, size, path, root):
        raise _damaged(log)
    return {
        "log": log.log_id,
        "seq": seq,
        "size": size,
        "leaf": leaf.hex(),
        "root": root.hex(),
        "path": [node.hex() for node in path],
        "checkpoint": None if signed is None else signed.note,
    }


def consistency_of(log: AuditLog, old: int, new: int | None) -> dict[str, Any]:
    """The proof that the tree of `new` records, by default that of a checkpoint made now, extends that of `old`.

    Raises `InvalidInput` for sizes that the log does not have.
    """
    now = newest(log) if new is None else None
    new = now.size if now else int(new or 0)
    path = proofs.consistency(log, old, new)
    signed = now or at(log, new)
    before, after = proofs.root(log, old), signed.root if signed else proofs.root(log, new)
    if not proofs.verify_consistency(old, new, before, after, path):
        raise _damaged(log)
    return {
        "log": log.log_id,
        "old": old,
        "new": new,
        "old_root": before.hex(),
        "new_root": after.hex(),
        "path": [node.hex() for node in path],
        "checkpoint": None if signed is None else signed.note,
    }


def newest(log: AuditLog) -> Checkpoint:
    """A checkpoint of the log as it is now."""
    found = checkpoint(log, force=True)
    if found is None:
        raise Corrupt("the log has no checkpoint", item=log.log_id)
    return found


def _damaged(log: AuditLog) -> Corrupt:
    return Corrupt(
        "the stored tree does not give what was signed",
        item=log.log_id,
        remedy="`strongroom audit verify` says what was changed",
    )


def _key(key: PublicKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "key": key.vkey,
        "created": _iso(key.created),
        "retired": None if key.retired is None else _iso(key.retired),
    }


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
