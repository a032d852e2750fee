"""Many files into one tenant: read and parse, embed, write, each overlapping the next.

The embedding model sets the pace; the other two run beside it in one thread each. A batch is written in one
transaction, so an interruption loses at most the batches in flight, and the next run finds what is done unchanged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Final

from indexing.acl_rules import Decision
from indexing.documents import stored_under
from indexing.ingest import (
    Draft,
    Pipeline,
    Prepared,
    Removal,
    Source,
    Writable,
    at_present,
    embed,
    prepare,
    relist,
    write,
)
from indexing.origin import Origin
from indexing.outcome import Outcome, failed
from indexing.parse import ParseFailure, ParseLimits
from indexing.walk import Found, files, root_of
from tenancy.errors import InvalidInput
from tenancy.tenant import TenantHandle

BATCH_CHUNKS: Final = 256
"""Chunks that are embedded and written together: enough to sort by length, little to lose."""

_BATCH_ITEMS: Final = 256
_MAX_BYTES: Final = ParseLimits().max_bytes

Decide = Callable[[str], Decision | None]
"""From a file's name to its access list, as `AccessRules.decide`; None keeps the list that is there, and lets nobody
read a new document."""


def ingest_paths(
    tenant: TenantHandle,
    pipeline: Pipeline,
    paths: Sequence[Path],
    decide: Decide,
    still_open: Callable[[], object],
    *,
    prune: bool = False,
    exclude: Collection[Path] = (),
    written: Callable[[Sequence[Outcome]], object] = lambda _outcomes: None,
) -> Generator[Outcome, None, None]:
    """Ingest files and folders; outcomes come as they are durable, in the order of the files.

    A failing file is an outcome, and the rest goes on. `still_open` raises where the tenant is suspended or deleted;
    it is asked before each write. With `prune`, documents that came from one of the folders in `paths` and whose
    file is gone are removed at the end, unless a part of that folder could not be read. `exclude` are files that are
    no documents: the rules and the manifest. `written` is told, in another thread, of each batch as soon as it is
    durable, also of the last one of a run that is given up: close the iterator, and all has been told.
    Raises `InvalidInput` for a path that does not exist, `ModelMismatch`, `TenantSuspended`, `NotFound`.
    """
    run = _Run(tenant, pipeline, decide, paths, exclude)
    try:
        yield from _overlapped(tenant, pipeline, run.items(prune), still_open, written)
    except Exception:
        # A deleted tenant shows first as a missing file: say what it means.
        still_open()
        raise


class _Run:
    """One call of `ingest_paths`, and what it has seen so far; used by the parsing thread alone."""

    def __init__(
        self,
        tenant: TenantHandle,
        pipeline: Pipeline,
        decide: Decide,
        paths: Sequence[Path],
        exclude: Collection[Path],
    ) -> None:
        self._tenant = tenant
        self._pipeline = pipeline
        self._decide = decide
        self._paths = paths
        self._names: set[str] = set()
        self._files: set[Path] = {path.resolve() for path in exclude}
        self._present: dict[str, set[str]] = {root.origin: set() for path in paths if (root := root_of(path)).whole}

    def items(self, prune: bool) -> Iterator[Prepared]:
        """What each file gives, in order, and then what is gone; lazily."""
        for entry in chain.from_iterable(files(path) for path in self._paths):
            yield from self._prepare(entry)
        if prune:
            yield from self._gone()

    def _prepare(self, entry: Found) -> list[Prepared]:
        if entry.path in self._files:
            return []
        self._files.add(entry.path)
        origin = entry.root.origin
        if origin in self._present:
            self._present[origin].add(entry.name)
        if entry.error is not None:
            if entry.path.is_dir():
                # What is below it cannot be told from what is gone.
                self._present.pop(origin, None)
            return [failed(entry.name, entry.error)]
        try:
            return self._claimed(prepare(self._tenant, self._pipeline, self._source(entry)))
        except InvalidInput as error:
            return [failed(entry.name, error), *self._relisted(entry)]

    def _relisted(self, entry: Found) -> list[Prepared]:
        """The rules hold for a document that is there, also where its file cannot be read now."""
        try:
            decision = self._decide(entry.lies)
        except InvalidInput:
            return []
        if decision is None or entry.name in self._names:
            return []
        relisted = relist(self._tenant, entry.name, decision.access)
        self._names.update(item.name for item in relisted)
        return list(relisted)

    def _gone(self) -> Iterator[Prepared]:
        """Documents of the folders that were read as a whole, whose file was not there."""
        for origin, present in self._present.items():
            with self._tenant.reading() as view:
                known = stored_under(view, origin)
            for name, stored in known.items():
                if name not in self._names and (stored.origin.file or name) not in present:
                    yield Removal(name, stored)

    def _source(self, entry: Found) -> Source:
        try:
            data = _content(entry)
        except OSError as error:
            raise InvalidInput(
                f"the file cannot be read: {error.strerror}", item=entry.name, remedy="check its permissions"
            ) from error
        origin = Origin(entry.root.origin)
        decision = self._decide(entry.lies)
        if decision is None:
            return Source(entry.name, data, origin=origin)
        return Source(
            entry.name, data, decision.access, title=decision.title, metadata=decision.metadata, origin=origin
        )

    def _claimed(self, prepared: list[Prepared]) -> list[Prepared]:
        """One run writes each name once: two files of one name would replace each other for ever."""
        claimed: list[Prepared] = []
        for item in prepared:
            name = item.document if isinstance(item, Outcome) else item.name
            if name in self._names:
                error = InvalidInput(
                    "another file of this run has the same document name",
                    item=name,
                    remedy="rename one, or name the folder that holds both",
                )
                claimed.append(failed(name, error))
            else:
                self._names.add(name)
                claimed.append(item)
        return claimed


def _content(entry: Found) -> bytes:
    """The bytes of the file that was found, and of nothing else that may have come into its place meanwhile."""
    descriptor = os.open(entry.target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput("this is not a file", item=entry.name, remedy="remove it")
        data = file.read(_MAX_BYTES + 1) if status.st_size <= _MAX_BYTES else b""
    size = max(status.st_size, len(data))
    if size > _MAX_BYTES:
        raise ParseFailure(
            "too_large", f"has {size} bytes, more than {_MAX_BYTES}", item=entry.name, remedy="split the file"
        )
    return data


def _overlapped(
    tenant: TenantHandle,
    pipeline: Pipeline,
    items: Iterator[Prepared],
    still_open: Callable[[], object],
    written: Callable[[Sequence[Outcome]], object],
) -> Iterator[Outcome]:
    """Embed one batch here while the next is parsed and the last is written."""
    stopped = Event()
    batches = _batches(items, stopped)

    def commit(used: Pipeline, embedded: Sequence[Writable]) -> list[Outcome]:
        still_open()
        outcomes = write(tenant, used, embedded)
        written(outcomes)
        return outcomes

    with ThreadPoolExecutor(1, "ingest-parse") as parser, ThreadPoolExecutor(1, "ingest-write") as writer:
        try:
            upcoming = parser.submit(next, batches, None)
            writing: Future[list[Outcome]] | None = None
            while (batch := upcoming.result()) is not None:
                upcoming = parser.submit(next, batches, None)
                # The tenant may move to another embedding model while this run goes on.
                present = at_present(tenant, pipeline)
                embedded = embed(present, batch)
                if writing is not None:
                    yield from writing.result()
                writing = writer.submit(commit, present, embedded)
            if writing is not None:
                yield from writing.result()
        finally:
            stopped.set()


def _batches(items: Iterator[Prepared], stopped: Event) -> Iterator[list[Prepared]]:
    """Items in order, cut where the chunks to embed or the items are enough; none after `stopped`."""
    batch: list[Prepared] = []
    size = 0
    for item in items:
        if stopped.is_set():
            return
        batch.append(item)
        size += len(item.chunks) if isinstance(item, Draft) else 0
        if size >= BATCH_CHUNKS or len(batch) >= _BATCH_ITEMS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
