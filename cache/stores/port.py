"""The port of the cache's stores: what `cache.lookup` and `cache.store` may rely on, whichever back end is behind it.

A store keeps and finds; it decides nothing. Whoever serves an entry checks its checksum, namespace and freshness
again, whatever the store says. `tests/cache/conformance/` holds every store to these contracts.

Every method raises `Unavailable` where the back end is out of reach and `Corrupt` where it is damaged, unless it says
otherwise; for the cache both mean "not found" or "not stored", never an error for the asker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cache.entry import Dependencies, Entry, Vector
from cache.key import Namespace
from cache.policy import CachePolicy
from cache.stores.selector import Selector
from tenancy.errors import Unavailable
from tenancy.tenant import TenantHandle


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Sizes in bytes. `users` counts the distinct askers whose answers are kept."""

    entries: int
    bytes: int
    namespaces: int
    users: int
    expired: int
    max_entries: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry as an operator sees it: no vector, no payload. Times in UTC epoch seconds."""

    id: str
    template: str
    question: str
    dependencies: Dependencies
    created: float
    expires: float
    used: float
    origin_seq: int
    origin_user: str
    bytes: int


class UnfitStore(Unavailable):
    """The back end is reached and must not be used as it is set up: too old, or evicting by itself."""


@dataclass(frozen=True, slots=True)
class StoreHealth:
    """How the back end is reached. `counts`: events since the process began, by name (`misses_while_away`, ...)."""

    kind: str
    available: bool
    detail: str
    counts: Mapping[str, int]


@runtime_checkable
class Purges(Protocol):
    """A store whose back end keeps a tenant's entries when the tenant's own files are destroyed."""

    def purge_deleted(self, tenant_id: str) -> int:
        """Remove all that is kept of a tenant that was deleted; returns how many entries. Nobody adds to it again."""


@runtime_checkable
class NamesAskers(Protocol):
    """A store of which each server has one of its own, so that no other removes from it what a deleted user asked."""

    def askers(self, tenant: TenantHandle) -> set[str]:
        """The ids of the users whose questions are remembered."""


class CacheStore(Protocol):
    """Entries of every tenant. What one tenant does evicts, finds, counts or slows down nothing of another's."""

    renews: bool
    """Set by the one server of a data directory: a damaged file may be replaced by an empty one."""

    @property
    def policy(self) -> CachePolicy:
        """Quotas and life times; the same for every tenant."""

    @property
    def clock(self) -> Callable[[], float]:
        """UTC epoch seconds. Expiry and age are judged by it, also where the back end has a clock of its own."""

    def get(self, tenant: TenantHandle, namespace: Namespace, exact: bytes) -> Entry | None:
        """The entry under an exact key; whether it may be served is the caller's to decide.

        Raises `InvalidInput` where the namespace is another tenant's.
        """

    def nearest(self, tenant: TenantHandle, namespace: Namespace, vector: Vector) -> list[tuple[Entry, float]]:
        """The policy's `nearest` entries of the namespace by cosine, best first, each as it is stored now.

        `vector` (dim,) float32, L2-normalised. The similarity is computed from the vector of the entry that is
        returned, never taken from an index. Raises `InvalidInput` where the namespace is another tenant's.
        """

    def put(self, tenant: TenantHandle, entry: Entry, *, allowed: Callable[[], str | None]) -> str | None:
        """Write a sealed entry in place of an older one of the same exact key; returns None, or why it did not.

        `allowed` says why the entry must not be written, or None; it is asked as late as the back end permits.
        Evicts only this tenant's entries, down to the quotas: expired ones, then the least recently used.
        """

    def confirm(self, tenant: TenantHandle, entry: Entry) -> bool:
        """Put the newly sealed `entry`, which differs in `confirmed` alone, in place of the one of the same id.

        Returns whether that one was still there; nothing is written where it was not. Expiry and use stay.
        """

    def holds(self, tenant: TenantHandle, entry: Entry) -> bool:
        """Whether `entry` is in the store, by its id and checksum: asked again just before it is served."""

    def touch(self, tenant: TenantHandle, entry: Entry) -> None:
        """Note that an entry served, for the order of eviction; may be written later, or lost. Raises nothing."""

    def discard(self, tenant: TenantHandle, entry: Entry) -> None:
        """Remove the entry of this id, for instance a corrupt one."""

    def sweep(self, tenant: TenantHandle) -> int:
        """Remove what has expired, in steps that hold nobody up; returns how many entries that were."""

    def repair(self, tenant: TenantHandle) -> int:
        """Sweep, remove what lacks its other half, and make indexes and totals agree with what is there; for an
        operator, since it reads all of it. Returns how many things were removed. No hit depends on it.
        """

    def invalidate(self, tenant: TenantHandle, selector: Selector) -> int:
        """Remove the selected entries; returns how many."""

    def purge(self, tenant: TenantHandle) -> int:
        """Remove everything of a tenant that is being deleted, whatever is damaged; returns how many entries."""

    def stats(self, tenant: TenantHandle) -> CacheStats:
        """What is stored of the tenant."""

    def inspect(
        self, tenant: TenantHandle, *, limit: int = 50, offset: int = 0, selector: Selector | None = None
    ) -> list[EntryRecord]:
        """Entries, newest first; `limit` 1 to 1000. Raises `InvalidInput`."""

    def health(self) -> StoreHealth:
        """How the back end is reached, as far as is known without asking it. Raises nothing."""

    def close(self, tenant_id: str) -> None:
        """Forget what is in memory of a tenant that was closed or deleted; removes nothing from the back end."""

    def shutdown(self) -> None:
        """Close connections at the end of the process."""

    @property
    def tenants(self) -> set[str]:
        """The ids of tenants of which something is in memory."""
