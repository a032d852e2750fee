"""Where a question is answered: chosen once, from the tenant's contract and what the asker wishes.

A route is an ordered list of places of one trust level. The first answers; a later one only takes over where nothing
has arrived from those before it, and the audit names the one that did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from generation.generator import Generator, ModelIdentity
from tenancy.domain import PermissionDomain
from tenancy.errors import NotFound
from tenancy.limits import WorkClass
from tenancy.tenant import ReadView

_REMEDY = "GET /v1/models shows yours"


@dataclass(frozen=True, slots=True)
class Placed:
    """A generator (one model, with an adapter or without) and the pool of replicas behind it.

    `context_length` is what the model reads and writes at most, in tokens; None where it is not known. `waived`: the
    operator lets it serve although nothing has shown that it keeps KV memory apart.
    """

    generator: Generator
    pool: str = "default"
    trust: str = "shared"
    context_length: int | None = None
    waived: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """At least one place; all of one trust level. `identity` is what a cached answer belongs to: the first's.

    `adapter` is the id of the tenant's adapter that every place answers with.
    """

    places: tuple[Placed, ...]
    adapter: str | None = None

    @property
    def first(self) -> Generator:
        return self.places[0].generator

    @property
    def identity(self) -> ModelIdentity:
        return self.first.identity

    @property
    def context_length(self) -> int | None:
        """The shortest of its places', so that a prompt fits wherever it is answered."""
        return min((place.context_length for place in self.places if place.context_length), default=None)

    def count(self, text: str) -> int:
        """Tokens of `text` by the first place's tokenizer."""
        return self.first.count(text)


@dataclass(frozen=True, slots=True)
class Offer:
    """What `GET /v1/models` shows: `id` is a name that a request may give as `model`."""

    id: str
    created: int = 0


class Routes(Protocol):
    """The pools of a deployment, and which of them serve whom."""

    def choose(
        self,
        domain: PermissionDomain,
        view: ReadView,
        model: str | None,
        adapter: str | None,
        work: WorkClass = "interactive",
    ) -> Route:
        """The route for a request of this domain, which is served as `work`.

        Raises `NotFound` for a model or an adapter that this tenant does not have, whether or not another has it.
        """
        ...

    def offers(self, domain: PermissionDomain, view: ReadView) -> tuple[Offer, ...]:
        """What `domain` may name, and nothing else."""
        ...

    def holds(self, domain: PermissionDomain, view: ReadView, route: Route) -> bool:
        """Whether `domain` may still be answered with the adapter of `route`, in the state that `view` sees."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class OneRoute:
    """Every question goes to one generator: a deployment without pools."""

    def __init__(self, generator: Generator, context_length: int | None = None) -> None:
        self.generator = generator
        self.context_length = context_length

    def choose(
        self,
        domain: PermissionDomain,  # noqa: ARG002
        view: ReadView,  # noqa: ARG002
        model: str | None,
        adapter: str | None,
        work: WorkClass = "interactive",  # noqa: ARG002
    ) -> Route:
        if model not in (None, self.generator.identity.model):
            raise NotFound("there is no such model", item=model, remedy=_REMEDY)
        if adapter is not None:
            raise NotFound("there is no such adapter", item=adapter, remedy=_REMEDY)
        return Route((Placed(self.generator, context_length=self.context_length),))

    def offers(self, domain: PermissionDomain, view: ReadView) -> tuple[Offer, ...]:  # noqa: ARG002
        return (Offer(self.generator.identity.model),)

    def holds(self, domain: PermissionDomain, view: ReadView, route: Route) -> bool:  # noqa: ARG002
        return route.adapter is None

    async def aclose(self) -> None:
        await self.generator.aclose()
