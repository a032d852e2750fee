"""Which of a deployment's pools answers whom: by the tenant's contract, else by the deployment's routing of its tier.

A pool that is dedicated to one tenant is invisible to every other: its model is "not found" there, like one that does
not exist. All places of a route have one trust level, and a request never leaves it, also where a pool is away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admission.fair import Party
from generation.adapters.files import adapter_path
from generation.adapters.loading import Loadable
from generation.adapters.registry import Registered, all_usable, still_usable, usable
from generation.generator import Generator
from generation.pool import Pool
from generation.routing import Offer, Placed, Route
from tenancy.contract import Contract, Tier
from tenancy.domain import PermissionDomain
from tenancy.errors import InvalidInput, NotFound, Unavailable
from tenancy.limits import WorkClass
from tenancy.tenant import ReadView

DEFAULT: Final = "default"

_SHOWS_YOURS: Final = "GET /v1/models shows yours"
_ASK_OPERATOR: Final = "tell the operator: `strongroom doctor` names the tenant and the reason"


@dataclass(frozen=True, slots=True)
class AdapterTerms:
    """The adapters that a pool takes: `bases` is what their makers may call its model (of `revision`)."""

    bases: frozenset[str]
    revision: str
    rank: int
    modules: frozenset[str]

    def take(self, rank: int, modules: Sequence[str]) -> bool:
        return rank <= self.rank and self.modules.issuperset(modules)


@dataclass(frozen=True, slots=True)
class Entry:
    """What placement knows of a pool. `dedicated_to` is the name of the one tenant that it serves; `adapters` is None
    where it takes none.
    """

    name: str
    model: str
    trust: str = "shared"
    dedicated_to: str | None = None
    context_length: int | None = None
    adapters: AdapterTerms | None = None

    def serves(self, tenant: str) -> bool:
        return self.dedicated_to in (None, tenant)

    def takes(self, adapter: Registered) -> bool:
        terms = self.adapters
        return terms is not None and adapter.base == self.model and terms.take(adapter.rank, adapter.modules)


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
    """A table, the generator of each of its pools, and the folder below which the engines see tenants' adapters."""

    table: Table
    generators: Mapping[str, Generator]
    adapters: Path | None = None


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

    def choose(
        self,
        domain: PermissionDomain,
        view: ReadView,
        model: str | None,
        adapter: str | None,
        work: WorkClass = "interactive",
    ) -> Route:
        """See `Routes.choose`. Raises also `Unavailable` where no pool may serve the tenant."""
        deployment = self.deployment
        allowed = _allowed(deployment.table, view)
        base, inside = _split(model, allowed)
        places = [entry for entry in allowed if base in (None, entry.model)]
        if not places:
            raise NotFound("there is no such model", item=model, remedy=_SHOWS_YOURS)
        loadable: Loadable | None = None
        if (name := adapter if inside is None else inside) is not None:
            # Absent, foreign, revoked, not for this user or not for this model: the same queries, and one answer.
            found = usable(domain, view, name) if adapter in (None, name) else None
            places = [entry for entry in places if found is not None and self._takes(entry, found)]
            if found is None or not places:
                what = "model" if inside else "adapter"
                raise NotFound(f"there is no such {what}", item=model if inside else adapter, remedy=_SHOWS_YOURS)
            loadable = self._loadable(domain, found)
        if not view.tenant.contract.generation.fallback:
            places = places[:1]
        party = Party(domain.tenant_id, domain.user_id, float(view.tenant.contract.weight), work)
        return Route(
            tuple(
                Placed(
                    _serving(deployment.generators[entry.name], party, loadable),
                    entry.name,
                    entry.trust,
                    entry.context_length,
                    _waived(deployment.generators[entry.name]),
                )
                for entry in places
            ),
            None if loadable is None else loadable.server_name,
        )

    def offers(self, domain: PermissionDomain, view: ReadView) -> tuple[Offer, ...]:
        """See `Routes.offers`: the models, then the tenant's adapters that `domain` may use."""
        allowed = _allowed(self.deployment.table, view)
        own = [
            Offer(f"{adapter.base}:{adapter.name}", int(adapter.created))
            for adapter in all_usable(domain, view)
            if any(self._takes(entry, adapter) for entry in allowed)
        ]
        return (*(Offer(model) for model in dict.fromkeys(entry.model for entry in allowed)), *own)

    def holds(self, domain: PermissionDomain, view: ReadView, route: Route) -> bool:
        """See `Routes.holds`. The engine keeps a revoked adapter's weights; nobody gets another word of them."""
        return route.adapter is None or still_usable(domain, view, route.adapter)

    def _takes(self, entry: Entry, adapter: Registered) -> bool:
        generator = self.deployment.generators[entry.name]
        return self.deployment.adapters is not None and isinstance(generator, Pool) and entry.takes(adapter)

    def _loadable(self, domain: PermissionDomain, adapter: Registered) -> Loadable:
        assert self.deployment.adapters is not None
        path = adapter_path(self.deployment.adapters, domain.tenant_id, adapter.id)
        return Loadable(adapter.id, adapter.revision, path, adapter.manifest)

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


def _split(model: str | None, allowed: Sequence[Entry]) -> tuple[str | None, str | None]:
    """`model` as a model's name, and an adapter's behind it: "base:name". A model's own name may hold colons."""
    if model is None or any(entry.model == model for entry in allowed):
        return model, None
    for entry in allowed:
        if model.startswith(f"{entry.model}:"):
            return entry.model, model[len(entry.model) + 1 :]
    return model, None


def _serving(generator: Generator, party: Party, adapter: Loadable | None = None) -> Generator:
    return generator.serving(party, adapter) if isinstance(generator, Pool) else generator


def _waived(generator: Generator) -> bool:
    return isinstance(generator, Pool) and generator.terms.waived
