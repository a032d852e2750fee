"""What each tenant has of the engines: seconds of their time, and tokens of their KV memory. Both are estimates.

An engine computes its batch as one, and tells nobody whose part took how long. So its time is divided as under
processor sharing (Kleinrock, "Time-shared systems: a theoretical treatment", Journal of the ACM 14(2), 1967): while n
requests run at a replica for dt, each of them has dt / n, a tenant dt / n for each of its own.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass


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


class Occupancy:
    """The requests at the replicas of one pool. One thread at a time; tenants at rest leave with `take`.

    `clock` gives nanoseconds and never goes back. In whole nanoseconds the times of all tenants at a replica (those
    of no tenant have the name "") are exactly the time in which it had any request.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._running: dict[object, Counter[str]] = {}
        self._since: dict[object, int] = {}
        self._tenants: defaultdict[str, _Tenant] = defaultdict(_Tenant)

    def begins(self, replica: object, tenant: str, tokens: int) -> None:
        """A request whose prompt has `tokens` runs at `replica` from now on."""
        self._divide(replica, self._clock())
        self._running.setdefault(replica, Counter())[tenant] += 1
        self.grows(tenant, tokens)

    def grows(self, tenant: str, tokens: int) -> None:
        """A running request has so many tokens more; below zero, fewer than was thought."""
        client = self._tenants[tenant]
        client.held += tokens
        client.peak = max(client.peak, client.held)

    def ends(self, replica: object, tenant: str, tokens: int) -> None:
        """A request that had `tokens` in the end runs no longer."""
        self._divide(replica, self._clock())
        running = self._running[replica]
        running[tenant] -= 1
        if not running[tenant]:
            del running[tenant]
        if not running:
            del self._running[replica], self._since[replica]
        self._tenants[tenant].held -= tokens

    def take(self) -> dict[str, EngineUse]:
        """The use by tenant since this was called last, up to now."""
        now = self._clock()
        for replica in self._running:
            self._divide(replica, now)
        found = {}
        for tenant, client in list(self._tenants.items()):
            found[tenant] = EngineUse(client.engine_ns, client.peak)
            client.engine_ns, client.peak = 0, client.held
            if not client.held:
                del self._tenants[tenant]
        return found

    def _divide(self, replica: object, now: int) -> None:
        """Give the time since the last change to whoever ran. Parts are differences of whole sums: none is lost."""
        elapsed, self._since[replica] = now - self._since.get(replica, now), now
        running = self._running.get(replica, Counter[str]())
        total, counted, given = running.total(), 0, 0
        for tenant, requests in running.items():
            counted += requests
            part = elapsed * counted // total - given
            given += part
            self._tenants[tenant].engine_ns += part
