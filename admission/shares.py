"""Service received beside service due: whether a tenant got its share of what there was.

Due is what max-min fairness gives: the tenant's weight among those that wait or are served, or all that it asked for
where that is less. The virtual time of weighted fair queueing (Demers, Keshav and Shenker, SIGCOMM 1989) sums up the
first: it grows by work / (sum of active weights), so that an entitlement is weight x growth, at constant cost.

Work is tokens read + 2 x tokens written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Client:
    """`since` is the virtual time up to which `entitled` is summed; `waiting` are the tokens of prompts that wait."""

    weight: float
    since: float = 0.0
    requests: int = 0
    waiting: int = 0
    entitled: float = 0.0
    received: float = 0.0
    gave_up: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """Of one tenant over some time: work `received`, that it was `entitled` to by its weight, and asked for in vain:
    tokens of prompts that gave up, or wait still.
    """

    received: float = 0.0
    entitled: float = 0.0
    unserved: float = 0.0

    @property
    def due(self) -> float:
        return min(self.entitled, self.received + self.unserved)

    @property
    def ratio(self) -> float | None:
        """Received by due; `None` where nothing was due."""
        return self.received / self.due if self.due > 0 else None

    def __add__(self, other: Share) -> Share:
        return Share(self.received + other.received, self.entitled + other.entitled, self.unserved + other.unserved)


class Shares:
    """The shares of one queue. One thread at a time; tenants at rest leave with `take`."""

    def __init__(self) -> None:
        self._clients: dict[str, _Client] = {}
        self._virtual = 0.0
        self._weights = 0.0
        self._active = 0

    def waits(self, tenant: str, weight: float, tokens: int) -> None:
        """A request whose prompt has `tokens` begins to wait."""
        client = self._clients.get(tenant)
        if client is None:
            client = self._clients[tenant] = _Client(weight)
        if not client.requests:
            client.weight, client.since = weight, self._virtual
            self._weights += weight
            self._active += 1
        client.requests += 1
        client.waiting += tokens

    def begins(self, tenant: str, tokens: int) -> None:
        """A request that waited is served from now on."""
        self._clients[tenant].waiting -= tokens

    def gives_up(self, tenant: str, tokens: int) -> None:
        """A request that waited is gone."""
        client = self._clients[tenant]
        client.waiting -= tokens
        client.gave_up += tokens
        self._less(client)

    def ends(self, tenant: str) -> None:
        """A request that was served is done."""
        self._less(self._clients[tenant])

    def served(self, tenant: str, work: float) -> None:
        """So much was done for a request that is served; below zero, less than was thought."""
        self._clients[tenant].received += work
        self._virtual += work / self._weights

    def take(self) -> dict[str, Share]:
        """The shares by tenant since this was called last."""
        found = {}
        for tenant, client in list(self._clients.items()):
            if client.requests:
                self._settle(client)
            else:
                del self._clients[tenant]
            found[tenant] = Share(client.received, client.entitled, client.gave_up + client.waiting)
            client.received, client.entitled, client.gave_up = 0.0, 0.0, 0
        return found

    def _settle(self, client: _Client) -> None:
        client.entitled += client.weight * (self._virtual - client.since)
        client.since = self._virtual

    def _less(self, client: _Client) -> None:
        client.requests -= 1
        if client.requests:
            return
        self._settle(client)
        self._active -= 1
        # Sums of decimals do not come back to nothing by themselves.
        self._weights = self._weights - client.weight if self._active else 0.0
