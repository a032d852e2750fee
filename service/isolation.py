"""Before the first question: every pool shows that its servers keep KV memory apart, or its questions are refused."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from generation.generator import Misfit
from generation.placement import PooledRoutes
from generation.pool import Pool
from generation.proof import NotIsolated
from generation.routing import Routes
from tenancy.errors import StrongroomError, Unavailable

_log = structlog.get_logger("strongroom.isolation")

UNREACHED: Final = "start the server, or correct its address"
"""The remedy where a server that failed says none."""


def note_tenants(routes: Routes, tenants: int) -> None:
    """Tell the pools whether the deployment has several tenants: one without salts then serves none of them, unless it
    is dedicated. Tenants that are made later find the pool taken by the first that uses it.
    """
    for pool in _pools(routes):
        pool.company.several = tenants > 1


def isolation_of(routes: Routes) -> tuple[int, int]:
    """How many pools serve nobody for want of isolation, and of how many it is waived."""
    pools = _pools(routes)
    return sum(pool.refusal is not None for pool in pools), sum(pool.terms.waived for pool in pools)


def pools_away(routes: Routes) -> int:
    """How many pools have no replica that a request could be sent to, for another reason than isolation."""
    return sum(not pool.available and pool.refusal is None for pool in _pools(routes))


async def require_isolation(routes: Routes) -> None:
    """Test every replica of every pool. What is refused is logged with its reason, as is what is waived.

    A server that is away shows nothing now, and will before its first question. Raises `NotIsolated` where every pool
    of the deployment is refused.
    """
    pools = _pools(routes)
    refusals = await asyncio.gather(*(_refusal(pool) for pool in pools))
    others = isinstance(routes, PooledRoutes) and len(routes.deployment.generators) > len(pools)
    known = [refusal for refusal in refusals if refusal is not None]
    if known and len(known) == len(pools) and not others:
        first = known[0]
        raise NotIsolated(f"no pool can serve: {first.reason}", item=first.item, remedy=first.remedy)


async def _refusal(pool: Pool) -> Unavailable | None:
    """Why `pool` serves nobody, as far as its servers have told."""
    found = await pool.examine()
    if pool.terms.waived:
        _log.warning(
            "KV ISOLATION IS WAIVED: tenants and domains may share the memory of this pool's servers",
            pool=pool.name,
            remedy='set kv_isolation = "required" as soon as its servers pass their test',
        )
    for replica, failure in found.items():
        if failure is not None:
            _log.error(
                "a replica does not serve",
                pool=pool.name,
                replica=replica.name,
                reason=failure.reason,
                remedy=failure.remedy or UNREACHED,
            )
        elif replica.isolation.proof is not None:
            _log.info(
                "a replica was tested",
                pool=pool.name,
                replica=replica.name,
                verdict=replica.isolation.proof.verdict,
                counts=replica.isolation.proof.finding,
            )
    refusal = pool.refusal
    if refusal is not None:
        _log.error("a pool is refused", pool=pool.name, reason=refusal.reason, remedy=refusal.remedy)
        return refusal
    return _misfit(list(found.values()))


def _misfit(found: list[StrongroomError | None]) -> Unavailable | None:
    """The first failure where all replicas answered, and each was another server than it should be."""
    wrong = [failure for failure in found if isinstance(failure, Misfit)]
    return wrong[0] if wrong and len(wrong) == len(found) else None


def _pools(routes: Routes) -> tuple[Pool, ...]:
    return routes.pools if isinstance(routes, PooledRoutes) else ()
