"""What the pools of generators tell: who waits, and whether tenants get their shares."""

from __future__ import annotations

from admission.shares import Share
from generation.placement import PooledRoutes
from generation.routing import Routes


def waiting(routes: Routes) -> dict[str, tuple[int, int]]:
    """Requests that wait, and that run, by pool."""
    return {pool.name: pool.load for pool in routes.pools} if isinstance(routes, PooledRoutes) else {}


def shares(routes: Routes) -> dict[str, Share]:
    """Service received and due, by tenant id, over all pools, since this was called last."""
    found: dict[str, Share] = {}
    for pool in (*routes.pools, *routes.retiring) if isinstance(routes, PooledRoutes) else ():
        for tenant_id, share in pool.take_shares().items():
            found[tenant_id] = found.get(tenant_id, Share()) + share
    return found
