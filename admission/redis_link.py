"""The connection to the Redis server of the counters: short timeouts, a circuit breaker, and what a server has to be.

Every failure leaves here as `LimitsUnavailable`. Nothing that is sent or received stands in a message or a log.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from importlib import resources
from typing import Any, Final

from admission.away import UnfitStore
from tenancy.breaker import Breaker
from tenancy.errors import InvalidInput, LimitsUnavailable, Unavailable
from tenancy.redis_link import ServerLink, Use
from tenancy.redis_settings import RedisSettings, options

try:
    from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AuthenticationError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as Disconnected
except ImportError:
    raise InvalidInput(
        "needs the client of Redis, which is not installed",
        item="admission.store",
        remedy="install strongroom with the extra redis, or set admission.store to memory",
    ) from None

SECTION: Final = "admission.redis"
LEAST_VERSION: Final = (7, 0)
LONGEST_PAUSE_S: Final = 2.0
"""A server that is back is noticed within so many seconds: until then requests are refused for nothing."""

_SOURCE: Final = resources.files("admission").joinpath("counters.lua").read_text(encoding="utf-8")
# What begins a request is refused as a whole where the server is full; what ends one has to work there above all.
TAKES: Final = "#!lua\n" + _SOURCE
ENDS: Final = "#!lua flags=allow-oom\n" + _SOURCE


class Link(ServerLink):
    """One process's connections to one server, for one event loop at a time; those of a loop that ended are left."""

    def __init__(self, settings: RedisSettings, *, breaker: Breaker | None = None) -> None:
        """Opens nothing yet. Raises `InvalidInput` for settings that cannot be used."""
        # A server that is back is noticed soon: until then requests are refused for nothing.
        pauses = breaker or Breaker(settings.failures, settings.retry_s, longest_s=LONGEST_PAUSE_S)
        super().__init__(settings, _USE, pauses)
        self._settings = settings
        self._client: Any = Redis(connection_pool=_pool(settings))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shas = {source: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest() for source in _BOTH}

    async def run(self, source: str, key: str, *arguments: str | bytes) -> bytes:
        """What a script answers; it may run a second time where a connection was lost meanwhile.

        Raises `LimitsUnavailable`, at once while the breaker is open.
        """
        self._admit(_MISSED)
        try:
            if not self._checked:
                await self._check()
            try:
                found: bytes = await self._here().evalsha(self._shas[source], 1, key, *arguments)
            except NoScriptError:
                found = await self._here().eval(source, 1, key, *arguments)
        except RedisError as error:
            raise self._explained(error) from None
        except (OSError, TimeoutError) as error:
            raise self._explained(Disconnected(type(error).__name__)) from None
        self._succeeded()
        return found

    async def check(self) -> str:
        """The server's version, where it is one that may be used.

        Raises `UnfitStore` naming the setting and the remedy, `LimitsUnavailable` where it cannot be asked.
        """
        try:
            version = await self._check()
        except RedisError as error:
            raise self._explained(error) from None
        except (OSError, TimeoutError) as error:
            raise self._explained(Disconnected(type(error).__name__)) from None
        self._succeeded()
        return version

    async def aclose(self) -> None:
        """Close all connections; a later call opens new ones."""
        await self._here().connection_pool.disconnect()

    def _here(self) -> Any:
        """The client of the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            self._client = Redis(connection_pool=_pool(self._settings))
        self._loop = loop
        return self._client

    async def _check(self) -> str:
        """Another server may have taken the place of one that was away."""
        version = self._fit(await self._here().info("server", "memory"))
        self._checked = True
        return version

    def _explained(self, error: RedisError) -> Unavailable:
        self._count(_MISSED)
        kind = type(error).__name__
        if isinstance(error, OutOfMemoryError):
            return self._failed("full", kind)
        if isinstance(error, ReadOnlyError):
            return self._failed("replica", kind)
        if isinstance(error, AuthenticationError | NoPermissionError):
            return self._failed("refused", kind)
        if isinstance(error, ResponseError):
            return LimitsUnavailable(
                f"refused a step of the counters ({kind})",
                item=self.item,
                remedy="its keys {sr:admission}:* were changed by another program, or its version differs",
            )
        return self._failed("away", kind)


_BOTH: Final = (TAKES, ENDS)
_MISSED: Final = "calls_while_away"
_USE: Final = Use(
    section=SECTION,
    least=LEAST_VERSION,
    evicts="what Redis evicts here was spent, and would be free again",
    when_full="raise maxmemory",
    failed=LimitsUnavailable,
    unfit=UnfitStore,
    away="the counters at Redis are %s: requests are admitted by what contracts say of that",
    back="the counters at Redis are back",
    log=logging.getLogger(__name__),
)


def _pool(settings: RedisSettings) -> BlockingConnectionPool:
    found = dict(options(settings, SECTION))
    kind: type[Any] = Connection
    if found.pop("ssl", False):
        kind = SSLConnection
    elif "unix_socket_path" in found:
        kind, found["path"] = UnixDomainSocketConnection, found.pop("unix_socket_path")
    # One try more where the connection that a pool kept was closed meanwhile; none where the server is slow. Every
    # step may be repeated: a lease is taken, settled and left once.
    again = Retry(NoBackoff(), 1, supported_errors=(Disconnected,))
    return BlockingConnectionPool(
        **found,
        connection_class=kind,
        timeout=settings.timeout_s,
        retry=again,
    )
