"""Many files into one tenant: read and parse, embed, write, each overlapping the next.

The embedding model sets the pace; reading runs beside it in a few threads, writing in one. A batch is written in one
transaction, so an interruption loses at most the batches in flight, and the next run finds what is done unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Final

from indexing.ingest import Pipeline, at_present, embed, write
from indexing.items import forget_gone
from indexing.outcome import Outcome
from indexing.prepared import Draft, Prepared, Writable
from indexing.run import Decide as Decide
from indexing.run import PruneLimit, Run
from indexing.walk import changed, files
from tenancy.tenant import TenantHandle

PRUNE_LIMIT: Final = PruneLimit()
THREADS: Final = 2
"""Files that are read and parsed at a time: what waits for parsers in other processes."""

BATCH_CHUNKS: Final = 256
"""Chunks that are embedded and written together: enough to sort by length, little to lose."""

_BATCH_ITEMS: Final = 256


def ingest_paths(
    tenant: TenantHandle,
    pipeline: Pipeline,
    paths: Sequence[Path],
    decide: Decide,
    still_open: Callable[[], object],
    *,
    prune: bool = False,
    prune_limit: PruneLimit = PRUNE_LIMIT,
    exclude: Collection[Path] = (),
    only: Collection[Path] | None = None,
    written: Callable[[Sequence[Outcome]], object] = lambda _outcomes: None,
    threads: int = THREADS,
) -> Generator[Outcome, None, None]:
    """Ingest files and folders; outcomes come as they are durable, in the order of the files.

    A failing file is an outcome, and the rest goes on. `still_open` raises where the tenant is suspended or deleted;
    it is asked before each write. A document of a folder in `paths` whose file lies elsewhere in such a folder now
    keeps its id and its vectors. With `prune`, documents that came from one of these folders and whose file is gone are
    removed at the end, unless a part of that folder could not be read, or it were more than `prune_limit`. `exclude`
    are files that are no documents: the rules and the manifest. With `only`, no more is looked at than what lies at or
    below these places. `written` is told, in another thread, of each batch as soon as it is durable, also of the last
    one of a run that is given up: close the iterator, and all has been told. `threads` files are read and parsed at a
    time.
    Raises `InvalidInput` for a path that does not exist, `ModelMismatch`, `TenantSuspended`, `NotFound`.
    """
    run = Run(tenant, pipeline, decide, paths, exclude, threads)
    entries = (entry for path in paths for entry in (files(path) if only is None else changed(path, only)))

    def items() -> Iterator[Prepared]:
        yield from run.items(entries)
        if prune:
            yield from run.gone(prune_limit, only)

    try:
        yield from _overlapped(tenant, pipeline, items(), still_open, written)
        if only is None:
            for origin in run.whole:
                forget_gone(tenant, origin, run.names, pipeline.clock())
    except Exception:
        # A deleted tenant shows first as a missing file: say what it means.
        still_open()
        raise


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
