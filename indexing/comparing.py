"""Does a new collection find what it should? Held against the tenant's database, which alone is right.

The expected answer to a question is computed from the stored vectors by a plain matrix product, not by the engine that
is left behind: so a move away from an approximate or broken engine is measured by what is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import func, select

from indexing import loading
from indexing.catalogue import EMBEDDED, Collection, Model
from indexing.embed import Embedder
from indexing.engine import Engine
from indexing.remote.points import stored_ids
from indexing.snapshot import Snapshot
from tenancy.errors import Corrupt
from tenancy.schema import acl, chunks, vectors
from tenancy.tenant import ReadView

TOP: Final = 10
SAMPLED: Final = 50
"""Questions that are taken from the tenant's own texts where none are given."""

_LABELS: Final = 5
_QUESTION_CHARACTERS: Final = 200
_TOLERANCE: Final = 1e-4

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`chunks` in the database; `missing` and `surplus` ids at the new collection; `searches` of `questions`, each
    under several sets of labels.

    `overlap` is the share of the best 10 that the new collection found (1.0: all, in every search; equal scores are
    equally right). `unreadable` chunks may never be above 0. `agreement` is the mean share of the best 10 that are
    the same with the old model: a report, since another model finds other things.
    """

    chunks: int
    missing: int
    surplus: int
    questions: int
    searches: int
    overlap: float
    unreadable: int
    same_model: bool
    agreement: float | None

    def failure(self, least: float) -> str | None:
        """Why the new collection must not serve where `least` overlap is asked for; None where it may."""
        if self.missing or self.surplus:
            return f"{self.missing} chunks are missing at the new collection, {self.surplus} do not belong there"
        if self.unreadable:
            return f"{self.unreadable} chunks came back that the labels do not allow"
        if self.overlap < least:
            return f"the new collection found {self.overlap:.3f} of the best {TOP}, and {least:g} was asked for"
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """The database's vectors of one model: `ids` (n,) ascending, `owners` (n,), `vectors` (n, dimension)."""

    ids: Ids
    owners: Ids
    vectors: Floats

    @classmethod
    def read(cls, view: ReadView, model: Model) -> _Table:
        ours = (vectors.c.chunk_id == chunks.c.id) & (vectors.c.model_id == model.id)
        query = select(chunks.c.id, chunks.c.document_id, vectors.c.vector).join(vectors, ours).order_by(chunks.c.id)
        rows = view.execute(query).all()
        held = np.frombuffer(b"".join(row.vector for row in rows), dtype="<f4")
        return cls(
            np.array([row.id for row in rows], dtype=np.int64),
            np.array([row.document_id for row in rows], dtype=np.int64),
            held.reshape(len(rows), -1).astype(np.float32) if rows else np.zeros((0, 1), dtype=np.float32),
        )


