"""Which model and which pipeline made a tenant's collection: recorded in its database, held against the present."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.sqlite import insert as upsert

from indexing.embed import Fingerprint
from tenancy.errors import ModelMismatch
from tenancy.schema import chunks, meta
from tenancy.tenant import ReadView, WriteView

_EMBEDDER: Final = "embedder"
_PIPELINE: Final = "pipeline"
_VALUE = select(meta.c.value).where(meta.c.key == bindparam("wanted"))


def require_model(view: ReadView, fingerprint: Fingerprint) -> bool:
    """True where the collection is bound to this model, False where it is still free. Raises `ModelMismatch`."""
    stored = view.execute(_VALUE, {"wanted": _EMBEDDER}).scalar_one_or_none()
    here = msgspec.to_builtins(fingerprint)
    if stored == here:
        return True
    if stored is None or view.execute(select(chunks.c.id).limit(1)).first() is None:
        return False
    differing = [f"{name} {stored.get(name)!r}, not {here[name]!r}" for name in here if stored.get(name) != here[name]]
    raise ModelMismatch(
        f"the collection was made with another embedding model: {'; '.join(differing)}",
        item=view.tenant.name,
        remedy="configure that model again, or delete the documents and ingest them with this one",
    )


def claim_model(view: WriteView, fingerprint: Fingerprint) -> None:
    """Bind a new or empty collection to a model. Raises `ModelMismatch`."""
    if not require_model(view, fingerprint):
        _store(view, _EMBEDDER, msgspec.to_builtins(fingerprint))


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
    statement = upsert(meta).values(key=key, value=value)
    view.execute(statement.on_conflict_do_update(index_elements=["key"], set_={"value": value}))
