"""Moving a tenant to another engine or embedding model: built beside the old, compared, switched in one transaction.

    build    a `building` collection; missing vectors are made batch by batch, each durable at once
    compare  counts, ids and the tenant's own questions (`indexing.comparing`)
    switch   the new one serves, the old one is `previous`; in one write transaction that finds nothing missing
    confirm  the old one is dropped at its engine, with the vectors that no collection needs any more
    rollback the old one is brought up to date, and serves again by the same switch

Questions and ingestion go on all the time: documents are written for the collection that serves, and this follows.
Every step may be repeated after any interruption. The old collection is not kept up to date after the switch, which
would embed every new document twice: what it lacks is made up for when it is needed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from sqlalchemy import bindparam, delete, func, insert, select

from indexing.catalogue import (
    EMBEDDED,
    Collection,
    Model,
    add_collection,
    add_model,
    all_collections,
    find,
    forget,
    serving,
    set_state,
)
from indexing.chunk import embedded_text
from indexing.comparing import Comparison, Reference, compare, reference
from indexing.embed import Embedder
from indexing.embedding import Embedders
from indexing.engine import Engine
from indexing.engines.registry import Engines
from indexing.remote.catching_up import REBUILD, catch_up
from tenancy.errors import Conflict, Corrupt, ModelMismatch, Unavailable
from tenancy.schema import chunks, models, vectors
from tenancy.tenant import ReadView, TenantHandle, WriteView

LOCK: Final = "move"
BATCH: Final = 256
"""Chunks that are embedded and written together."""
ATTEMPTS: Final = 20
_PATIENCE_S: Final = 1.0

Step = Callable[[str, int, int], None]
"""Told which step has been reached, with chunks done and to do where they are counted."""

_OURS: Final = (vectors.c.chunk_id == chunks.c.id) & (vectors.c.model_id == bindparam("model"))
_MISSING: Final = (
    select(chunks.c.id, chunks.c.text, chunks.c.context).outerjoin(vectors, _OURS).where(vectors.c.chunk_id.is_(None))
)
_NEXT_MISSING: Final = _MISSING.where(chunks.c.id > bindparam("after")).order_by(chunks.c.id).limit(BATCH)
_COUNT_MISSING: Final = (
    select(func.count()).select_from(chunks).outerjoin(vectors, _OURS).where(vectors.c.chunk_id.is_(None))
)
_PRESENT: Final = select(chunks.c.id).where(chunks.c.id.in_(bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True)
class Mover:
    """The deployment's engines and models. One move of a tenant at a time; others are refused (`Unavailable`).

    `leave` puts a collection on record that an engine could not be told to drop, so that a server drops it later;
    without it, such a collection stays the tenant's.
    """

    engines: Engines
    embedders: Embedders
    step: Step = lambda _name, _done, _of: None
    clock: Callable[[], float] = time.time
    leave: Callable[[TenantHandle, Collection], None] | None = None

    def build(self, tenant: TenantHandle, engine: str, spec: str | None = None) -> Collection:
        """Build a collection at `engine` with the model `spec` (None: the present one), or go on with it.

        Raises `Conflict` where another move has not been ended, or where the tenant is there already;
        `Unavailable` for an engine that is away or not for this tenant, `InvalidInput` for an unknown model.
        """
        with self._alone(tenant):
            self.engines.of(tenant, engine)
            with tenant.reading() as view:
                embedder = self.embedders.of(view) if spec is None else self.embedders.named(spec)
            with tenant.writing() as view:
                target = self._begun(view, engine, embedder)
            self.step("begun", 0, 0)
            self._fill(tenant, target)
            self.step("built", 0, 0)
            return target

    def compare(self, tenant: TenantHandle, questions: Sequence[str] = ()) -> Comparison:
        """Hold the `building` collection against the database and the tenant's own questions, or `questions`.

        Raises `Conflict` where nothing is being built, `Unavailable`.
        """
        with self._alone(tenant):
            target = self._only(tenant, "building", "nothing is being built")
            engine, embedder = self.engines.of(tenant, target.engine), self._embedder(target.model)
            known = self._reference(tenant, target, engine)
            before = self.embedders.serves(known.old.model)
            found = compare(known, before, embedder, engine, questions)
            self.step("compared", 0, 0)
            return found

    def _reference(self, tenant: TenantHandle, target: Collection, engine: Engine | None) -> Reference:
        """What the database says at a moment at which the new collection has all of it."""
        for _ in range(ATTEMPTS):
            self._fill(tenant, target)
            with tenant.reading() as view:
                current, old = find(view, target.id), serving(view)
                if current is None or old is None:
                    raise Conflict("the tenant's collections changed meanwhile", item=tenant.name, remedy="try again")
                behind = engine is not None and current.applied != view.epochs.changes
                if not behind and not missing_vectors(view, target.model):
                    return reference(view, old, current)
        raise _too_busy(tenant)

    def switch(self, tenant: TenantHandle) -> Collection:
        """Take the `building` collection into service; returns it. The caller has compared. Raises `Conflict`."""
        with self._alone(tenant):
            return self._switch(tenant, self._only(tenant, "building", "nothing is being built"))

    def rollback(self, tenant: TenantHandle) -> Collection:
        """Take the `previous` collection back into service, with every document that came since; returns it.

        Raises `Conflict` where there is none, `ModelMismatch` where its model is not configured any more.
        """
        with self._alone(tenant):
            target = self._only(tenant, "previous", "there is no earlier collection to go back to")
            self.engines.of(tenant, target.engine)
            return self._switch(tenant, target)

    def confirm(self, tenant: TenantHandle) -> Collection:
        """Drop the `previous` collection for good, now or as soon as its engine is back; returns what it was.

        Raises `Conflict`, `Unavailable`.
        """
        with self._alone(tenant):
            return self._drop(tenant, self._only(tenant, "previous", "there is nothing to confirm"))

    def abort(self, tenant: TenantHandle) -> Collection:
        """Drop the `building` collection, as `confirm` does; returns what it was. Raises `Conflict`, `Unavailable`."""
        with self._alone(tenant):
            return self._drop(tenant, self._only(tenant, "building", "nothing is being built"))

    @contextmanager
    def _alone(self, tenant: TenantHandle) -> Iterator[None]:
        with tenant.exclusive(LOCK, _PATIENCE_S):
            yield

    def _begun(self, view: WriteView, engine: str, embedder: Embedder) -> Collection:
        """The record of what is to be built, found or made."""
        rows = all_collections(view)
        present = next((row for row in rows if row.state == "serving"), None)
        if present is None:
            raise Conflict(
                "the tenant has no documents to move",
                item=view.tenant.name,
                remedy="name engine and model in its contract: `strongroom tenant contract set`",
            )
        if any(row.state == "previous" for row in rows):
            raise Conflict(
                "an earlier move has not been ended",
                item=view.tenant.name,
                remedy="`strongroom tenant confirm` ends it, after `rollback` if you want the earlier one",
            )
        for row in rows:
            same = row.engine == engine and row.model.fingerprint == embedder.fingerprint
            if row.state == "building" and same:
                return row
            if row.state == "building":
                raise Conflict(
                    "another move has been begun", item=view.tenant.name, remedy="finish it, or `move --abort` it"
                )
            if same:
                raise Conflict("the tenant is at this engine, with this model, already", item=view.tenant.name)
        model = add_model(view, embedder.spec, embedder.fingerprint, self.clock())
        return add_collection(view, engine, model, "building", self.clock())

    def _only(self, tenant: TenantHandle, state: str, otherwise: str) -> Collection:
        with tenant.reading() as view:
            found = [row for row in all_collections(view) if row.state == state]
        if not found:
            raise Conflict(otherwise, item=tenant.name, remedy="`strongroom tenant moves` shows where things stand")
        return found[-1]

    def _embedder(self, model: Model) -> Embedder:
        found = self.embedders.serves(model)
        if found is None:
            raise ModelMismatch(
                "the collection's embedding model is not configured any more",
                item=model.spec,
                remedy="add it to embedding.also, until the move is confirmed",
            )
        return found

    def _fill(self, tenant: TenantHandle, target: Collection) -> None:
        """Everything that the database has now, with its vectors, and at the engine. Raises `Unavailable`."""
        engine, embedder = self.engines.of(tenant, target.engine), self._embedder(target.model)
        for _ in range(ATTEMPTS):
            embed_missing(tenant, target.model, embedder, self.step)
            if engine is None or self._caught_up(tenant, engine, target):
                return
        raise _too_busy(tenant)

    def _caught_up(self, tenant: TenantHandle, engine: Engine, target: Collection) -> bool:
        """False where a document came in between, whose vectors of this model have not been made yet."""
        try:
            catch_up(tenant, engine, target, lambda done, of: self.step("copied", done, of))
        except Corrupt:
            with tenant.reading() as view:
                if not missing_vectors(view, target.model):
                    raise
            return False
        self.step("caught up", 0, 0)
        return True

    def _switch(self, tenant: TenantHandle, target: Collection) -> Collection:
        embedder = self._embedder(target.model)
        for attempt in range(ATTEMPTS):
            self._fill(tenant, target)
            self.step("filled", 0, 0)
            with tenant.writing() as view:
                current, old = find(view, target.id), serving(view)
                if current is None or old is None or old.id == target.id:
                    raise Conflict("the tenant's collections changed meanwhile", item=tenant.name, remedy="try again")
                if attempt:
                    # Documents come in quickly: the last few are embedded while writers wait.
                    rows = view.execute(_NEXT_MISSING, {"model": target.model.id, "after": 0}).all()
                    if rows:
                        made = embedder.encode([embedded_text(row.text, row.context) for row in rows])
                        _store(view, target.model, [row.id for row in rows], made)
                # The engine may be some changes behind: like at any time, a question brings it up first.
                if not missing_vectors(view, target.model) and (
                    target.engine == EMBEDDED or current.applied != REBUILD
                ):
                    set_state(view, old, "previous")
                    set_state(view, current, "serving")
                    view.bump_collection()
                    self.step("switching", 0, 0)
                    break
        else:
            raise _too_busy(tenant)
        self.step("switched", 0, 0)
        return replace(target, state="serving")

    def _drop(self, tenant: TenantHandle, gone: Collection) -> Collection:
        """At the engine first: a collection that is on no record would be found by nobody."""
        if gone.engine != EMBEDDED:
            try:
                self.engines.holding(gone.engine).drop(gone.physical)
            except Unavailable:
                if self.leave is None:
                    raise
                self.leave(tenant, gone)
        self.step("dropped", 0, 0)
        with tenant.writing() as view:
            forget(view, gone)
            if all(row.model.id != gone.model.id for row in all_collections(view)):
                view.execute(delete(vectors).where(vectors.c.model_id == gone.model.id))
                view.execute(delete(models).where(models.c.id == gone.model.id))
        tenant.erase_traces()
        self.step("forgotten", 0, 0)
        return gone


def embed_missing(tenant: TenantHandle, model: Model, embedder: Embedder, step: Step) -> None:
    """Make the missing vectors: each batch is embedded outside of any transaction, and durable when it is done."""
    with tenant.reading() as view:
        done, of = 0, missing_vectors(view, model)
    after = 0
    while True:
        with tenant.reading() as view:
            rows = view.execute(_NEXT_MISSING, {"model": model.id, "after": after}).all()
        if not rows:
            return
        made = embedder.encode([embedded_text(row.text, row.context) for row in rows])
        ids = [row.id for row in rows]
        with tenant.writing() as view:
            _store(view, model, ids, made)
        after, done = ids[-1], done + len(ids)
        step("embedded", done, max(done, of))


def missing_vectors(view: ReadView, model: Model) -> int:
    """How many chunks have no vector of the model."""
    return int(view.execute(_COUNT_MISSING, {"model": model.id}).scalar_one())


def _store(
    view: WriteView, model: Model, ids: Sequence[int], made: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    """Write the vectors of the chunks that still exist."""
    present = set(view.execute(_PRESENT, {"ids": list(ids)}).scalars())
    rows = [
        {"chunk_id": chunk_id, "model_id": model.id, "vector": vector.astype("<f4").tobytes()}
        for chunk_id, vector in zip(ids, made, strict=True)
        if chunk_id in present
    ]
    if rows:
        view.execute(insert(vectors), rows)


def _too_busy(tenant: TenantHandle) -> Unavailable:
    return Unavailable(
        "documents are written faster than the move can follow",
        item=tenant.name,
        remedy="repeat the command when less is written; what is done stays",
    )
