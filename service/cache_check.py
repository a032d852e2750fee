"""Is the store of remembered answers there, and one that may be used? For the start of a server and for `doctor`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from cache.stores.port import CacheStore, UnfitStore
from service.settings import Settings
from tenancy.errors import Unavailable

_log = structlog.get_logger("strongroom.cache")


def server_of(store: CacheStore) -> str | None:
    """What serves the store, for instance "redis 8.2.3"; None for local files.

    Raises `UnfitStore`, naming the setting and the remedy, where it must not be used, `Unavailable` where it is away.
    """
    if store.health().kind == "local":
        return None
    from cache.stores.redis import RedisStore

    assert isinstance(store, RedisStore)
    return f"redis {store.link.check()}"


def require_fit(store: CacheStore) -> None:
    """At the start: a server that is away will be back, one that evicts by itself or is too old is an error."""
    try:
        server_of(store)
    except UnfitStore:
        raise
    except Unavailable as error:
        _log.warning("the cache is away: questions are answered afresh", reason=error.reason, remedy=error.remedy)


def examine(settings: Settings) -> tuple[bool, str, str | None]:
    """Whether all is well, what was found, and the remedy."""
    from service.wiring import cache_store

    if settings.cache.store == "local":
        return True, "local: a file beside each tenant's documents", None
    store = cache_store(settings)
    try:
        found = server_of(store)
    except Unavailable as error:
        return False, f"{settings.cache.redis.url}: {error.reason}", error.remedy
    finally:
        store.shutdown()
    return True, f"{found} at {settings.cache.redis.url}, vector sets, noeviction", None


def shown(store: CacheStore) -> Mapping[str, Any]:
    """The store's health, for people and for JSON."""
    health = store.health()
    return {"kind": health.kind, "available": health.available, "detail": health.detail, **health.counts}
