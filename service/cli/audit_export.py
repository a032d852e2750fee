"""`strongroom audit export` and `audit verify FOLDER`: a log as evidence for somebody else, and checking it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from service.cli.console import DEFAULT, Common, audited, clean, opened, print_json, show_record
from tenancy.errors import InvalidInput

if TYPE_CHECKING:
    from audit.export import Exported
    from audit.trail import Trail


def export(
    folder: Path,
    /,
    *,
    tenant: Annotated[str | None, Parameter(name=["--tenant", "-t"], help="The tenant's name.")] = None,
    system: Annotated[bool, Parameter(negative=(), help="The log of what belongs to no tenant.")] = False,
    deleted: Annotated[str | None, Parameter(help="The id of a deleted tenant, whose log is retained.")] = None,
    as_of: Annotated[int | None, Parameter(help="Only the first so many records.")] = None,
    part_records: Annotated[int, Parameter(help="Records of one file.")] = 50_000,
    common: Common = DEFAULT,
) -> None:
    """Write a log's records, their hashes and a signed manifest to a folder; the next export adds what is new.

    Personal texts are in it as ciphertext alone. What was cut short is finished by the next run. Whoever has the folder
    checks it with `audit verify FOLDER --key VKEY`, or with a copy of `audit/offline` and Python alone; `audit key`
    shows the key. The export is an event of the log, which names the manifest.

    Parameters
    ----------
    folder: Path
        A new folder, or one with earlier exports of the same log.
    """
    from audit.export import export as export_log
    from service.retention import one_log

    with opened(common) as control:
        principal, log = one_log(control, tenant, system=system, deleted=deleted)

        def work(trail: Trail) -> Exported:
            trail.note(detail={"log": log.log_id})
            with _progress() as progress:
                made = export_log(log, folder, as_of=as_of, part_records=part_records, progress=progress)
            trail.note(
                detail={"number": made.number, "first": made.first, "size": made.size, "manifest": made.digest},
            )
            return made

        made = audited(control, principal, "audit.export", work)
    shown: dict[str, Any] = asdict(made) | {"folder": str(folder)}
    if not common.as_json:
        del shown["checkpoint"]
    show_record(common, shown)


def verify_folder(
    common: Common, folder: Path, keys: Sequence[str], checkpoints: Sequence[Path], after: Path | None
) -> int:
    """Check an export by itself; returns the exit code. Nothing of this deployment is read.

    Raises `InvalidInput` without a key, and for files that are not what they should be.
    """
    from audit.offline.check import check
    from audit.offline.command import lines

    if not keys:
        raise InvalidInput(
            "an export is checked with the log's public key",
            item="--key",
            remedy="give the one that was noted when the log was young, as `strongroom audit key` shows it",
        )
    try:
        notes = [path.read_text(encoding="utf-8") for path in checkpoints]
        found = check(folder, keys, notes, None if after is None else after.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "the export, a key or a checkpoint cannot be read", item=str(folder), remedy=str(error)
        ) from error
    if common.as_json:
        print_json(asdict(found))
    else:
        print(clean("\n".join(lines(found))))
    return 0 if found.finding is None else 1


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _size: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("records", total=None)
        yield lambda done, size: bar.update(task, completed=done, total=size)
