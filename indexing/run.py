"""One pass over files: what each of them gives, in order, which of them moved, and what is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from indexing import documents
from indexing.acl_rules import Decision
from indexing.ahead import in_order
from indexing.documents import Stored
from indexing.ingest import Pipeline, look_up, prepare
from indexing.opening import Opened, opened
from indexing.origin import Origin
from indexing.outcome import Outcome, failed
from indexing.parse import ParseFailure, ParseResult
from indexing.prepared import Draft, Known, Move, Prepared, Relist, Removal, Source, Wanted, version_of
from indexing.relisting import relist
from indexing.walk import UNCERTAIN_NAME, Found, Root, root_of, spelt
from tenancy.errors import Conflict, InvalidInput
from tenancy.tenant import ReadView, TenantHandle

Decide = Callable[[Found], Decision | None]
"""From a file to its access list; None keeps the list that is there, and lets nobody read a new document. Called in
several threads."""

_READS: Final = 3
"""How often a file is read that changes meanwhile."""

_AHEAD_FILES: Final = 64
_AHEAD_BYTES: Final = 64 * 2**20
"""What is read and parsed ahead of the embedding, which sets the pace."""

_GROUP_FILES: Final = 16
_GROUP_BYTES: Final = 64 * 2**10
"""Small files that are compared with the database in one transaction, and parsed one behind the other."""

_ALIKE: Final = 50
"""Documents of equal content that are looked at for one that moved."""


@dataclass(frozen=True, slots=True)
class PruneLimit:
    """How much one run may remove from a folder: at most `documents`. Where that is None, 20 documents or a fifth of
    all, whichever is more, and of fewer than 40 files half of them, or one; and nothing where the folder shows no file:
    it may not be mounted."""

    documents: int | None = None

    def refuses(self, gone: Collection[str], known: Collection[str], met: int) -> bool:
        """`gone` and `known` are files, one for each document; `met` files are there."""
        if self.documents is not None:
            return len(gone) > self.documents
        files, lost = len(set(known)), len(set(gone))
        many = len(gone) > max(20, len(known) // 5) or lost > max(1, min(20, files // 2), files // 5)
        return many or (lost > 0 and met == 0)


@dataclass(frozen=True, slots=True)
class _Group:
    """Files that are read together, and their bytes; of each at least its share of what may be ahead."""

    entries: list[Found]
    weight: int


_ParsedFiles = Mapping[tuple[str, bytes], list[ParseResult] | ParseFailure]


class Run:
    """One call of `ingest_paths`, and what it has seen so far. `threads` files are read and parsed at a time; all else
    is done by the one thread that takes the items."""

    def __init__(
        self,
        tenant: TenantHandle,
        pipeline: Pipeline,
        decide: Decide,
        paths: Sequence[Path],
        exclude: Collection[Path],
        threads: int,
    ) -> None:
        self._tenant = tenant
        self._pipeline = pipeline
        self._decide = decide
        self._threads = threads
        self._names: set[str] = set()
        self._files: set[Path] = {path.resolve() for path in exclude}
        roots = [root for path in paths if (root := root_of(path)).whole]
        self._roots = {root.origin: root.path for root in roots}
        self._present: dict[str, set[str]] = {root.origin: set() for root in roots}
        self._moved: set[str] = set()
        with tenant.reading() as view:
            self._may_move = documents.holds_under(view, self._roots)

    @property
    def names(self) -> Collection[str]:
        """The names of all items so far."""
        return self._names

    @property
    def whole(self) -> Collection[str]:
        """The origins of the folders of which everything was seen."""
        return self._present.keys()

    def items(self, entries: Iterator[Found]) -> Iterator[Prepared]:
        """What each file gives, in their order; lazily, but for what is read ahead."""
        read = in_order(
            _grouped(self._fresh(entries), min(_GROUP_FILES, max(1, _AHEAD_FILES // (2 * self._threads)))),
            self._read,
            lambda group: group.weight,
            threads=self._threads,
            most=_AHEAD_FILES,
            heaviest=_AHEAD_BYTES,
        )
        for group in read:
            for entry, found in group:
                yield from self._claimed(
                    entry, [failed(entry.name, found)] if isinstance(found, InvalidInput) else found
                )

    def gone(self, limit: PruneLimit, below: Collection[Path] | None = None) -> Iterator[Prepared]:
        """Documents of the folders that were read as a whole whose file was not there; with `below`, only of files at
        or below these places. A folder that loses more than `limit` is a failure, and loses nothing.
        """
        for origin, present in self._present.items():
            root = self._roots[origin]
            with self._tenant.reading() as view:
                files = {name: file or name for name, file in documents.names_under(view, origin)}
            gone = [
                name
                for name, file in files.items()
                if name not in self._names
                and name not in self._moved
                and file not in present
                and (below is None or _lay_below(root, file, below))
            ]
            met = len(present) if below is None else len(files)
            if limit.refuses([files[name] for name in gone], list(files.values()), met):
                # Met, so that the record keeps it.
                self._names.add(str(root))
                yield _too_many(str(root), origin, len(gone), len(files))
                continue
            for name in gone:
                with self._tenant.reading() as view:
                    stored = documents.find_stored(view, name)
                if stored is not None:
                    yield Removal(name, stored)

    def _fresh(self, entries: Iterator[Found]) -> Iterator[Found]:
        """Each file once, with a note that it is there."""
        for entry in entries:
            if entry.path in self._files:
                continue
            self._files.add(entry.path)
            origin = entry.root.origin
            if origin in self._present:
                self._present[origin].add(entry.name)
            if entry.error is not None and entry.path.is_dir():
                # What is below it cannot be told from what is gone.
                self._present.pop(origin, None)
            yield entry

    def _read(self, group: _Group) -> list[tuple[Found, list[Prepared] | InvalidInput]]:
        """Runs in several threads."""
        known = look_up(self._tenant, self._pipeline, [entry.name for entry in group.entries])
        with ExitStack() as stack:
            files = self._opened(stack, group.entries)
            parsed = self._parsed(known, files)
            return [(entry, self._read_one(entry, known, files.get(entry.path), parsed)) for entry in group.entries]

    def _opened(self, stack: ExitStack, entries: Sequence[Found]) -> dict[Path, Opened]:
        """Those of several files that can be opened, by path."""
        files: dict[Path, Opened] = {}
        for entry in entries if len(entries) > 1 else ():
            with suppress(InvalidInput):
                if entry.error is None:
                    files[entry.path] = stack.enter_context(opened(entry, self._pipeline.max_bytes))
        return files

    def _parsed(self, known: Known, files: Mapping[Path, Opened]) -> _ParsedFiles:
        """What those of `files` give that are short and not as they were, by their content; all parsed together."""
        wanted: list[tuple[str, bytes]] = []
        for file in files.values() if self._pipeline.parse_all is not None else ():
            stored = known.families[file.entry.name].get(file.entry.name)
            if isinstance(file.content, bytes) and (stored is None or stored.version != version_of(file.content)):
                wanted.append((file.entry.name, file.content))
        if self._pipeline.parse_all is None or len(wanted) < 2:
            return {}
        found = self._pipeline.parse_all(self._tenant, wanted)
        return {(name, content): result for (name, content), result in zip(wanted, found, strict=True)}

    def _read_one(
        self, entry: Found, known: Known, file: Opened | None, parsed: _ParsedFiles
    ) -> list[Prepared] | InvalidInput:
        if isinstance(entry.error, InvalidInput):
            return entry.error
        try:
            return self._prepared(entry, known, file, parsed)
        except InvalidInput as error:
            return error

    def _prepared(self, entry: Found, known: Known, first: Opened | None, parsed: _ParsedFiles) -> list[Prepared]:
        for attempt in range(_READS):
            ready = first if attempt == 0 else None
            with opened(entry, self._pipeline.max_bytes) if ready is None else nullcontext(ready) as file:
                # Of the file that is open, as it stays to the end: what comes into its place may be for others.
                decision = self._decide(entry)
                source = _source(entry, file.content, decision)
                error = None
                prepared: list[Prepared] = []
                try:
                    prepared = prepare(self._tenant, _steady(self._pipeline, file, parsed), source, known)
                except InvalidInput as raised:
                    error = raised
                if file.stayed():
                    if error is not None:
                        raise error
                    return prepared
        raise _changing(entry.name)

    def _relisted(self, entry: Found, failure: Outcome) -> Iterator[Prepared]:
        """The rules hold for documents that are there, also where their file cannot be read now."""
        try:
            decision = self._decide(entry)
        except InvalidInput:
            decision = None
        if decision is None:
            yield failure
            return
        first, *parts = relist(self._tenant, failure, decision.access)
        yield first
        for part in parts:
            if isinstance(part, Relist) and part.name not in self._names:
                self._names.add(part.name)
                yield part

    def _claimed(self, entry: Found, prepared: list[Prepared]) -> Iterator[Prepared]:
        """One run writes each name once: two files of one name would replace each other for ever."""
        for item in prepared:
            name = item.document if isinstance(item, Outcome) else item.name
            if name in self._names:
                error = InvalidInput(
                    "another file of this run has the same document name",
                    item=name,
                    remedy="rename one, or name the folder that holds both",
                )
                yield failed(name, error)
                continue
            self._names.add(name)
            if isinstance(item, Outcome) and item.error is not None:
                file = None if name == entry.name else entry.name
                failure = replace(item, origin=Origin(entry.root.origin, file))
                if file is not None:
                    yield failure
                else:
                    yield from self._relisted(entry, failure)
            elif isinstance(item, Relist) and item.failure is not None:
                origin = Origin(entry.root.origin, None if name == entry.name else entry.name)
                yield replace(item, failure=replace(item.failure, origin=origin))
            elif isinstance(item, Draft):
                yield self._moved_or_new(entry, item)
            else:
                yield item

    def _moved_or_new(self, entry: Found, draft: Draft) -> Draft | Move:
        if not entry.certain:
            warnings = (*draft.parsed.warnings, UNCERTAIN_NAME)
            draft = replace(draft, parsed=replace(draft.parsed, warnings=warnings))
        if draft.before is not None or not self._may_move:
            return draft
        with self._tenant.reading() as view:
            for name, origin in documents.alike(view, draft.version, _ALIKE):
                if not self._lies_no_more(name, origin, draft):
                    continue
                stored = documents.find_stored(view, name)
                if stored is not None and _is_as_stored(view, stored, draft):
                    self._moved.add(name)
                    return Move(self._listed(draft, origin, name), stored)
        return draft

    def _listed(self, draft: Draft, origin: Origin, name: str) -> Draft:
        """`draft` of the moved document `name`: what decided about its old place does not hold where nothing does."""
        if draft.wanted.allow is not None or draft.wanted.deny is not None:
            return draft
        root, file = Root(self._roots[origin.root], whole=True), origin.file or name
        try:
            before = self._decide(Found(root, root.path / file, file, root.path / file, file))
            kept = before is None
        except InvalidInput:
            kept = False
        return draft if kept else replace(draft, wanted=Wanted(frozenset(), frozenset()))

    def _lies_no_more(self, name: str, origin: Origin, draft: Draft) -> bool:
        """Whether the document `name` came from a folder of this run, and its file, or all of its file, is gone."""
        root = self._roots.get(origin.root)
        if root is None or origin.root not in self._present or name in self._names or name in self._moved:
            return False
        suffix = name.removeprefix(origin.file) if origin.file is not None else ""
        own = draft.name.removeprefix(draft.origin.file) if draft.origin.file is not None else ""
        file = origin.file or name
        return suffix == own and file not in self._present[origin.root] and not spelt(root, file)


def _steady(pipeline: Pipeline, file: Opened, parsed: _ParsedFiles) -> Pipeline:
    """`pipeline`, but what was parsed of a file that changed meanwhile is not even cut. `parsed` is at hand already."""

    def parse(tenant: TenantHandle, name: str, content: bytes | BinaryIO, media_type: str | None) -> list[ParseResult]:
        known = parsed.get((name, content)) if isinstance(content, bytes) else None
        if isinstance(known, ParseFailure):
            raise known
        results = pipeline.parse(tenant, name, content, media_type) if known is None else known
        if not file.stayed():
            raise _changing(name)
        return results

    return replace(pipeline, parse=parse)


def _changing(name: str) -> InvalidInput:
    return InvalidInput("the file changes while it is read", item=name, remedy="ingest it when it is complete")


def _grouped(entries: Iterator[Found], most: int) -> Iterator[_Group]:
    """Files in order; small ones that follow each other together, at most `most`."""
    group: list[Found] = []
    size = weight = 0
    for entry in entries:
        own = _size(entry)
        if group and (len(group) >= most or size + own > _GROUP_BYTES):
            yield _Group(group, weight)
            group, size, weight = [], 0, 0
        group.append(entry)
        size += own
        weight += max(own, _AHEAD_BYTES // _AHEAD_FILES)
    if group:
        yield _Group(group, weight)


def _size(entry: Found) -> int:
    try:
        return os.stat(entry.target).st_size if entry.error is None else 0
    except OSError:
        return 0


def _source(entry: Found, content: bytes | BinaryIO, decision: Decision | None) -> Source:
    origin = Origin(entry.root.origin)
    if decision is None:
        return Source(entry.name, content, origin=origin)
    return Source(entry.name, content, decision.access, title=decision.title, metadata=decision.metadata, origin=origin)


def _is_as_stored(view: ReadView, stored: Stored, draft: Draft) -> bool:
    """Whether nothing of `draft` has to be written but where it lies, and what it is called."""
    same = stored.media_type == draft.parsed.media_type
    return same and documents.is_cut_alike(view, stored.id, draft.chunks, draft.terms)


def _lay_below(root: Path, file: str, places: Collection[Path]) -> bool:
    path = root / file
    return any(path == place or place in path.parents for place in places)


def _too_many(folder: str, origin: str, gone: int, known: int) -> Outcome:
    error = Conflict(
        f"{gone} of its {known} documents have no file any more: nothing of it was removed",
        item=folder,
        remedy=f"see whether all of the folder is there; if it is, --prune-limit {gone} removes them",
    )
    return replace(failed(folder, error), origin=Origin(origin))
