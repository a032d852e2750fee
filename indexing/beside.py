"""A tenant's documents once more, in a database beside its own: cut or embedded otherwise, to be measured.

Nothing that serves is touched. What stands in the copy is what one read transaction of the tenant saw, users, groups
and access lists included; only chunks and vectors are made anew. It is always searched exactly (FAISS), whichever
engine serves the tenant.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from sqlalchemy import Row, Table, insert, select, update

from indexing.catalogue import EMBEDDED, add_collection, add_model
from indexing.chunk import Chunking, Ruler, chunk, indexed_text
from indexing.chunk_rows import chunk_row
from indexing.collection import Collections
from indexing.collections.open import OpenCollections
from indexing.embed import Embedder
from indexing.moving import Step, embed_missing
from indexing.parse.model import Block, Kind
from indexing.terms import pack, term_postings
from tenancy import schema
from tenancy.tenant import Epochs, ReadView, TenantHandle, WriteView

_COPIED: Final = (
    schema.users,
    schema.groups,
    schema.members,
    schema.labels,
    schema.documents,
    schema.acl,
    schema.templates,
    schema.adapters,
)
"""In an order in which each refers to those before it."""

_ROWS: Final = 1_000


def fill(tenant: TenantHandle, copy: TenantHandle, embedder: Embedder, chunking: Chunking | None, step: Step) -> Epochs:
    """Fill `copy`, which is empty, from `tenant`; returns the state that was copied.

    With `chunking`, each document is cut again from its stored text (blocks of its file are not stored: headings count,
    a table is text); without, the chunks are the same. All are embedded with `embedder`. Raises `Unavailable`.
    """
    with tenant.reading() as view, copy.writing() as into:
        epochs = view.epochs
        for table in _COPIED:
            _copy(view, into, table)
        if chunking is None:
            _copy(view, into, schema.chunks)
        else:
            for rows in _documents(view):
                _cut(into, rows, chunking, embedder)
        model = add_model(into, embedder.spec, embedder.fingerprint, time.time())
        add_collection(into, EMBEDDED, model, "serving", time.time())
        into.execute(update(schema.epochs).values(acl=epochs.acl, corpus=epochs.corpus, kv=epochs.kv))
    step("copied", 0, 0)
    embed_missing(copy, model, embedder, step)
    return epochs


def collections_of(embedder: Embedder, budget_bytes: int) -> Collections:
    """Collections that are searched in copies alone, in memory of their own."""
    return OpenCollections(embedder.fingerprint, budget_bytes)


def _copy(view: ReadView, into: WriteView, table: Table) -> None:
    for rows in view.execute(select(table)).mappings().partitions(_ROWS):
        into.execute(insert(table), [dict(row) for row in rows])


def _documents(view: ReadView) -> Iterator[Sequence[Row[Any]]]:
    """The chunks of each document, in order."""
    columns = schema.chunks.c
    found = view.execute(
        select(columns.document_id, columns.start, columns.end, columns.text, columns.hidden).order_by(
            columns.document_id, columns.ordinal
        )
    )
    for _, rows in groupby(found, key=attrgetter("document_id")):
        yield list(rows)


def _cut(into: WriteView, rows: Sequence[Row[Any]], chunking: Chunking, embedder: Embedder) -> None:
    ruler = Ruler(embedder.token_starts, embedder.fingerprint.window)
    hidden = [Block(row.start, row.end, Kind.PARAGRAPH, hidden=True) for row in rows if row.hidden]
    pieces = chunk(stored_text(rows), chunking, blocks=_apart(hidden), ruler=ruler)
    if pieces:
        terms = (pack(term_postings(indexed_text(piece.text, piece.context))) for piece in pieces)
        owner = rows[0].document_id
        made = [chunk_row(owner, piece, packed) for piece, packed in zip(pieces, terms, strict=True)]
        into.execute(insert(schema.chunks), made)


def _apart(blocks: Sequence[Block]) -> list[Block]:
    """`blocks`, which are in order, without what one repeats of the one before."""
    found: list[Block] = []
    for block in blocks:
        if found and block.start < found[-1].end:
            block = replace(found.pop(), end=block.end)
        found.append(block)
    return found


def stored_text(rows: Sequence[Row[Any]]) -> str:
    """A document's text from its chunks (start, end, text), in order. What lies between them is white space: lines."""
    parts: list[str] = []
    at = 0
    for row in rows:
        if row.start > at:
            parts.append("\n" * (row.start - at))
            at = row.start
        if row.end > at:
            parts.append(row.text[at - row.start :])
            at = row.end
    return "".join(parts)
