"""What each tenant has of the engines: seconds of their time, and tokens of their KV memory. Both are estimates.

An engine computes its batch as one, and tells nobody whose part took how long. So its time is divided as under
processor sharing (Kleinrock, "Time-shared systems: a theoretical treatment", Journal of the ACM 14(2), 1967): while n
requests run at a replica for dt, each of them has dt / n, a tenant dt / n for each of its own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineUse:
    """Of one tenant over some time: `engine_ns` nanoseconds of replicas, and the most tokens that its running requests
    had at one time, prompts and what was written to them. Times add up; of peaks the higher one stays.
    """

    engine_ns: int = 0
    kv_peak: int = 0

    def __add__(self, other: EngineUse) -> EngineUse:
        return EngineUse(self.engine_ns + other.engine_ns, max(self.kv_peak, other.kv_peak))


@dataclass(slots=True)
class _Tenant:
    engine_ns: int = 0
    held: int = 0
    peak: int = 0


@dataclass(slots=True)
class _Replica:
    """The `requests` that run at it, by tenant; their time is divided up to `since`."""

    since: int
    requests: int = 0
    running: dict[str, int] = field(default_factory=dict)


class Occupancy:
    """The requests at the replicas of one pool. One thread at a time; tenants at rest leave with `take`.

    `clock` gives nanoseconds and never goes back. In whole nanoseconds the times of all tenants at a replica (those
    of no tenant have the name "") are exactly the time in which it had any request.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._replicas: dict[object, _Replica] = {}
        self._tenants: defaultdict[str, _Tenant] = defaultdict(_Tenant)

    def begins(self, replica: object, tenant: str, tokens: int) -> None:
        """A request whose prompt has `tokens` runs at `replica` from now on."""
        now, place = self._clock(), self._replicas.get(replica)
        if place is None:
            place = self._replicas[replica] = _Replica(now)
        else:
            self._divide(place, now)
        place.requests += 1
        place.running[tenant] = place.running.get(tenant, 0) + 1
        self.grows(tenant, tokens)

    def grows(self, tenant: str, tokens: int) -> None:
        """A running request has so many tokens more; below zero, fewer than was thought."""
        client = self._tenants[tenant]
        client.held += tokens
        if client.held > client.peak:
            client.peak = client.held

    def ends(self, replica: object, tenant: str, tokens: int) -> None:
        """A request that had `tokens` in the end runs no longer."""
        place = self._replicas[replica]
        self._divide(place, self._clock())
        place.requests -= 1
        if not place.requests:
            del self._replicas[replica]
        elif place.running[tenant] == 1:
            del place.running[tenant]
        else:
            place.running[tenant] -= 1
        self._tenants[tenant].held -= tokens

    def take(self) -> dict[str, EngineUse]:
        """The use by tenant since this was called last, up to now."""
        now = self._clock()
        for place in self._replicas.values():
            self._divide(place, now)
        found = {}
        for tenant, client in list(self._tenants.items()):
            found[tenant] = EngineUse(client.engine_ns, client.peak)
            client.engine_ns, client.peak = 0, client.held
            if not client.held:
                del self._tenants[tenant]
        return found

    def _divide(self, place: _Replica, now: int) -> None:
        """Give the time since the last change to whoever ran. Parts are differences of whole sums: none is lost."""
        elapsed, place.since = now - place.since, now
        counted, given = 0, 0
        for tenant, requests in place.running.items():
            counted += requests
            part = elapsed * counted // place.requests - given
            given += part
            self._tenants[tenant].engine_ns += part
