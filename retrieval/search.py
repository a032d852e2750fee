"""Readable passages for a question: dense and lexical candidates, fused, read and checked again before they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import bindparam, select

from indexing.collection import Collections, CollectionSnapshot, EngineDisagrees, Scored
from indexing.embed import Fingerprint
from indexing.filters import Filter, matches
from indexing.terms import term_postings
from retrieval.boosts import BOOSTED, boosted
from retrieval.duplicates import spread
from retrieval.fusion import CANDIDATES, dense_weight_for, fuse
from retrieval.passage import Passage
from tenancy.contract import Boost
from tenancy.domain import PermissionDomain, permission_domain, readable_documents
from tenancy.errors import EngineUnavailable, InvalidInput, StaleDomain
from tenancy.identity import Principal
from tenancy.pauses import reached
from tenancy.schema import chunks, documents
from tenancy.tenant import TenantHandle

__all__ = ["Collections", "ModelMoved", "Passages", "Scope", "SearchMode", "open_scope", "search"]

SearchMode = Literal["dense", "lexical", "hybrid"]
MAX_TOP_K: Final = 1000
ATTEMPTS: Final = 3
SCOPES: Final = 8
"""How many states a search tries to meet a server engine in, beside writers that move it on."""
SPARE: Final = 12
"""Rows that are read beyond those asked for, to stand in for near-duplicates."""
_OVERFETCH: Final = 4

# Made once: for a few rows, making a statement takes longer than running it.
_ROWS: Final = (
    select(
        chunks.c.id, chunks.c.ordinal, chunks.c.start, chunks.c.end, chunks.c.text, chunks.c.key, chunks.c.context,
        chunks.c.place, chunks.c.turns, chunks.c.hidden,
        chunks.c.document_id, documents.c.name, documents.c.title, documents.c.version,
    )
    .join(documents, documents.c.id == chunks.c.document_id)
    .where(chunks.c.id.in_(bindparam("chunks", expanding=True)))
)  # fmt: skip

_ROWS_WITH_METADATA: Final = _ROWS.add_columns(documents.c.metadata)


class ModelMoved(StaleDomain):
    """The collection is of another embedding model than the question's vector: embed it again."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Who reads, and what there is: a domain and a collection of the same epochs, from one read transaction."""

    domain: PermissionDomain
    snapshot: CollectionSnapshot
    collections: Collections = field(repr=False)


@dataclass(frozen=True, slots=True)
class Passages:
    """Passages, best first, found under `domain`, which is a later one than the caller's where rows had changed.

    They hold no snapshot: an answer that is written for a minute must not keep its collection in memory.
    `similarity` is the highest cosine of the question to a passage in `items`; None where the dense leg found none
    of them. `withheld` counts rows that changed in each attempt and were dropped in the last.
    """

    items: tuple[Passage, ...]
    domain: PermissionDomain
    similarity: float | None
    withheld: int


def open_scope(principal: Principal, tenant: TenantHandle, collections: Collections) -> Scope:
    """The domain of `principal` and the tenant's collection in one state. Raises `Forbidden`, `ModelMismatch`."""
    for _ in range(ATTEMPTS - 1):
        try:
            return _open_scope(principal, tenant, collections)
        except StaleDomain:
            continue
    return _open_scope(principal, tenant, collections)


def search(
    tenant: TenantHandle,
    principal: Principal,
    scope: Scope,
    query: str,
    vector: npt.NDArray[np.float32],
    top_k: int,
    mode: SearchMode = "hybrid",
    *,
    model: Fingerprint,
    covers: float,
    where: Filter | None = None,
    boosts: Sequence[Boost] = (),
    copies_last: bool = False,
    visible_only: bool = False,
) -> Passages:
    """The best `top_k` chunks for `query` that `principal` may read, of documents that `where` describes.

    `boosts` order the best of them anew. With `copies_last`, near-duplicates of better ones come last, where nothing
    else is left to fill the room. With `visible_only`, hidden text is neither found nor weighed, and hides no copy.

    `vector` (dimension,) is the question's, made by `model`, and `covers` in [0, 1] how far that model knows its
    language.
    Every row is read in a fresh transaction and checked against the domain of that moment and `where`. Where one is
    gone or unreadable by then, the search starts again under a new scope; after `ATTEMPTS` such rows are dropped.
    A server engine that holds another state than the scope is asked again under a new one; where the database did not
    move meanwhile, the engine is wrong and is put right first.
    Raises `ModelMoved` where the collection is of another model than the vector, as after a move of the tenant;
    `Unavailable` where asking the engine again does not help; `InvalidInput`.
    """
    if not 1 <= top_k <= MAX_TOP_K:
        raise InvalidInput(f"top_k is from 1 to {MAX_TOP_K}, not {top_k}", item="top_k")
    if scope.domain.user_id != principal.user_id or scope.domain.tenant_id != principal.tenant_id:
        raise InvalidInput("the scope was opened for another principal", item="scope")
    attempt, wide = 1, max(top_k, min(top_k + SPARE, MAX_TOP_K) if copies_last else 0, BOOSTED if boosts else 0)
    while True:
        scope, ranked, cosines = _rank_now(tenant, principal, scope, query, vector, wide, mode, model, covers, where)
        reached("searched")
        items = _hydrate(tenant, principal, ranked, where, boosts)
        reached("hydrated")
        lost = len(ranked) - len(items)
        if not lost or attempt == ATTEMPTS:
            break
        attempt += 1
        scope = open_scope(principal, tenant, scope.collections)
    if visible_only:
        items = [item for item in items if not item.hidden]
    items = spread(items, top_k) if copies_last else items[:top_k]
    near = [cosines[item.chunk_id] for item in items if item.chunk_id in cosines]
    return Passages(tuple(items), scope.domain, max(near, default=None), lost)


