"""The connection to Redis: short timeouts, a circuit breaker, and what a server has to be before it is trusted.

Every failure leaves here as `Unavailable` or `Corrupt`. Nothing that is sent or received stands in a message or a log.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from cache.stores.port import UnfitStore
from cache.stores.redis_scripts import Script
from tenancy.breaker import Breaker
from tenancy.errors import Corrupt, InvalidInput, Unavailable
from tenancy.redis_settings import RedisSettings, options

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        MaxConnectionsError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as Disconnected
    from redis.retry import Retry
except ImportError:
    raise InvalidInput(
        "needs the client of Redis, which is not installed",
        item="cache.store",
        remedy="install strongroom with the extra redis, or set cache.store to local",
    ) from None

LEAST_VERSION: Final = (8, 0)
T = TypeVar("T")
_logger = logging.getLogger(__name__)
# What Redis says of a key of another type, and of a script that met a value which it cannot read.
_DAMAGE: Final = ("WRONGTYPE", "user_script")


class Link:
    """One process's connections to one server. Safe for threads."""

    def __init__(self, settings: RedisSettings, *, breaker: Breaker | None = None) -> None:
        """Opens nothing yet. Raises `InvalidInput` for settings that cannot be used."""
        self.item = f"redis at {settings.url}"
        # One try more where the connection that a pool kept was closed meanwhile; none where the server is slow.
        again = Retry(NoBackoff(), 1, supported_errors=(Disconnected,))
        self._client: Any = redis.Redis(
            **options(settings), retry=again, protocol=2, decode_responses=False, client_name="strongroom"
        )
        self._breaker = breaker or Breaker(settings.failures, settings.retry_s)
        self._checked = False
        self._detail = "not asked yet"
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def call(self, work: Callable[[Any], T], *, write: bool = False) -> T:
        """What `work` returns. Raises `Unavailable`, at once while the breaker is open; `Corrupt` for keys of wrong
        types.
        """
        if not self._breaker.admits():
            self._count("writes_dropped" if write else "misses_while_away")
            raise Unavailable("is away and left alone for a while", item=self.item, remedy="see `strongroom doctor`")
        try:
            if not self._checked:
                self._check()
            done = work(self._client)
        except RedisError as error:
            raise self._explained(error, write=write) from None
        except OSError as error:
            raise self._explained(Disconnected(str(error)), write=write) from None
        self._available()
        return done

    def script(self, script: Script, tenant_prefix: str, *arguments: Any) -> Any:
        """Run a script of `redis_scripts` on one tenant's keys."""
        return self.call(lambda client: self._run(client, script, tenant_prefix, arguments), write=True)

    def check(self) -> str:
        """The server's version, where it is one that may be used.

        Raises `UnfitStore` naming the setting and the remedy, `Unavailable` where it cannot be asked.
        """
        self._checked = False
        return self.call(lambda client: str(client.info("server")["redis_version"]))

    @property
    def available(self) -> bool:
        return not self._breaker.is_open

    @property
    def detail(self) -> str:
        return self._detail

    @property
    def counts(self) -> Mapping[str, int]:
        """Events since the process began, by name."""
        with self._lock:
            return dict(self._counts)

    def close(self) -> None:
        self._client.close()

    def _run(self, client: Any, script: Script, tenant_prefix: str, arguments: Sequence[Any]) -> Any:
        keys, values = [tenant_prefix + "state"], [tenant_prefix, *arguments]
        try:
            return client.evalsha(script.sha, len(keys), *keys, *values)
        except NoScriptError:
            return client.eval(script.source, len(keys), *keys, *values)

    def _check(self) -> None:
        """Version, vector sets, eviction policy. Another server may have taken the place of one that was away."""
        found: dict[str, Any] = self._client.info("server", "memory")
        version = str(found.get("redis_version", "0"))
        parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if parts < LEAST_VERSION:
            raise self._unfit(f"has version {version}", "run Redis 8 or newer")
        try:
            self._client.execute_command("VCARD", "sr:{-}:v:-")
        except ResponseError as error:
            if "unknown command" not in str(error).lower():
                raise
            raise self._unfit("has no vector sets", "run Redis 8 or newer, built with vector sets") from None
        policy = str(found.get("maxmemory_policy", "unknown"))
        if policy != "noeviction":
            raise self._unfit(
                f"has maxmemory-policy {policy}",
                "set maxmemory-policy noeviction: quotas are kept per tenant, and Redis would evict another tenant's",
            )
        self._checked = True

    def _unfit(self, reason: str, remedy: str) -> UnfitStore:
        self._note(f"not fit: it {reason}", at_once=True)
        return UnfitStore(reason, item=self.item, remedy=remedy)

    def _available(self) -> None:
        self._detail = "available"
        if self._breaker.succeeded():
            self._count("recoveries")
            _logger.warning("the cache at Redis is back")

    def _explained(self, error: RedisError, *, write: bool) -> Unavailable | Corrupt:
        kind = type(error).__name__
        self._count(f"failed_{kind}")
        self._count("writes_dropped" if write else "misses_while_away")
        if isinstance(error, OutOfMemoryError):
            # What is there can still be read; only nothing is added.
            return Unavailable("is out of memory", item=self.item, remedy="raise maxmemory, or lower the quotas")
        if isinstance(error, ReadOnlyError):
            self._client.connection_pool.disconnect(inuse_connections=False)
            self._checked = False
            return Unavailable("is a replica, which takes no writes", item=self.item, remedy="name the primary")
        if isinstance(error, ResponseError) and any(word in str(error) for word in _DAMAGE):
            return Corrupt(
                "holds keys that this program did not write", item=self.item, remedy="strongroom cache repair"
            )
        refused = isinstance(error, AuthenticationError | NoPermissionError)
        # A server that answers costs no time; one that does not, or refuses everything, is left alone.
        if refused or not isinstance(error, ResponseError | MaxConnectionsError):
            self._note(f"away ({kind})", at_once=refused)
        if refused:
            return Unavailable(
                "refuses this user or password",
                item=self.item,
                remedy="check cache.redis.username, cache.redis.password_file and the user's ACL",
            )
        return Unavailable(f"cannot be used ({kind})", item=self.item, remedy="check that it runs and is reachable")

    def _note(self, detail: str, *, at_once: bool) -> None:
        self._checked = False
        self._detail = detail
        if self._breaker.failed(at_once=at_once):
            self._count("outages")
            _logger.warning("the cache at Redis is %s: questions are answered afresh", detail)

    def _count(self, event: str) -> None:
        with self._lock:
            self._counts[event] += 1
