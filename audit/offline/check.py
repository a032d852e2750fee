"""One pass over an export: every byte is hashed again, the tree built anew and compared with what was signed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .chain import Chain, size_of
from .manifest import Manifest, Part, Row, genesis
from .notes import BLOCK_LEVEL, Key, Note, Tree
from .ranges import Ranges
from .verdict import Bad, Report


def pruning(log: str, first: int, last: int, root: str) -> bytes:
    """What the log's key signs about a pruned range, whose leaves give `root` (hexadecimal)."""
    try:
        encoded = base64.b64encode(bytes.fromhex(root)).decode()
    except ValueError:
        encoded = ""
    return f"strongroom audit prune\n{log}\n{first}\n{last}\n{encoded}\n".encode()


def decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except ValueError:
        return b""


def check(folder: Path, vkeys: Sequence[str], checkpoints: Sequence[str] = (), after: bytes | None = None) -> Report:
    """Check the export in `folder` against verifier keys and the texts of old checkpoints, from its beginning or, with
    `after`, from where that manifest ends. Raises `ValueError` for keys and checkpoints that are none, and `OSError`.
    """
    keys, old = [Key.read(text) for text in vkeys], [Note.read(text) for text in checkpoints]
    begin = None if after is None else Manifest.read(after)
    if begin is not None and any(note.size < begin.size for note in old):
        raise ValueError("an old checkpoint lies before the manifest that the check begins after")
    report = Report()
    try:
        chain = Chain(folder, keys, begin)
        report.log, report.exports, report.first = chain.newest.log, len(chain.manifests), chain.first
        report.unnamed = chain.unnamed()
        _Records(chain, begin, report).run(old)
    except Bad as bad:
        report.finding = bad.finding
    return report


def _number_in(line: bytes) -> object:
    """The number of the record of a line, None where it cannot be read."""
    try:
        row = Row.read(line)
    except ValueError:
        return None
    return row.seq if row.payload is None else row.event().get("seq")


