"""An export of a tenant's audit log through HTTP: so many records at a time, each with its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from audit.export import export, is_own
from audit.log import AuditLog
from audit.offline.manifest import Manifest, name_of
from service.bodies import Body
from service.control import Control
from tenancy.errors import InvalidInput, Unavailable
from tenancy.staging import staging

MAX_RECORDS: Final = 10_000
"""Of one response: some 13 MB, and about a second."""
_ANYWHERE: Final = 1 << 62


class ExportRequest(Body, frozen=True):
    """What of the log is wanted: what follows a manifest, up to a size."""

    after: Annotated[str, Meta(max_length=900_000, description="The text of the newest manifest so far.")] | None = None
    as_of: Annotated[int, Meta(ge=0, le=1 << 53, description="Not beyond the first so many records.")] | None = None


class ExportFile(msgspec.Struct, frozen=True):
    """A file to be kept under this name, byte for byte (UTF-8)."""

    file: str
    text: str


class ExportResponse(msgspec.Struct, frozen=True):
    """Records `first` to `size - 1` of a log that has `log_size` now. Kept in one folder, the files of all responses
    are an export that `strongroom audit verify FOLDER` checks, once they are all there. Nothing was new where there are
    no files.
    """

    first: int
    size: int
    log_size: int
    files: list[ExportFile]


def export_next(control: Control, log: AuditLog, wanted: ExportRequest) -> ExportResponse:
    """The export that follows `wanted.after`, of at most `MAX_RECORDS` records. Raises `InvalidInput` for a manifest
    that this log did not sign.
    """
    earlier = None if wanted.after is None else _manifest(log, wanted.after)
    log.flush()
    first, newest = 0 if earlier is None else earlier.size, log.head().size
    ends = newest if wanted.as_of is None else wanted.as_of
    # What was pruned is on record somewhere up to the end, which is later exports' where this one does not reach it.
    until, accounted = min(ends, first + MAX_RECORDS), _ANYWHERE if wanted.as_of is None else wanted.as_of
    with staging(control.tenants.data_dir) as folder:
        if earlier is not None:
            _placed(folder / name_of(earlier.number), wanted.after or "")
        whole = wanted.as_of is None and until == newest
        made = export(
            log,
            folder,
            as_of=None if whole else until,
            accounted=None if whole else accounted,
            part_records=MAX_RECORDS,
        )
        files = [
            ExportFile(path.name, path.read_bytes().decode())
            for path in sorted(folder.iterdir())
            if not path.name.startswith(".") and (earlier is None or path.name != name_of(earlier.number))
        ]
    return ExportResponse(made.first, made.size, max(newest, made.size), files)


def _placed(path: Path, text: str) -> None:
    try:
        path.write_bytes(text.encode())
    except OSError as error:
        raise Unavailable("the export cannot be written", item=path.name, remedy=str(error.strerror)) from error


def _manifest(log: AuditLog, text: str) -> Manifest:
    try:
        found = Manifest.read(text.encode())
    except ValueError:
        found = None
    if found is None or not is_own(log, found):
        raise InvalidInput("not a manifest of this log", item="after", remedy="send the newest one's text, unaltered")
    return found
