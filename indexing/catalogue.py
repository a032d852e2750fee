"""A tenant's physical collections on record: which one is searched, at which engine, with which model's vectors."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from sqlalchemy import Row, bindparam, insert, select, update

from indexing.embed import Fingerprint
from tenancy.schema import collections, models
from tenancy.tenant import ReadView, WriteView

EMBEDDED: Final = "faiss"
"""The engine that needs no server: exact search over the tenant's own database."""

State = Literal["building", "serving", "previous"]

_RECORDS: Final = select(
    collections, models.c.spec, models.c.fingerprint
).join(models, models.c.id == collections.c.model_id).order_by(collections.c.id)  # fmt: skip
_IN_STATE: Final = _RECORDS.where(collections.c.state == bindparam("wanted"))
_ONE: Final = _RECORDS.where(collections.c.id == bindparam("wanted"))


@dataclass(frozen=True, slots=True)
class Model:
    """An embedding model whose vectors the tenant holds; `spec` is how the settings name it."""

    id: int
    spec: str
    fingerprint: Fingerprint | None


@dataclass(frozen=True, slots=True)
class Collection:
    """A physical collection; `applied` is the newest change number that its engine has acknowledged.

    `sealing` is the key of its metadata (`indexing.filters`), which stays when the tenant's data key changes.
    """

    id: int
    engine: str
    physical: str
    model: Model
    state: State
    applied: int
    sealing: bytes = field(repr=False)


def serving(view: ReadView) -> Collection | None:
    """The collection that questions are searched in; None for a tenant without any document yet."""
    row = view.execute(_IN_STATE, {"wanted": "serving"}).one_or_none()
    return None if row is None else _collection(row)


def find(view: ReadView, collection_id: int) -> Collection | None:
    """One collection as it is on record now."""
    row = view.execute(_ONE, {"wanted": collection_id}).one_or_none()
    return None if row is None else _collection(row)


def all_collections(view: ReadView) -> list[Collection]:
    """Every collection on record, oldest first."""
    return [_collection(row) for row in view.execute(_RECORDS)]


def add_model(view: WriteView, spec: str, fingerprint: Fingerprint, now: float) -> Model:
    """The model on record, written where it is new. Equal fingerprints are one model."""
    stored = msgspec.to_builtins(fingerprint)
    for row in view.execute(select(models)):
        if row.fingerprint == stored:
            return Model(row.id, row.spec, fingerprint)
    added = view.execute(
        insert(models).values(spec=spec, fingerprint=stored, created=now).returning(models.c.id)
    ).scalar_one()  # fmt: skip
    return Model(int(added), spec, fingerprint)


def add_collection(view: WriteView, engine: str, model: Model, state: State, now: float) -> Collection:
    """Put a new, empty physical collection on record under a fresh opaque name."""
    physical = f"c_{secrets.token_hex(16)}"
    applied = 0 if engine == EMBEDDED else -1
    sealing = secrets.token_bytes(32)
    values = {"engine": engine, "physical": physical, "model_id": model.id, "state": state, "sealing": sealing}
    query = insert(collections).values(**values, applied=applied, created=now).returning(collections.c.id)
    added = view.execute(query).scalar_one()
    return Collection(int(added), engine, physical, model, state, applied, sealing)


def set_state(view: WriteView, collection: Collection, state: State) -> None:
    """Take a collection into or out of service. The caller moves the corpus epoch with it."""
    view.execute(update(collections).where(collections.c.id == collection.id).values(state=state))


def set_applied(view: WriteView, collection: Collection, number: int) -> bool:
    """Note how far the engine has acknowledged the list of changes; False where the collection is off the record."""
    changed = view.execute(update(collections).where(collections.c.id == collection.id).values(applied=number))
    return changed.rowcount == 1


def forget(view: WriteView, collection: Collection) -> None:
    """Take a collection off the record; the caller drops it at its engine."""
    view.execute(collections.delete().where(collections.c.id == collection.id))


def _collection(row: Row[Any]) -> Collection:
    return Collection(row.id, row.engine, row.physical, _model(row), row.state, row.applied, row.sealing)


def _model(row: Row[Any]) -> Model:
    try:
        fingerprint = msgspec.convert(row.fingerprint, Fingerprint)
    except msgspec.ValidationError:
        # Written by another version of the program: equal to no model of this one.
        fingerprint = None
    return Model(row.model_id, row.spec, fingerprint)