class _Records:
    """The records in order; the first thing that does not fit raises `Bad`."""

    def __init__(self, chain: Chain, after: Manifest | None, report: Report) -> None:
        self._chain = chain
        self._report = report
        self._parts = [part for manifest in chain.manifests for part in manifest.parts]
        self._tree = Tree() if after is None else Tree(after.size, after.nodes)
        self._prev = genesis(chain.newest.log) if after is None else after.last_leaf
        # So many records are those that somebody signed.
        self._sure = chain.first
        self._open: set[int] = set()
        self._prunings: list[tuple[int, int]] = []
        # (size, root, kept by somebody else), the smallest last.
        self._signed: list[tuple[int, bytes, bool]] = []

    def run(self, old: Sequence[Note]) -> None:
        newest = self._chain.newest
        for note in old:
            if note.origin != newest.origin or not note.signed_by(self._chain.keys.values()):
                raise Bad(
                    "checkpoint", None, f"the old checkpoint of {note.size} is of another log, or of no key of it"
                )
        roots = [(one.note.size, one.note.root, False) for one in self._chain.manifests]
        roots += [(note.size, note.root, True) for note in old]
        self._signed = sorted(roots, reverse=True)
        try:
            if (bad := self._compare()) is not None:
                raise bad
            for part in self._parts:
                self._part(part, tail="truncated" if part is self._parts[-1] else "missing")
            self._accounted()
        finally:
            self._report.size, self._report.root = self._tree.size, self._tree.root().hex()
            self._report.open = len(self._open)
        self._report.time = newest.note.time
        if self._signed:
            size = self._signed[-1][0]
            raise Bad("truncated", self._tree.size, f"a kept checkpoint says that there are {size} records", size - 1)

    def _compare(self) -> Bad | None:
        """Compare the root of the tree with every root that was signed for its size."""
        while self._signed and self._signed[-1][0] == self._tree.size:
            size, root, kept = self._signed.pop()
            if root != self._tree.root():
                whose = "a checkpoint that was kept" if kept else "the export's own checkpoint"
                return Bad("forked", self._sure, f"the first {size} records do not give the root of {whose}", size - 1)
            self._sure = size
            if kept and size:
                self._report.agreed.append(size)
        return None

    def _part(self, part: Part, tail: str) -> None:
        digest, blocks, pruned = hashlib.sha256(), iter(part.blocks), Ranges(part.pruned)
        doubt: Bad | None = None
        try:
            for line in self._lines(part):
                digest.update(line)
                if len(line) > part.size:
                    raise Bad("edited", self._tree.size, "the line is longer than its part was")
                if not line.endswith(b"\n"):
                    break
                if self._tree.size > part.last:
                    raise Bad("forked", self._tree.size, f"{part.file} has more records than were signed")
                self._row(line, pruned)
                block = self._tree.add(self._prev)
                if block is not None and block != next(blocks, None):
                    raise Bad("edited", self._since(part), "not the records that were signed", self._tree.size - 1)
                doubt = doubt or self._compare()
        except FileNotFoundError:
            raise Bad(tail, part.first, f"{part.file} is not there", part.last) from None
        except ValueError as error:
            raise Bad("edited", part.first, f"{part.file}: {error}", part.last) from None
        if self._tree.size <= part.last:
            raise Bad(tail, self._tree.size, f"{part.file} ends before this record", part.last)
        if digest.hexdigest() != part.sha256:
            raise Bad("edited", self._since(part), f"{part.file} is not as it was signed", part.last)
        if doubt is not None:
            # Only now: a part that somebody changed says more exactly where.
            raise doubt

    def _lines(self, part: Part) -> Iterator[bytes]:
        """The lines of a part; of one that is longer than the whole part was, no more than shows it."""
        path = self._chain.folder / part.file
        size_of(path)
        with path.open("rb") as file:
            while line := file.readline(part.size + 1):
                yield line

    def _since(self, part: Part) -> int:
        """The first record of the block that the last one is in, or of the part."""
        return max(part.first, (self._tree.size - 1) >> BLOCK_LEVEL << BLOCK_LEVEL)

    def _row(self, line: bytes, pruned: Ranges) -> None:
        """Check the line where record `tree.size` belongs, and leave its leaf in `prev`."""
        place = self._tree.size
        try:
            row = Row.read(line)
        except ValueError:
            raise Bad("edited", place, "the line cannot be read") from None
        event = row.event() if row.payload is not None else {"seq": row.seq, "log": self._report.log}
        own = event.get("seq")
        if type(own) is int and own != place:
            self._displaced(place, own, fits=row.fits())
        if not row.fits():
            raise Bad("edited", place, "the stored bytes do not give their hash")
        if own != place or row.seq != place or event.get("log") != self._report.log:
            raise Bad("edited", place, "the line is not the record of this number of this log")
        if row.prev != self._prev:
            raise Bad("forked", max(place - 1, 0), f"record {place} does not follow the one that stands before it")
        if row.payload is None:
            if pruned.past(place) == place:
                raise Bad("missing", place, "the record is without its bytes, and was not when it was signed")
            self._report.pruned += 1
        self._note(event)
        self._prev = row.leaf

    def _displaced(self, place: int, own: int, *, fits: bool) -> None:
        """Record `own` stands where `place` belongs."""
        there = self._elsewhere(place)
        if own < place and there and fits:
            raise Bad("forked", own, f"record {own} stands there twice")
        if there or (fits and own < place):
            raise Bad("reordered", place, f"record {own} stands where {place} belongs")
        if fits:
            raise Bad("missing", place, f"record {own} stands where {place} belongs, which is nowhere")

    def _elsewhere(self, wanted: int) -> bool:
        """Whether record `wanted` stands in some other place of the export."""
        for part in self._parts:
            with suppress(FileNotFoundError, ValueError):
                for line in self._lines(part):
                    if _number_in(line) == wanted:
                        return True
        return False

    def _note(self, event: dict[str, object]) -> None:
        """Remember what later records have to account for."""
        if event.get("phase") == "intent":
            self._open.add(self._tree.size)
        elif isinstance(intent := event.get("intent"), int):
            self._open.discard(intent)
        if event.get("action") == "audit.prune" and isinstance(detail := event.get("detail"), dict):
            first, last, key = detail.get("first"), detail.get("last"), self._chain.keys.get(str(detail.get("key")))
            if key is not None and type(first) is int and type(last) is int and last < self._tree.size:
                said = pruning(self._report.log, first, last, str(detail.get("root")))
                if key.signed(said, decoded(detail.get("signature"))):
                    self._prunings.append((first, last))

    def _accounted(self) -> None:
        """Each record without its bytes lies in a range that a record of the log says was pruned."""
        told = Ranges(self._prunings)
        for part in self._parts:
            for first, last in part.pruned:
                place = told.past(first)
                if place <= last:
                    raise Bad("missing", place, "the record was pruned, and no record of the log says so", last)
