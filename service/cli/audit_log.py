"""`strongroom audit key|rotate-key|checkpoint|prove`: what shows to somebody else that a log only ever grew."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, audited, note, opened, print_json, show_record, show_table
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.checkpoints import Checkpoint
    from audit.log import AuditLog
    from audit.trail import Trail

OneTenant = Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")]
Deleted = Annotated[str | None, Parameter(help="The id of a deleted tenant, whose log is retained.")]
System = Annotated[bool, Parameter(negative=(), help="The log of what belongs to no tenant.")]


def key(*, tenant: OneTenant = None, system: System = False, deleted: Deleted = None, common: Common = DEFAULT) -> None:
    """The public keys that a log's checkpoints and exports are checked with, the oldest first.

    Note them early and keep them elsewhere: a key out of an export proves nothing. A log without one gets its first.
    """
    from audit.signers import current
    from service.proofs import keys_of
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> list[dict[str, Any]]:
            trail.note(detail={"log": log.log_id})
            current(log)
            return keys_of(log)

        found = audited(control, principal, "audit.keys", work)
    show_table(common, found, ["id", "key", "created", "retired"])


def rotate_key(
    *, tenant: OneTenant = None, system: System = False, deleted: Deleted = None, common: Common = DEFAULT
) -> None:
    """Replace a log's signing key and destroy the private one.

    The change is a record of the log, in which the old key signs for the new one; the checkpoint behind it is signed by
    both. Whoever has the old public key can follow.
    """
    from audit.rotation import rotate
    from service.proofs import keys_of
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> list[dict[str, Any]]:
            trail.note(detail={"log": log.log_id})
            rotate(log, lambda detail: trail.aside("audit.key", detail))
            return keys_of(log)

        found = audited(control, principal, "audit.rotate_key", work)
    show_table(common, found, ["id", "key", "created", "retired"])


def checkpoint(
    file: Path | None = None,
    /,
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    common: Common = DEFAULT,
) -> None:
    """A signed checkpoint of a log as it is now: what makes visible to its owner that something before it is changed.

    Parameters
    ----------
    file: Path
        A new file to write it to; otherwise it is shown.
    """
    from service.proofs import checkpoint_of
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"log": log.log_id})
            found = checkpoint_of(log)
            trail.note(detail={"size": found["size"]})
            if file is not None:
                _write(file, found["checkpoint"])
            return found

        found = audited(control, principal, "audit.checkpoint", work)
    if common.as_json:
        print_json(found)
    elif file is None:
        print(found["checkpoint"], end="")
    else:
        note(f"checkpoint of {found['size']} records written to {file}")


def prove(
    *,
    tenant: OneTenant = None,
    system: System = False,
    deleted: Deleted = None,
    seq: int | None = None,
    consistency: str | None = None,
    size: int | None = None,
    common: Common = DEFAULT,
) -> int:
    """Prove that a record is in a log, or that the log only grew since an earlier state. Hashes are hexadecimal.

    Exit code 1 where the log does not begin with what the checkpoint OLD signed: records of before it were altered or
    taken away.

    Parameters
    ----------
    seq: int
        The record whose place is proved (RFC 9162, 2.1.3).
    consistency: str
        OLD: a file with a checkpoint that was kept, or a number of records (RFC 9162, 2.1.4).
    size: int
        In the log of so many records; otherwise in that of a checkpoint made now.
    """
    from service.proofs import inclusion_of
    from service.retention import one_log

    if (seq is None) == (consistency is None):
        raise InvalidInput("prove one thing", item="audit prove", remedy="give --seq N or --consistency OLD")
    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> dict[str, Any]:
            trail.note(detail={"log": log.log_id, "seq": seq} if consistency is None else {"log": log.log_id})
            if seq is not None:
                return inclusion_of(log, seq, size)
            return _consistency(log, str(consistency), size)

        found = audited(control, principal, "audit.prove", work)
    if common.as_json:
        print_json(found)
    else:
        show_record(common, found)
    return 1 if found.get("verdict") == "altered" else 0


def _consistency(log: AuditLog, old: str, new: int | None) -> dict[str, Any]:
    from audit.checkpoints import verify_note
    from audit.signers import public_keys
    from service.proofs import consistency_of, newest

    if old.isascii() and old.isdigit() and len(old) < 20:
        return consistency_of(log, int(old), new)
    kept = verify_note(read_checkpoint(Path(old)).note, *(one.vkey for one in public_keys(log)))
    ends = newest(log).size if new is None else new
    if kept.size > ends:
        reason = f"{kept.size} records were signed, and {ends} are there"
        return {"log": log.log_id, "old": kept.size, "new": ends, "verdict": "altered", "reason": reason}
    found = consistency_of(log, kept.size, new)
    if found["old_root"] != kept.root.hex():
        reason = f"the first {kept.size} records are not those that were signed"
        return found | {"signed_root": kept.root.hex(), "verdict": "altered", "reason": reason}
    return found | {"verdict": "grew"}


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file, whoever signed it. Raises `InvalidInput`."""
    from audit.checkpoints import parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput("the checkpoint cannot be read", item=str(path), remedy=type(error).__name__) from None
    return parse(text)


def _write(path: Path, text: str) -> None:
    """As a whole or not at all: half a checkpoint would prove nothing, and keep its place."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        with partial.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = f"the checkpoint cannot be written: {error.strerror}"
        raise InvalidInput(reason, item=str(path), remedy="name a new file, in a folder that is there") from None
