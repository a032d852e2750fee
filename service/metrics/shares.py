"""Service received beside service due, over the times in which a tenant waits.

While a tenant waits in a queue, the work that the replicas behind it do is due to it by its weight among those that
wait or are served. The virtual time of weighted fair queueing (Demers, Keshav and Shenker, SIGCOMM 1989) sums that up:
it grows by work / (sum of active weights), so that a tenant's due is weight x growth, at constant cost for each event.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Client:
    weight: float
    waiting: int = 0
    running: int = 0
    since: float = 0.0
    """Virtual time when it began to wait."""
    due: float = 0.0
    received: float = 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """Work units (tokens read + 2 x tokens written) received and due while the tenant waited."""

    received: float = 0.0
    due: float = 0.0

    @property
    def ratio(self) -> float | None:
        return self.received / self.due if self.due > 0 else None

    def __add__(self, other: Share) -> Share:
        return Share(self.received + other.received, self.due + other.due)


class Shares:
    """The shares of one pool. One task at a time."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._virtual = 0.0
        self._weights = 0.0
        self._active = 0

    def waits(self, tenant: str, weight: float = 1.0) -> None:
        """A request of `tenant` begins to wait."""
        client = self._client(tenant, weight)
        if not client.waiting:
            client.since = self._virtual
        client.waiting += 1

    def begins(self, tenant: str) -> None:
        """A request that waited is served from now on."""
        client = self._clients[tenant]
        self._waits_less(client)
        client.running += 1

    def gives_up(self, tenant: str) -> None:
        """A request that waited is gone."""
        client = self._clients[tenant]
        self._waits_less(client)
        self._rest(tenant, client)

    def ends(self, tenant: str) -> None:
        """A request that was served is done."""
        client = self._clients[tenant]
        client.running -= 1
        self._rest(tenant, client)

    def served(self, tenant: str, work: float) -> None:
        """So much was done for `tenant`, one that waits or is served."""
        client = self._clients[tenant]
        if client.waiting:
            client.received += work
        self._virtual += work / self._weights

    def take(self) -> dict[str, Share]:
        """What each tenant received and was due since this was called last; those at rest are forgotten."""
        found = {}
        for tenant, client in list(self._clients.items()):
            if client.waiting:
                self._settle(client)
            found[tenant] = Share(client.received, client.due)
            client.received = client.due = 0.0
            if not client.waiting and not client.running:
                del self._clients[tenant]
        return {tenant: share for tenant, share in found.items() if share.due > 0}

    def _client(self, tenant: str, weight: float) -> _Client:
        client = self._clients.get(tenant)
        if client is None:
            client = self._clients[tenant] = _Client(weight)
        if not client.waiting and not client.running:
            client.weight = weight
            self._weights += weight
            self._active += 1
        return client

    def _settle(self, client: _Client) -> None:
        client.due += client.weight * (self._virtual - client.since)
        client.since = self._virtual

    def _waits_less(self, client: _Client) -> None:
        client.waiting -= 1
        if not client.waiting:
            self._settle(client)

    def _rest(self, tenant: str, client: _Client) -> None:
        """Its weight counts no more; what it received stays until it is taken."""
        if client.waiting or client.running:
            return
        self._active -= 1
        # Sums of decimals do not come back to nothing by themselves.
        self._weights = self._weights - client.weight if self._active else 0.0
        if client.due <= 0:
            del self._clients[tenant]