@dataclass(frozen=True, slots=True)
class _Lists:
    """Which documents each label allows, and denies."""

    allow: dict[int, set[int]]
    deny: dict[int, set[int]]

    @classmethod
    def read(cls, view: ReadView) -> _Lists:
        found: dict[str, dict[int, set[int]]] = {"allow": {}, "deny": {}}
        for row in view.execute(select(acl.c.document_id, acl.c.label_id, acl.c.effect)):
            found[row.effect].setdefault(row.label_id, set()).add(row.document_id)
        return cls(found["allow"], found["deny"])

    def sets(self) -> list[frozenset[int]]:
        """The labels to search under: all that allow anything, and each of the most used alone."""
        by_use = sorted(self.allow, key=lambda label: (-len(self.allow[label]), label))
        found = [frozenset(by_use), *(frozenset({label}) for label in by_use[:_LABELS])]
        return [labels for labels in dict.fromkeys(found) if labels]

    def readable(self, labels: frozenset[int]) -> Ids:
        allowed = set().union(*(self.allow.get(label, set()) for label in labels))
        denied = set().union(*(self.deny.get(label, set()) for label in labels))
        return np.array(sorted(allowed - denied), dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """What the collection under test returns: by the engine, or by the index that a question would be searched in."""

    collection: Collection
    engine: Engine | None
    snapshot: Snapshot | None

    def best(self, vector: Floats, labels: frozenset[int], readable: int) -> list[int]:
        if self.engine is not None:
            hits = self.engine.nearest(self.collection.physical, vector, labels, None, TOP, readable=readable)
            return [hit.chunk_id for hit in hits]
        scored: list[tuple[float, int]] = []
        for part in self.snapshot.parts if self.snapshot is not None else ():
            rows = part.segment.expand(part.access.readable(labels))
            count = int(np.count_nonzero(rows))
            if count:
                nearest = part.segment.nearest(vector, rows, count, TOP)
                scored += [(-score, int(part.segment.chunk_ids[row])) for row, score in nearest]
        return [chunk_id for _, chunk_id in sorted(scored)[:TOP]]


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What the database says, read in one transaction: a comparison takes long, and holds none."""

    old: Collection
    new: Collection
    stored: Ids
    table: _Table
    earlier: _Table | None
    lists: _Lists
    snapshot: Snapshot | None
    samples: tuple[str, ...]


def reference(view: ReadView, old: Collection, new: Collection) -> Reference:
    """Raises `Corrupt`."""
    if new.model.fingerprint is None:
        raise Corrupt("the collection's model is unknown to this version of the program", item=new.physical)
    same = old.model.fingerprint == new.model.fingerprint
    return Reference(
        old,
        new,
        stored=stored_ids(view),
        table=_Table.read(view, new.model),
        earlier=None if same else _Table.read(view, old.model),
        lists=_Lists.read(view),
        snapshot=loading.load(view, new, new.model.fingerprint.dimension) if new.engine == EMBEDDED else None,
        samples=tuple(sampled(view)),
    )


def compare(
    known: Reference, before: Embedder | None, embedder: Embedder, engine: Engine | None, questions: Sequence[str] = ()
) -> Comparison:
    """Ask the new collection, embedded by `embedder` and held by `engine` (None: in memory), all `questions`.

    `before` is the embedder of the old one, None where it cannot be had. Raises `Unavailable`.
    """
    held = known.stored if engine is None else _held(engine, known.new)
    asked = list(questions) or known.samples
    table, earlier = known.table, known.earlier if before is not None else None
    found = _Found(known.new, engine, known.snapshot)
    masks = [(labels, known.lists.readable(labels)) for labels in known.lists.sets()]
    shares: list[float] = []
    agreements: list[float] = []
    unreadable = 0
    for text in asked:
        vector = embedder.encode_query(text)
        other = before.encode_query(text) if before is not None and earlier is not None else None
        for labels, documents in masks:
            mask = np.isin(table.owners, documents)
            if not mask.any():
                continue
            best = found.best(vector, labels, int(mask.sum()))
            share, foreign = _share(table, mask, vector, best)
            shares.append(share)
            unreadable += foreign
            if earlier is not None and other is not None:
                expected = _best(earlier, np.isin(earlier.owners, documents), other)
                agreements.append(len(set(expected) & set(best)) / max(1, len(expected)))
    return Comparison(
        chunks=len(known.stored),
        missing=len(np.setdiff1d(known.stored, held)) + len(np.setdiff1d(known.stored, table.ids)),
        surplus=len(np.setdiff1d(held, known.stored)),
        questions=len(asked),
        searches=len(shares),
        overlap=float(np.mean(shares)) if shares else 1.0,
        unreadable=unreadable,
        same_model=known.old.model.fingerprint == known.new.model.fingerprint,
        agreement=float(np.mean(agreements)) if agreements else None,
    )


def sampled(view: ReadView, count: int = SAMPLED) -> list[str]:
    """Questions from the tenant's own texts: headings, or how passages begin, evenly over all chunks."""
    total = int(view.execute(select(func.count()).select_from(chunks)).scalar_one())
    ids = stored_ids(view)[:: max(1, total // count)][:count]
    start = func.substr(chunks.c.text, 1, _QUESTION_CHARACTERS).label("start")
    query = select(chunks.c.heading, start).where(chunks.c.id.in_(ids.tolist())).order_by(chunks.c.id)
    return [row.heading or row.start for row in view.execute(query)]


def _held(engine: Engine, collection: Collection) -> Ids:
    pieces: Iterable[Sequence[int]] = engine.chunk_ids(collection.physical)
    return np.array([number for piece in pieces for number in piece], dtype=np.int64)


def _best(table: _Table, mask: npt.NDArray[np.bool_], vector: Floats) -> list[int]:
    rows = np.flatnonzero(mask)
    scores = table.vectors[rows] @ vector
    order = np.lexsort((table.ids[rows], -scores))[:TOP]
    return [int(number) for number in table.ids[rows[order]]]


def _share(table: _Table, mask: npt.NDArray[np.bool_], vector: Floats, best: Sequence[int]) -> tuple[float, int]:
    """The share of the best readable chunks that came back, and how many came back that are not readable."""
    readable = table.ids[mask]
    scores = table.vectors[mask] @ vector
    expected = min(TOP, len(readable))
    least = np.sort(scores)[::-1][expected - 1] - _TOLERANCE
    found = np.unique(np.array(best, dtype=np.int64))
    at = np.searchsorted(readable, found)
    known = (at < len(readable)) & (readable[np.minimum(at, len(readable) - 1)] == found)
    right = int(np.count_nonzero(scores[at[known]] >= least))
    return min(1.0, right / expected), int(np.count_nonzero(~known))
