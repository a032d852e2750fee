"""A server engine's collection held against the tenant's database: which chunks it lacks, and which it has too many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexing.catalogue import Collection, find
from indexing.engine import Engine
from indexing.remote.catching_up import LOCK
from indexing.remote.points import stored_ids
from tenancy.errors import NotFound, StaleDomain
from tenancy.tenant import EXCLUSIVE_S, TenantHandle


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """`stored` chunks in the database, `held` points at the engine; ids ascending.

    `lost` says that the engine does not know the collection, `behind` how many changes it has yet to hear of: those
    explain differences, and catching up removes them.
    """

    stored: int
    held: int
    missing: npt.NDArray[np.int64]
    surplus: npt.NDArray[np.int64]
    behind: int
    lost: bool

    @property
    def agrees(self) -> bool:
        return not (self.lost or len(self.missing) or len(self.surplus) or self.stored != self.held)


def compare(
    tenant: TenantHandle, engine: Engine, collection: Collection, *, patience_s: float = EXCLUSIVE_S
) -> Comparison:
    """Compare all ids while nobody writes to the engine; labels and vectors are not compared.

    Raises `Unavailable` where the engine is away, or being written for longer than `patience_s` seconds.
    """
    with tenant.exclusive(LOCK, patience_s):
        with tenant.reading() as view:
            current = find(view, collection.id)
            if current is None:
                raise StaleDomain("the collection was replaced meanwhile", item=collection.physical)
            newest, stored = view.epochs.changes, stored_ids(view)
        lost = False
        try:
            pieces = [np.asarray(piece, dtype=np.int64) for piece in engine.chunk_ids(current.physical)]
        except NotFound:
            lost, pieces = True, []
    held = np.concatenate([*pieces, np.empty(0, dtype=np.int64)])
    return Comparison(
        stored=len(stored),
        held=len(held),
        missing=np.setdiff1d(stored, held),
        surplus=np.setdiff1d(held, stored),
        behind=newest - max(current.applied, 0),
        lost=lost,
    )
