"""Failed authentications are slowed down per source and per credential, in bounded memory.

Counters are token buckets: a bucket holds N failures and recovers N per window. What is promised:

* A source (network address) that failed `source_failures` times waits, whatever it presents next; only a credential
  that worked from this very source before is exempt, so a neighbour behind one address cannot lock it out.
* A source that failed `credential_failures` times with one credential waits with that credential.
* A credential that failed `spread_failures` times over all sources is under attack: from then on a source gets one
  failure with it, not `credential_failures`. A source that never failed with it still passes, so **nobody can lock
  a key by failing with its id from elsewhere**. The most that an attacker can do to the holder of a key is to share
  its address and fail with its id there: for as long as that lasts, the two compete for one try in every
  `window_s / credential_failures` seconds.
* Counters of what was not seen for longest are dropped first. Dropping one forgets failures or an exemption; it
  never refuses anybody.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec

from tenancy.errors import Throttled

Count = Annotated[int, msgspec.Meta(ge=1)]
_Key = TypeVar("_Key", bound=Hashable)


class ThrottlePolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Failures that are let pass per `window_s` seconds; `entries` bounds each of the three tables."""

    source_failures: Count = 30
    credential_failures: Count = 10
    spread_failures: Count = 100
    window_s: Annotated[float, msgspec.Meta(gt=0)] = 300.0
    entries: Count = 20_000


@dataclass(slots=True)
class _Bucket:
    level: float = 0.0
    updated: float = 0.0
    proven: bool = False


class _Buckets(Generic[_Key]):
    """Buckets by key, the least recently used dropped first. The caller holds the lock."""

    def __init__(self, failures: int, policy: ThrottlePolicy) -> None:
        self.failures = failures
        self._rate = failures / policy.window_s
        self._entries = policy.entries
        self._buckets: OrderedDict[_Key, _Bucket] = OrderedDict()

    def find(self, key: _Key, now: float) -> _Bucket | None:
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.level = max(0.0, bucket.level - (now - bucket.updated) * self._rate)
            bucket.updated = now
            self._buckets.move_to_end(key)
        return bucket

    def make(self, key: _Key, now: float) -> _Bucket:
        bucket = self.find(key, now)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(updated=now)
            if len(self._buckets) > self._entries:
                self._buckets.popitem(last=False)
        return bucket

    def wait(self, bucket: _Bucket | None, failures: int) -> float:
        """Seconds until `bucket` has room for one more of `failures`; 0 if it has."""
        return 0.0 if bucket is None else max(0.0, (bucket.level - (failures - 1)) / self._rate)

    def __len__(self) -> int:
        return len(self._buckets)


class Throttle:
    """`check` before a credential is verified, then `failed` or `succeeded`. Thread-safe.

    `source` is an address as the caller wants it counted (an IPv6 client is best counted by its /64); `credential`
    is an identifier that is no secret (a key id), or `None` where the credential names nobody.
    """

    def __init__(self, policy: ThrottlePolicy | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        policy = policy or ThrottlePolicy()
        self._clock = clock
        self._lock = threading.Lock()
        self._sources: _Buckets[str] = _Buckets(policy.source_failures, policy)
        self._credentials: _Buckets[str] = _Buckets(policy.spread_failures, policy)
        self._pairs: _Buckets[tuple[str, str]] = _Buckets(policy.credential_failures, policy)

    def check(self, source: str, credential: str | None) -> None:
        """Raise `Throttled` with the seconds to wait where this source may not try this credential now."""
        with self._lock:
            now = self._clock()
            wait, proven = self._pair_wait(source, credential, now)
            if not proven:
                bucket = self._sources.find(source, now)
                wait = max(wait, self._sources.wait(bucket, self._sources.failures))
        if wait > 0:
            raise Throttled("too many failed authentications", retry_after=wait)

    def failed(self, source: str, credential: str | None) -> None:
        """Count a credential that did not verify."""
        with self._lock:
            now = self._clock()
            self._sources.make(source, now).level += 1
            if credential is not None:
                self._credentials.make(credential, now).level += 1
                self._pairs.make((source, credential), now).level += 1

    def succeeded(self, source: str, credential: str | None) -> None:
        """Forget this pair's failures and exempt it from its source's.

        The source's own count stays: one valid key must not buy an attacker guesses at others.
        """
        if credential is None:
            return
        with self._lock:
            pair = self._pairs.make((source, credential), self._clock())
            pair.level, pair.proven = 0.0, True

    def _pair_wait(self, source: str, credential: str | None, now: float) -> tuple[float, bool]:
        pair = None if credential is None else self._pairs.find((source, credential), now)
        if credential is None or pair is None:
            return 0.0, False
        spread = self._credentials.find(credential, now)
        attacked = self._credentials.wait(spread, self._credentials.failures) > 0 and not pair.proven
        return self._pairs.wait(pair, 1 if attacked else self._pairs.failures), pair.proven
