"""A log as evidence for somebody else: its records in files, and signed manifests that say which.

A folder takes one export after the other; nothing in it is written twice. Each adds parts with the records since the
last one and one manifest, which names the manifest before it. A part is there when it is complete, and an export when
its manifest is, so one that was cut short is finished by the next. docs/audit-format.md has the bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Row, select

from audit import signers
from audit.checkpoints import at, checkpoint
from audit.log import AuditLog
from audit.merkle import HASH_BYTES, Frontier
from audit.notes import Checkpoint, Signer, make
from audit.offline import manifest as format_of
from audit.offline.ranges import Ranges
from audit.parts import FILE, VERIFY, Part, State, line_of, read_part
from audit.proofs import root
from audit.record import decode
from audit.tables import events, prunings
from tenancy.errors import Conflict, Corrupt, InvalidInput, Unavailable
from tenancy.keyring import sync_directory
from tenancy.locks import file_lock

PART_RECORDS: Final = 50_000
_PAGE: Final = 1_000
_ANEW: Final = "export into a new folder, and keep this one as it is"

Progress = Callable[[int, int], None]
"""Told after each part: how many records of the log are in the folder, of how many."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One export: records `first` to `size - 1` in `parts` files, of which `reused` were left by one that was cut
    short. `digest` is the SHA-256 of the manifest in hexadecimal. Nothing was new where `first` is `size`.
    """

    log: str
    folder: Path
    number: int
    first: int
    size: int
    parts: int
    reused: int
    pruned: int
    manifest: str
    digest: str
    checkpoint: str


def export(
    log: AuditLog,
    folder: Path,
    *,
    as_of: int | None = None,
    accounted: int | None = None,
    part_records: int = PART_RECORDS,
    progress: Progress | None = None,
) -> Exported:
    """Bring `folder` up to the log's state, or to that of `as_of` records; a new folder begins with the first record.

    What was pruned must be on record in the export, or, of one of several that follow one another, among the first
    `accounted` records.

    Every record is hashed on its way, and the tree must be the one that the log signed. Raises `Corrupt` where it is
    not, `Conflict` for a folder of other things, `InvalidInput` for an `as_of` that cannot be, `Unavailable`.
    """
    if not 1 <= part_records <= 10**9:
        raise InvalidInput("a part has at least one record", item="part_records")
    log.flush()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (
            file_lock(folder / ".lock", 0.0),
            _Export(log, folder, as_of, accounted, part_records, progress).clean() as run,
        ):
            return run()
    except OSError as error:
        raise Unavailable("the export cannot be written", item=str(folder), remedy=str(error.strerror)) from error


def is_own(log: AuditLog, found: format_of.Manifest) -> bool:
    """Whether a key of `log` signed this manifest."""
    keys = {key.id: key.public for key in signers.public_keys(log)}
    own = next((listed.key for listed in found.keys if listed.key.id == found.signer), None)
    signed = own is not None and keys.get(own.id) == own.public and own.signed(found.signed, found.signature)
    return signed and found.log == log.log_id


class _Export:
    def __init__(
        self,
        log: AuditLog,
        folder: Path,
        as_of: int | None,
        accounted: int | None,
        part_records: int,
        progress: Progress | None,
    ) -> None:
        self._log = log
        self._folder = folder
        self._as_of = as_of
        self._accounted = accounted
        self._part_records = part_records
        self._progress = progress
        self._reused = 0
        self._parts: list[Part] = []

    @contextmanager
    def clean(self) -> Iterator[Callable[[], Exported]]:
        """Gives the export to run. Parts that do not fit the log are removed with it; finished ones of one that was
        cut short stay.
        """
        try:
            yield self._run
        except (Corrupt, Conflict):
            for path in [*self._partial(), *(self._folder / part.name for part in self._parts)]:
                path.unlink(missing_ok=True)
            raise

    def _run(self) -> Exported:
        previous = self._newest()
        newest = checkpoint(self._log, force=True)
        if newest is None:
            raise Corrupt("the log has no checkpoint", item=self._log.log_id)
        first = 0 if previous is None else previous.size
        size = self._size(first, newest.size)
        if previous is not None and first == size:
            return self._done(previous.number, first, size, previous.digest, previous.checkpoint)
        state = State(Frontier(), format_of.genesis(self._log.log_id))
        if previous is not None:
            state = State(Frontier(first, previous.nodes), previous.last_leaf)
        self._extend(state, size)
        unaccounted = self._unaccounted(size)
        if unaccounted is not None and self._as_of is None:
            # Pruned while it was exported: the record that says so is further on.
            newest = checkpoint(self._log, force=True) or newest
            size = newest.size
            self._extend(state, size)
            unaccounted = self._unaccounted(size)
        if unaccounted is not None:
            raise Conflict(
                f"record {unaccounted} was pruned later than record {size - 1}",
                item="as_of",
                remedy="export the log as it is now, without an earlier size",
            )
        signed = self._checkpoint(size, state.tree.root(), newest)
        number = 1 if previous is None else previous.number + 1
        data = self._manifest(number, previous, state, signed)
        self._sweep(first)
        sync_directory(self._folder)
        self._place(format_of.name_of(number), data)
        return self._done(number, first, size, hashlib.sha256(data).hexdigest(), signed.note)

    def _extend(self, state: State, size: int) -> None:
        while state.tree.size < size:
            part = self._left(state, size) or self._write(state, min(size, state.tree.size + self._part_records))
            self._parts.append(part)
            if self._progress is not None:
                self._progress(state.tree.size, size)

    def _partial(self) -> list[Path]:
        """Unfinished files of exports."""
        return [*self._folder.glob(".records-*.partial"), *self._folder.glob(".manifest-*.partial")]

    def _done(self, number: int, first: int, size: int, digest: str, note: str) -> Exported:
        pruned = sum(last - begin + 1 for part in self._parts for begin, last in part.pruned)
        return Exported(
            log=self._log.log_id,
            folder=self._folder,
            number=number,
            first=first,
            size=size,
            parts=len(self._parts),
            reused=self._reused,
            pruned=pruned,
            manifest=format_of.name_of(number),
            digest=digest,
            checkpoint=note,
        )

    def _newest(self) -> format_of.Manifest | None:
        """The manifest to go on from, which must be this log's own."""
        names = sorted(path.name for path in self._folder.iterdir() if not path.name.startswith("."))
        manifests = [name for name in names if format_of.NAME.fullmatch(name)]
        if any(name not in manifests and not FILE.fullmatch(name) for name in names):
            raise Conflict("the folder has other things in it", item=str(self._folder), remedy="name one of its own")
        if not manifests:
            return None
        try:
            found = format_of.Manifest.read((self._folder / manifests[-1]).read_bytes())
        except ValueError:
            raise Corrupt("the newest manifest cannot be read", item=manifests[-1], remedy=_ANEW) from None
        if found.log != self._log.log_id:
            raise Conflict("the folder has the export of another log", item=str(self._folder))
        if not is_own(self._log, found) or format_of.name_of(found.number) != manifests[-1]:
            raise Corrupt("the newest manifest is not as this log signed it", item=manifests[-1], remedy=_ANEW)
        return found

    def _size(self, first: int, newest: int) -> int:
        if self._as_of is None:
            if newest < first:
                raise Corrupt(f"the log has {newest} records, and its last export {first}", remedy=VERIFY)
            return newest
        if not first <= self._as_of <= newest:
            raise InvalidInput(
                f"the folder has {first} records, and the log {newest}",
                item="as_of",
                remedy="name a size from the one to the other",
            )
        return self._as_of

    def _sweep(self, first: int) -> None:
        """Remove what an export that was cut short left and this one does not use."""
        used = {part.name for part in self._parts}
        for path in self._partial():
            path.unlink()
        for path in self._folder.iterdir():
            found = FILE.fullmatch(path.name)
            if found and int(found[1]) >= first and path.name not in used:
                path.unlink()

    def _left(self, state: State, size: int) -> Part | None:
        """The finished part that begins here, of an export that was cut short, if it is what would be written."""
        for path in sorted(self._folder.glob(f"records-{state.tree.size:012}-*.ndjson")):
            found = FILE.fullmatch(path.name)
            last = int(found[2]) if found else size
            part, reached = Part(state.tree.size), deepcopy(state)
            if last < size and read_part(path, part, reached) and part.last == last and self._agrees(part, reached):
                state.tree, state.prev = reached.tree, reached.prev
                self._reused += 1
                return part
            path.unlink()
        return None

    def _agrees(self, part: Part, reached: State) -> bool:
        """Whether the log has this leaf at the part's end, and has pruned nothing of it since."""
        columns = events.c
        gone = select(columns.seq).where(columns.seq.between(part.first, part.last), columns.payload == b"")
        with self._log.database.reading() as connection:
            leaf = connection.execute(select(columns.leaf).where(columns.seq == part.last)).scalar_one_or_none()
            pruned = set(connection.execute(gone).scalars())
        told = {seq for first, last in part.pruned for seq in range(first, last + 1)}
        return leaf == reached.prev and pruned == told

    def _write(self, state: State, until: int) -> Part:
        part = Part(state.tree.size)
        partial = self._folder / f".records-{part.first:012}.partial"
        with partial.open("wb") as file:
            for row in self._rows(part.first, until):
                line = line_of(row, state)
                file.write(line)
                part.take(state, row.leaf, line, pruned=not row.payload)
            file.flush()
            os.fsync(file.fileno())
        if part.last != until - 1:
            raise Corrupt(f"the log ends before record {until - 1}", item=self._log.log_id, remedy=VERIFY)
        partial.rename(self._folder / part.name)
        return part

    def _rows(self, first: int, until: int) -> Iterator[Row[*tuple[Any, ...]]]:
        """Page by page in transactions of their own: what was written once does not change, and nobody waits."""
        columns = events.c
        for at_seq in range(first, until, _PAGE):
            page = select(columns.seq, columns.payload, columns.leaf, columns.prev).where(
                columns.seq >= at_seq, columns.seq < min(at_seq + _PAGE, until)
            )
            with self._log.database.reading() as connection:
                rows = connection.execute(page.order_by(columns.seq)).all()
            yield from rows

    def _checkpoint(self, size: int, found: bytes, newest: Checkpoint) -> Checkpoint:
        """The signed checkpoint of `size`, whose root the exported records must give."""
        signed = newest if newest.size == size else at(self._log, size)
        expected = root(self._log, size) if signed is None else signed.root
        if found != expected:
            raise Corrupt(f"the first {size} records do not give their root", item=self._log.log_id, remedy=VERIFY)
        return signed or make(self._log.log_id, size, found, self._log.now(), [signers.current(self._log)])

    def _unaccounted(self, size: int) -> int | None:
        """The first record without its bytes of which no record of the export, or of those that follow, says so."""
        ranges = [(first, last) for part in self._parts for first, last in part.pruned]
        if not ranges:
            return None
        until = size if self._accounted is None else max(size, self._accounted)
        with self._log.database.reading() as connection:
            rows = connection.execute(select(prunings.c.first, prunings.c.last).where(prunings.c.seq < until)).all()
        told = Ranges((row.first, row.last) for row in rows)
        for first, last in ranges:
            place = told.past(first)
            if place <= last:
                return place
        return None

    def _manifest(self, number: int, previous: format_of.Manifest | None, state: State, signed: Checkpoint) -> bytes:
        signer = signers.current(self._log)
        nodes = state.tree.to_bytes()
        first = self._parts[0].first if self._parts else 0
        body: dict[str, Any] = {
            "format": format_of.FORMAT,
            "version": format_of.VERSION,
            "log": self._log.log_id,
            "number": number,
            "made": _iso(self._log.now()),
            "first": first,
            "size": state.tree.size,
            "records": state.tree.size - first,
            "parts": [part.described() for part in self._parts],
            "frontier": [nodes[start : start + HASH_BYTES].hex() for start in range(0, len(nodes), HASH_BYTES)],
            "last_leaf": state.prev.hex(),
            "checkpoint": signed.note,
            "keys": self._keys(),
            "previous": None
            if previous is None
            else {
                "number": previous.number,
                "size": previous.size,
                "sha256": previous.digest,
                "signature": base64.b64encode(previous.signature).decode(),
            },
            "signer": signer.id,
        }
        return _signed(body, signer)

    def _keys(self) -> list[dict[str, Any]]:
        """All keys of the log, the oldest first, with the signature of each one's predecessor."""
        rotations = select(events.c.payload).where(events.c.action == "audit.key").order_by(events.c.seq)
        with self._log.database.reading() as connection:
            told = [decode(payload).detail for payload in connection.execute(rotations).scalars() if payload]
        successors = {detail.get("new"): detail for detail in told}
        return [
            {
                "vkey": key.vkey,
                "created": _iso(key.created),
                "retired": None if key.retired is None else _iso(key.retired),
                "signed_by": successors.get(key.id, {}).get("old"),
                "signature": successors.get(key.id, {}).get("signature"),
            }
            for key in signers.public_keys(self._log)
        ]

    def _place(self, name: str, data: bytes) -> None:
        partial = self._folder / f".{name}.partial"
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(self._folder / name)
        sync_directory(self._folder)


def _signed(body: dict[str, Any], signer: Signer) -> bytes:
    """A manifest's bytes: canonical JSON, signed without its signature and behind a line that says what it is."""
    signature = signer.private.sign(format_of.SIGNED + msgspec.json.encode(body, order="sorted"))
    whole = {**body, "signature": base64.b64encode(signature).decode()}
    return msgspec.json.encode(whole, order="sorted") + b"\n"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
