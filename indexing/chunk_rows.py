"""Chunks as rows, with their vectors; and vectors carried over an edit that left a chunk's text alone.

A new version of a document has new rows, whatever they hold: an id names one text of one version for ever, and
snapshots, engines, searches under way and remembered answers go by that. Carried over are the vectors, of every model
that the tenant has, from the old rows to the new ones, within the transaction that replaces them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, delete, func, insert, select, update

from indexing.chunk import Chunk, chunk_key, embedded_text
from tenancy.schema import chunks, vectors
from tenancy.tenant import ReadView, WriteView

# Statements are made once: for a short document, making them takes longer than running them.
_OF_DOCUMENT: Final = chunks.c.document_id == bindparam("document")
_TEXTS: Final = select(chunks.c.id, chunks.c.text, chunks.c.context).where(_OF_DOCUMENT).order_by(chunks.c.ordinal)
_ADD: Final = insert(chunks)
_IDS: Final = select(chunks.c.id).where(_OF_DOCUMENT & (chunks.c.ordinal >= 0)).order_by(chunks.c.ordinal)
_IDS_OF_NEW: Final = (
    select(chunks.c.document_id, chunks.c.id)
    .where(chunks.c.document_id.in_(bindparam("documents", expanding=True)))
    .order_by(chunks.c.document_id, chunks.c.ordinal)
)
_ADD_VECTORS: Final = insert(vectors)
_SET_ASIDE: Final = update(chunks).where(_OF_DOCUMENT).values(ordinal=-1 - chunks.c.ordinal)
_CARRY: Final = update(vectors).where(vectors.c.chunk_id == bindparam("old")).values(chunk_id=bindparam("new"))
_DROP: Final = delete(chunks).where(_OF_DOCUMENT & (chunks.c.ordinal < 0))
_LACKING: Final = (
    select(func.count())
    .select_from(chunks)
    .outerjoin(vectors, (vectors.c.chunk_id == chunks.c.id) & (vectors.c.model_id == bindparam("model")))
    .where(_OF_DOCUMENT & vectors.c.chunk_id.is_(None))
)


class NotCarried(Exception):
    """A chunk whose vector was to be carried over has none of the tenant's present model."""


class NewChunks(NamedTuple):
    """All chunks of a document that has none yet, with their packed `terms`, and `vectors` (chunks, dimension) of the
    model `model_id`."""

    document_id: int
    pieces: Sequence[Chunk]
    terms: Sequence[bytes]
    vectors: npt.NDArray[np.float32]
    model_id: int


def unchanged(view: ReadView, document_id: int, pieces: Sequence[Chunk]) -> dict[int, int]:
    """The ordinals of `pieces` that read as one of the document's stored chunks does, each with another one's id."""
    stored: defaultdict[str, deque[int]] = defaultdict(deque)
    for row in view.execute(_TEXTS, {"document": document_id}):
        stored[chunk_key(embedded_text(row.text, row.context))].append(row.id)
    read = ((piece.ordinal, chunk_key(embedded_text(piece.text, piece.context))) for piece in pieces)
    return {ordinal: same.popleft() for ordinal, key in read if (same := stored[key])}


def add_chunks(view: WriteView, added: Sequence[NewChunks]) -> None:
    """Give documents that have no chunks theirs."""
    rows = [
        chunk_row(new.document_id, piece, packed)
        for new in added
        for piece, packed in zip(new.pieces, new.terms, strict=True)
    ]
    if not rows:
        return
    view.execute(_ADD, rows)
    ids: defaultdict[int, list[int]] = defaultdict(list)
    for document_id, chunk_id in view.execute(_IDS_OF_NEW, {"documents": [new.document_id for new in added]}):
        ids[document_id].append(chunk_id)
    made = [row for new in added for row in _vectors(ids[new.document_id], new.vectors, new.model_id)]
    view.execute(_ADD_VECTORS, made)


def write_chunks(
    view: WriteView,
    document_id: int,
    pieces: Sequence[Chunk],
    terms: Sequence[bytes],
    made: npt.NDArray[np.float32],
    model_id: int,
    carried: Mapping[int, int] | None = None,
) -> None:
    """Put `pieces` in the place of all chunks that the document has, with their `terms`.

    `carried` are ids of its present chunks by ordinal of the piece that takes over their vectors; `made` (the other
    pieces, dimension) are vectors of the model `model_id`. Raises `NotCarried`; nothing may be committed then.
    """
    carried = carried or {}
    view.execute(_SET_ASIDE, {"document": document_id})
    view.execute(_ADD, [chunk_row(document_id, piece, packed) for piece, packed in zip(pieces, terms, strict=True)])
    ids = view.execute(_IDS, {"document": document_id}).scalars().all()
    if carried:
        view.execute(_CARRY, [{"old": old, "new": ids[ordinal]} for ordinal, old in carried.items()])
    view.execute(_DROP, {"document": document_id})
    fresh = [chunk_id for ordinal, chunk_id in enumerate(ids) if ordinal not in carried]
    rows = _vectors(fresh, made, model_id)
    if rows:
        view.execute(_ADD_VECTORS, rows)
    if carried and view.execute(_LACKING, {"document": document_id, "model": model_id}).scalar_one():
        raise NotCarried


def _vectors(ids: Iterable[int], made: npt.NDArray[np.float32], model_id: int) -> list[dict[str, Any]]:
    return [
        {"chunk_id": chunk_id, "model_id": model_id, "vector": vector.tobytes()}
        for chunk_id, vector in zip(ids, made.astype("<f4"), strict=True)
    ]


def chunk_row(document_id: int, piece: Chunk, terms: bytes) -> dict[str, object]:
    """The columns of one chunk, with its packed `terms`."""
    return {
        "document_id": document_id,
        "ordinal": piece.ordinal,
        "start": piece.start,
        "end": piece.end,
        "heading": piece.heading,
        "text": piece.text,
        "terms": terms,
        "key": piece.key,
        "context": piece.context,
        "place": piece.place,
        "turns": [[place.start, place.label] for place in piece.turns] or None,
        "hidden": piece.hidden,
    }