def _open_scope(principal: Principal, tenant: TenantHandle, collections: Collections) -> Scope:
    with collections.opened(tenant) as (view, snapshot):
        return Scope(permission_domain(principal, view), snapshot, collections)


def _rank_now(
    tenant: TenantHandle,
    principal: Principal,
    scope: Scope,
    query: str,
    vector: npt.NDArray[np.float32],
    top_k: int,
    mode: SearchMode,
    model: Fingerprint,
    covers: float,
    where: Filter | None,
) -> tuple[Scope, list[Scored], dict[int, float]]:
    """`_rank` under the first scope, from `scope` on, whose state the engine holds too."""
    for _ in range(SCOPES):
        try:
            _require_model(scope, model)
            return scope, *_rank(scope, query, vector, top_k, mode, covers, where)
        except EngineDisagrees as found:
            before, collections = scope.snapshot.epochs, scope.collections
            scope = open_scope(principal, tenant, collections)
            if scope.snapshot.epochs == before:
                collections.repair(tenant, found)
    raise EngineUnavailable(
        "the vector engine holds another state than the database", item=tenant.name, remedy="try again in a moment"
    )


def _require_model(scope: Scope, model: Fingerprint) -> None:
    """Vectors of two models are never compared, also where they have the same dimension."""
    collection = scope.snapshot.collection
    if collection is not None and collection.model.fingerprint != model:
        raise ModelMoved("the collection is of another embedding model", item=scope.domain.tenant_id)


def _rank(
    scope: Scope,
    query: str,
    vector: npt.NDArray[np.float32],
    top_k: int,
    mode: SearchMode,
    covers: float,
    where: Filter | None,
) -> tuple[list[Scored], dict[int, float]]:
    """The best `top_k` by the fused score, and the cosines of the dense candidates by chunk id."""
    if scope.domain.is_empty:
        return [], {}
    wanted = max(CANDIDATES, _OVERFETCH * top_k)
    dense: list[Scored] = []
    lexical: list[Scored] = []
    if mode != "lexical":
        dense = scope.snapshot.dense(scope.domain, vector, wanted, where)
    if mode != "dense":
        lexical = scope.snapshot.lexical(scope.domain, term_postings(query), wanted, where)
    if mode == "hybrid":
        ranked = [Scored(*fused) for fused in fuse(dense, lexical, dense_weight_for(covers))]
    else:
        ranked = dense or lexical
    return ranked[:top_k], {found.chunk_id: found.score for found in dense}


def _hydrate(
    tenant: TenantHandle,
    principal: Principal,
    ranked: Sequence[Scored],
    where: Filter | None,
    boosts: Sequence[Boost],
) -> list[Passage]:
    """Read the rows of `ranked` that exist and that `principal` may read now, in the same order but for `boosts`.

    A chunk id is never used again, and a new version has new chunks: a row that is still there is the one that was
    searched, and belongs to the document's present version. What an index knows of metadata are hashes: the values
    themselves are compared here.
    """
    if not ranked:
        return []
    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        query = _ROWS if where is None and not boosts else _ROWS_WITH_METADATA
        rows = view.execute(query, {"chunks": [found.chunk_id for found in ranked]}).all()
        readable = readable_documents(domain, view, {row.document_id for row in rows})
    present = {
        row.id: row for row in rows
        if row.document_id in readable and (where is None or matches(where, row.metadata))
    }  # fmt: skip
    items = [
        Passage(
            document=row.name,
            document_id=row.document_id,
            title=row.title,
            version=row.version,
            chunk=row.key or f"c{row.ordinal}",
            chunk_id=row.id,
            start=row.start,
            end=row.end,
            text=row.text,
            score=found.score,
            context=row.context,
            place=row.place,
            turns=tuple((start, label) for start, label in row.turns or ()),
            hidden=row.hidden,
        )
        for found in ranked
        if (row := present.get(found.chunk_id)) is not None
    ]
    if not boosts:
        return items
    metadata = [present[item.chunk_id].metadata for item in items]
    return boosted(items, metadata, boosts, tenant.contract.metadata)
