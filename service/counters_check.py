"""Is the store of the counters there, and one that may be used? For the start of a server, its health, and `doctor`."""

from __future__ import annotations

import asyncio

import structlog

from admission.away import UnfitStore, WithAllowance
from admission.counters import Counters
from service.settings import Settings
from tenancy.errors import LimitsUnavailable

_log = structlog.get_logger("strongroom.admission")


async def server_of(counters: Counters) -> str | None:
    """What serves the counters, for instance "redis 8.2.3"; None for this process alone.

    Raises `UnfitStore`, naming the setting and the remedy, where it must not be used, `LimitsUnavailable` where it is
    away.
    """
    if not isinstance(counters, WithAllowance):
        return None
    from admission.redis import RedisCounters

    assert isinstance(counters.store, RedisCounters)
    return f"redis {await counters.store.link.check()}"


async def require_counters(counters: Counters) -> None:
    """At the start: a server that is away will be back, one that evicts by itself or is too old is an error."""
    try:
        await server_of(counters)
    except UnfitStore:
        raise
    except LimitsUnavailable as error:
        _log.warning("the counters are away: contracts say what is admitted", reason=error.reason, remedy=error.remedy)


def counters_away(counters: Counters) -> tuple[bool, int]:
    """Whether the store is away, and how many requests were refused for that since this process began."""
    if not isinstance(counters, WithAllowance):
        return False, 0
    return not counters.available, counters.counts["refused"]


def examine(settings: Settings) -> tuple[bool, str, str | None]:
    """Whether all is well, what was found, and the remedy."""
    from service.wiring import counters_at

    admission = settings.admission
    if admission.store == "memory":
        return True, "memory: each server counts for itself", None

    async def asked() -> str | None:
        counters = counters_at(admission, patient=True)
        try:
            return await server_of(counters)
        finally:
            await counters.aclose()

    try:
        found = asyncio.run(asked())
    except LimitsUnavailable as error:
        return False, f"{admission.redis.url}: {error.reason}", error.remedy
    return True, f"{found} at {admission.redis.url}, noeviction", None
