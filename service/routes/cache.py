"""GET and DELETE /v1/cache/entries: what is remembered, and removing it, for administrators."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, Router, delete, get
from litestar.params import FromQuery

from service.auth import QUERY, principal_of
from service.charging import FREE, WITHDRAWS
from service.openapi import PROBLEMS
from service.operation import operation
from service.selection import Selection, invalidate
from service.wiring import Services
from tenancy.identity import Role


class CacheEntry(msgspec.Struct, frozen=True):
    """An entry without its question and answer. Times are UTC epoch seconds, `bytes` its size in the quota."""

    id: str
    template: str
    created: float
    expires: float
    used: float
    bytes: int
    documents: int
    origin_seq: int


class CacheEntries(msgspec.Struct, frozen=True):
    entries: list[CacheEntry]


class Removed(msgspec.Struct, frozen=True):
    removed: int


def router(services: Services) -> Router:
    control, workers, store = services.control, services.workers, services.path.cache

    @get("/", opt={QUERY: frozenset({"limit", "offset"})}, summary="List cache entries", responses=PROBLEMS)
    async def list_entries(
        request: Request[Any, Any, Any], limit: FromQuery[int] = 50, offset: FromQuery[int] = 0
    ) -> CacheEntries:
        """Entries, newest first; `limit` is 1 to 1000."""
        principal = principal_of(request)

        def read() -> list[CacheEntry]:
            found = store.inspect(control.tenants.open(principal), limit=limit, offset=offset)
            return [
                CacheEntry(
                    entry.id, entry.template, entry.created, entry.expires, entry.used, entry.bytes,
                    len(entry.dependencies), entry.origin_seq,
                )
                for entry in found
            ]  # fmt: skip

        async with operation(control, request, "cache.inspect", Role.ADMIN) as trail:
            await trail.intent()
            return CacheEntries(await workers.run(read))

    @delete(
        "/",
        status_code=200,
        opt={QUERY: frozenset({"document", "entry", "user", "template", "older_than", "all"}), FREE: WITHDRAWS},
        summary="Invalidate cache entries",
        responses=PROBLEMS,
    )
    async def invalidate_entries(
        request: Request[Any, Any, Any],
        document: FromQuery[str | None] = None,
        entry: FromQuery[str | None] = None,
        user: FromQuery[str | None] = None,
        template: FromQuery[str | None] = None,
        older_than: FromQuery[float | None] = None,
        all: FromQuery[bool] = False,
    ) -> Removed:
        """Remove the entries for which every condition given holds. None at all is refused; `all=true` is all."""
        principal = principal_of(request)
        selection = Selection(document, entry, user, template, older_than, all)
        async with operation(control, request, "cache.invalidate", Role.ADMIN) as trail:
            await trail.intent()
            removed = await workers.run(lambda: invalidate(store, control.tenants.open(principal), selection, trail))
            return Removed(removed)

    return Router("/cache/entries", route_handlers=[list_entries, invalidate_entries], tags=["cache"])
