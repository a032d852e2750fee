"""Which of a deployment's pools answers whom: by the tenant's contract, else by the deployment's routing of its tier.

A pool that is dedicated to one tenant is invisible to every other: its model is "not found" there, like one that does
not exist. All places of a route have one trust level, and a request never leaves it, also where a pool is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from generation.generator import Generator
from generation.pool import Pool
from generation.routing import Offer, Placed, Route
from tenancy.contract import Contract, Tier
from tenancy.domain import PermissionDomain
from tenancy.errors import InvalidInput, NotFound, Unavailable
from tenancy.tenant import ReadView

DEFAULT: Final = "default"

_ASK_OPERATOR: Final = "tell the operator: `strongroom doctor` names the tenant and the reason"


@dataclass(frozen=True, slots=True)
class Entry:
    """What placement knows of a pool. `dedicated_to` is the name of the one tenant that it serves."""

    name: str
    model: str
    trust: str = "shared"
    dedicated_to: str | None = None
    context_length: int | None = None

    def serves(self, tenant: str) -> bool:
        return self.dedicated_to in (None, tenant)


@dataclass(frozen=True, slots=True)
class Table:
    """The pools of a deployment by name, and the names that serve the tenants of a tier whose contract names none."""

    entries: Mapping[str, Entry]
    routing: Mapping[Tier, Sequence[str]]

    def of(self, tenant: str, contract: Contract) -> tuple[Entry, ...]:
        """The pools that serve the tenant of this name, best first. Raises `InvalidInput`, whose item is a key."""
        terms = contract.generation
        if terms.pools is None:
            routed = self.routing.get(contract.tier, (DEFAULT,) if DEFAULT in self.entries else ())
            found = [entry for name in routed if (entry := self.entries[name]).serves(tenant)]
        else:
            found = [self._named(name, tenant) for name in dict.fromkeys(terms.pools)]
        if not found:
            raise InvalidInput(
                "no pool serves this tenant",
                item="generation.pools",
                remedy="name pools in its contract, or route its tier in generation.routing",
            )
        if len({entry.trust for entry in found}) > 1:
            raise InvalidInput(
                "the pools are of different trust levels, and a request never leaves its own",
                item="generation.pools",
                remedy="name pools of one trust level",
            )
        models = {entry.model for entry in found}
        if terms.models is not None and models.isdisjoint(terms.models):
            raise InvalidInput(
                "none of the tenant's pools runs a model that its contract permits",
                item="generation.models",
                remedy=f"its pools run {', '.join(sorted(models))}",
            )
        return tuple(found)

    def _named(self, name: str, tenant: str) -> Entry:
        entry = self.entries.get(name)
        if entry is None or not entry.serves(tenant):
            visible = sorted(one.name for one in self.entries.values() if one.serves(tenant))
            raise InvalidInput(
                f"this tenant has no pool {name}",
                item="generation.pools",
                remedy=f"it may have {', '.join(visible)}" if visible else "configure generation.pools",
            )
        return entry


@dataclass(frozen=True, slots=True)
class Deployment:
    """A table, and the generator of each of its pools."""

    table: Table
    generators: Mapping[str, Generator]


class PooledRoutes:
    """Implements `Routes` over a deployment that `replace` exchanges while questions are answered."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self._retiring: dict[Pool, asyncio.Task[None]] = {}

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Those of the deployment that have replicas."""
        return tuple(pool for pool in self.deployment.generators.values() if isinstance(pool, Pool))

    @property
    def retiring(self) -> tuple[Pool, ...]:
        """Those of earlier deployments whose streams have not ended."""
        return tuple(self._retiring)

    def choose(self, domain: PermissionDomain, view: ReadView, model: str | None, adapter: str | None) -> Route:
        """See `Routes.choose`. Raises also `Unavailable` where no pool may serve the tenant."""
        deployment = self.deployment
        places = [entry for entry in _allowed(deployment.table, view) if model in (None, entry.model)]
        if not places:
            raise NotFound("there is no such model", item=model, remedy="GET /v1/models shows yours")
        if adapter is not None:
            raise NotFound("there is no such adapter", item=adapter, remedy="GET /v1/models shows yours")
        if not view.tenant.contract.generation.fallback:
            places = places[:1]
        return Route(
            tuple(
                Placed(
                    _serving(deployment.generators[entry.name], domain.tenant_id),
                    entry.name,
                    entry.trust,
                    entry.context_length,
                )
                for entry in places
            )
        )

    def offers(self, domain: PermissionDomain, view: ReadView) -> tuple[Offer, ...]:  # noqa: ARG002
        """See `Routes.offers`."""
        allowed = _allowed(self.deployment.table, view)
        return tuple(Offer(model) for model in dict.fromkeys(entry.model for entry in allowed))

    def replace(self, deployment: Deployment) -> None:
        """From the next question on; those that are being answered keep their route, and pools that are left out end
        when their last stream has.
        """
        kept = set(map(id, deployment.generators.values()))
        left = [pool for pool in self.pools if id(pool) not in kept]
        self.deployment = deployment
        for pool in left:
            task = asyncio.get_running_loop().create_task(pool.retire())
            self._retiring[pool] = task
            task.add_done_callback(lambda _, pool=pool: self._retiring.pop(pool, None))  # type: ignore[misc]

    async def aclose(self) -> None:
        tasks = list(self._retiring.values())
        for pool in self.retiring:
            await pool.aclose()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for generator in self.deployment.generators.values():
            await generator.aclose()


def _allowed(table: Table, view: ReadView) -> list[Entry]:
    """The tenant's pools whose model its contract permits, best first."""
    contract = view.tenant.contract
    try:
        found = table.of(view.tenant.name, contract)
    except InvalidInput as error:
        # It is not the question that is wrong, and another tenant's pools are none of the asker's business.
        raise Unavailable("no model serves this tenant", remedy=_ASK_OPERATOR) from error
    models = contract.generation.models
    return [entry for entry in found if models is None or entry.model in models]


def _serving(generator: Generator, tenant_id: str) -> Generator:
    return generator.serving(tenant_id) if isinstance(generator, Pool) else generator
