"""Which model and which pipeline made a tenant's collection: on record in its database, held against the present."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import bindparam, delete, func, insert, select

from indexing.catalogue import EMBEDDED, Collection, Model, add_collection, add_model, forget, serving, set_state
from indexing.embed import Fingerprint
from tenancy.errors import ModelMismatch
from tenancy.schema import chunks, meta
from tenancy.tenant import ReadView, WriteView

_PIPELINE: Final = "pipeline"
_ANY_CHUNK: Final = select(chunks.c.id).limit(1)
_VALUE = select(meta.c.value).where(meta.c.key == bindparam("wanted"))


def require_model(view: ReadView, fingerprint: Fingerprint) -> Collection | None:
    """The serving collection where it is bound to this model, None where none is. Raises `ModelMismatch`."""
    found = serving(view)
    if found is None or found.model.fingerprint == fingerprint:
        return found
    if not holds_chunks(view):
        return None
    raise model_mismatch(view, found.model, fingerprint)


def holds_chunks(view: ReadView) -> bool:
    return view.execute(_ANY_CHUNK).first() is not None


def model_mismatch(view: ReadView, stored: Model, here: Fingerprint) -> ModelMismatch:
    """What to say where the collection's model is `stored` and the one at hand is `here`."""
    before = {} if stored.fingerprint is None else msgspec.to_builtins(stored.fingerprint)
    now = msgspec.to_builtins(here)
    differing = [f"{name} {before.get(name)!r}, not {now[name]!r}" for name in now if before.get(name) != now[name]]
    return ModelMismatch(
        f"the collection was made with another embedding model: {'; '.join(differing)}",
        item=view.tenant.name,
        remedy="configure that model again (embedding.also lists further ones), or `strongroom tenant move` the tenant",
    )


def claim_model(view: WriteView, spec: str, fingerprint: Fingerprint, engine: str, now: float) -> Collection:
    """The serving collection, made at `engine` for a tenant that has no document. Raises `ModelMismatch`."""
    found = require_model(view, fingerprint)
    if found is not None:
        return found
    replaced = serving(view)
    if replaced is not None:
        set_state(view, replaced, "previous")
        if replaced.engine == EMBEDDED:
            forget(view, replaced)
    return add_collection(view, engine, add_model(view, spec, fingerprint, now), "serving", now)


def current_since(view: ReadView, pipeline: str) -> int | None:
    """The chunk id behind which all chunks were made by `pipeline`; None where it has made none yet.

    Chunk ids only grow, so one number tells the documents of an earlier chunker or term revision from the rest.
    """
    stored = view.execute(_VALUE, {"wanted": _PIPELINE}).scalar_one_or_none()
    return int(stored["after"]) if stored is not None and stored["pipeline"] == pipeline else None


def claim_pipeline(view: WriteView, pipeline: str) -> None:
    """Note that chunks from now on are made by `pipeline`."""
    if current_since(view, pipeline) is None:
        newest = view.execute(select(func.max(chunks.c.id))).scalar() or 0
        _store(view, _PIPELINE, {"pipeline": pipeline, "after": newest})


def _store(view: WriteView, key: str, value: object) -> None:
    view.execute(delete(meta).where(meta.c.key == key))
    view.execute(insert(meta).values(key=key, value=value))
