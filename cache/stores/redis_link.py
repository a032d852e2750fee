"""The connection to Redis: short timeouts, a circuit breaker, and what a server has to be before it is trusted.

Every failure leaves here as `Unavailable` or `Corrupt`. Nothing that is sent or received stands in a message or a log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from cache.stores.port import UnfitStore
from cache.stores.redis_scripts import Script
from tenancy.breaker import Breaker
from tenancy.errors import Corrupt, InvalidInput, Unavailable
from tenancy.redis_link import ServerLink, Use
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
_USE: Final = Use(
    section="cache.redis",
    least=LEAST_VERSION,
    evicts="quotas are kept per tenant, and Redis would evict another tenant's",
    when_full="raise maxmemory, or lower the quotas",
    failed=Unavailable,
    unfit=UnfitStore,
    away="the cache at Redis is %s: questions are answered afresh",
    back="the cache at Redis is back",
    log=logging.getLogger(__name__),
)
# What Redis says of a key of another type, and of a script that met a value which it cannot read.
_DAMAGE: Final = ("WRONGTYPE", "user_script")


class Link(ServerLink):
    """One process's connections to one server. Safe for threads."""

    def __init__(self, settings: RedisSettings, *, breaker: Breaker | None = None) -> None:
        """Opens nothing yet. Raises `InvalidInput` for settings that cannot be used."""
        super().__init__(settings, _USE, breaker or Breaker(settings.failures, settings.retry_s))
        # One try more where the connection that a pool kept was closed meanwhile; none where the server is slow.
        again = Retry(NoBackoff(), 1, supported_errors=(Disconnected,))
        self._client: Any = redis.Redis(**options(settings), retry=again, decode_responses=False)

    def call(self, work: Callable[[Any], T], *, write: bool = False) -> T:
        """What `work` returns. Raises `Unavailable`, at once while the breaker is open; `Corrupt` for keys of wrong
        types.
        """
        self._admit(_missed(write))
        try:
            if not self._checked:
                self._check()
            done = work(self._client)
        except RedisError as error:
            raise self._explained(error, write=write) from None
        except OSError as error:
            raise self._explained(Disconnected(str(error)), write=write) from None
        self._succeeded()
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

    def close(self) -> None:
        self._client.close()

    def _run(self, client: Any, script: Script, tenant_prefix: str, arguments: Sequence[Any]) -> Any:
        keys, values = [tenant_prefix + "state"], [tenant_prefix, *arguments]
        try:
            return client.evalsha(script.sha, len(keys), *keys, *values)
        except NoScriptError:
            return client.eval(script.source, len(keys), *keys, *values)

    def _check(self) -> None:
        """Version, eviction policy, vector sets. Another server may have taken the place of one that was away."""
        self._fit(self._client.info("server", "memory"))
        try:
            self._client.execute_command("VCARD", "sr:{-}:v:-")
        except ResponseError as error:
            if "unknown command" not in str(error).lower():
                raise
            raise self._unfit("has no vector sets", "run Redis 8 or newer, built with vector sets") from None
        self._checked = True

    def _explained(self, error: RedisError, *, write: bool) -> Unavailable | Corrupt:
        kind = type(error).__name__
        self._count(f"failed_{kind}")
        self._count(_missed(write))
        if isinstance(error, OutOfMemoryError):
            return self._failed("full", kind)
        if isinstance(error, ReadOnlyError):
            self._client.connection_pool.disconnect(inuse_connections=False)
            return self._failed("replica", kind)
        if isinstance(error, ResponseError) and any(word in str(error) for word in _DAMAGE):
            return Corrupt(
                "holds keys that this program did not write", item=self.item, remedy="strongroom cache repair"
            )
        if isinstance(error, AuthenticationError | NoPermissionError):
            return self._failed("refused", kind)
        return self._failed("away", kind, answers=isinstance(error, ResponseError | MaxConnectionsError))


def _missed(write: bool) -> str:
    return "writes_dropped" if write else "misses_while_away"
