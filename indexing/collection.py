"""The port of collections: one tenant, one physical index, searched only under a permission domain."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from indexing.catalogue import Collection
from indexing.filters import Filter
from indexing.terms import TermVector
from tenancy.domain import PermissionDomain
from tenancy.errors import StaleDomain
from tenancy.tenant import Epochs, ReadView, TenantHandle


class Scored(NamedTuple):
    """A chunk and its score in one leg: a cosine for dense, BM25 for lexical. Legs are not comparable."""

    chunk_id: int
    score: float


class EngineDisagrees(StaleDomain):
    """A server engine holds something else than the snapshot: another state, or a wrong one.

    `chunk_ids` came back and may not be read; with none, something was missing. `lost` says that the engine does not
    know the collection at all.
    """

    def __init__(self, reason: str, *, item: str, chunk_ids: tuple[int, ...] = (), lost: bool = False) -> None:
        super().__init__(reason, item=item)
        self.chunk_ids = chunk_ids
        self.lost = lost


class CollectionSnapshot(Protocol):
    """One state of one tenant's collection. Searches are safe from any number of threads.

    Both legs return at most `k` chunks, all readable, by falling score and then rising chunk id, and are
    exact: where `k` readable chunks exist that `where` describes (for the lexical leg: that share a term), `k` come
    back. Both raise
    `StaleDomain` for a domain of another tenant or another state; `dense` also raises `EngineDisagrees` and
    `Unavailable` where a server engine holds the vectors.
    """

    @property
    def tenant_id(self) -> str: ...

    @property
    def epochs(self) -> Epochs: ...

    @property
    def collection(self) -> Collection | None:
        """The record of what is searched; None for a tenant without documents."""
        ...

    def dense(
        self, domain: PermissionDomain, vector: npt.NDArray[np.float32], k: int, where: Filter | None = None
    ) -> list[Scored]:
        """The nearest chunks to `vector` (dimension,) by inner product."""
        ...

    def lexical(self, domain: PermissionDomain, terms: TermVector, k: int, where: Filter | None = None) -> list[Scored]:
        """The best chunks for `terms` by BM25 with the statistics of the readable chunks alone."""
        ...


class Collections(Protocol):
    """The collections of all tenants."""

    def opened(self, tenant: TenantHandle) -> AbstractContextManager[tuple[ReadView, CollectionSnapshot]]:
        """A read transaction of the tenant, and its collection in the very state that the transaction sees.

        Raises `ModelMismatch`, `Corrupt`, `Unavailable` (no memory for it, or its engine is away), and `StaleDomain`
        where the database is older than what is in memory: another file was put in its place.
        """
        ...

    def behind(self, tenant: TenantHandle) -> str | None:
        """The engine that has yet to acknowledge what is committed; None where none has."""
        ...

    def settle(self, tenant: TenantHandle) -> None:
        """Wait until the tenant's engine has acknowledged everything that is committed; for writers.

        Raises `Unavailable`: what is written is durable, and the next question or write brings the engine up to it.
        """
        ...

    def repair(self, tenant: TenantHandle, found: EngineDisagrees) -> None:
        """Put right what a search found wrong at the tenant's engine. Raises `Unavailable`."""
        ...

    @property
    def tenants(self) -> set[str]:
        """The ids of tenants of which something is in memory."""
        ...

    def close(self, tenant_id: str) -> None:
        """Forget a tenant. Searches that are running end undisturbed."""
        ...
