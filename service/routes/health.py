"""Liveness and readiness, without a credential and without a word about any tenant."""

from __future__ import annotations

import msgspec
from litestar import Router, get

from retrieval.question import AnswerPath
from service.control import Control
from service.counters_check import counters_away
from service.engine_check import EngineWatch
from service.isolation import isolation_of, pools_away
from tenancy.workers import Workers


class Health(msgspec.Struct, frozen=True):
    status: str


class Readiness(msgspec.Struct, frozen=True):
    """`engines_away`: vector engines that do not answer; the tenants of the others are served. `cache_away`: questions
    are answered afresh; `cache_failures`: how often the cache could not be used since this server began.
    `pools_away`: pools of generators of which no replica is in reach; `pools_refused`: those that serve nobody, since
    nothing has shown that they keep KV memory apart; `pools_waived`: those that serve all the same. `limits_away`:
    nothing is admitted but what contracts permit meanwhile; `limits_refused`: requests that were refused for that.
    """

    status: str
    engines_away: int
    cache_away: bool
    cache_failures: int
    pools_away: int
    pools_refused: int
    pools_waived: int
    limits_away: bool
    limits_refused: int


def router(control: Control, workers: Workers, engines: EngineWatch, path: AnswerPath) -> Router:
    @get("/live", summary="The process runs")
    async def live() -> Health:
        """Answers as long as the process does."""
        return Health("ok")

    @get("/ready", summary="Questions can be answered")
    async def ready() -> Readiness:
        """Reads the control plane and the system's audit log; 503 where one is out of reach. An engine that is away is
        counted: only the tenants that it holds cannot be answered.
        """
        await workers.run(control.tenants.ping)
        await workers.run(lambda: control.logs.of(None).head())
        away = await workers.run(engines.away)
        cache = path.cache.health()
        refused, waived = isolation_of(path.routes)
        silent = pools_away(path.routes)
        failures = cache.counts.get("misses_while_away", 0) + cache.counts.get("writes_dropped", 0)
        uncounted, turned_away = counters_away(path.admission.counters)
        well = cache.available and not (away or silent or refused or uncounted)
        status = "ok" if well else "degraded"
        return Readiness(status, away, not cache.available, failures, silent, refused, waived, uncounted, turned_away)

    return Router("/healthz", route_handlers=[live, ready], tags=["health"], security=[{}])
