"""What the pools of generators tell: who waits, whether tenants get their shares, and what they have of the engines."""

from __future__ import annotations

from admission.shares import Share
from generation.occupancy import EngineUse
from generation.placement import PooledRoutes
from generation.pool import Pool
from generation.routing import Routes


def waiting(routes: Routes) -> dict[str, tuple[int, int]]:
    """Requests that wait, and that run, by pool."""
    return {pool.name: pool.load for pool in routes.pools} if isinstance(routes, PooledRoutes) else {}


def shares(routes: Routes) -> dict[str, Share]:
    """Service received and due, by tenant id, over all pools, since this was called last."""
    found: dict[str, Share] = {}
    for pool in _pools(routes):
        for tenant_id, share in pool.take_shares().items():
            found[tenant_id] = found.get(tenant_id, Share()) + share
    return found


def uses(routes: Routes) -> list[tuple[str, dict[str, EngineUse]]]:
    """For each pool its name, and what tenants (by id) had of its engines since this was called last."""
    return [(pool.name, pool.occupancy.take()) for pool in _pools(routes)]


def _pools(routes: Routes) -> tuple[Pool, ...]:
    """Also those that a reload took away, as long as their streams last."""
    return (*routes.pools, *routes.retiring) if isinstance(routes, PooledRoutes) else ()
