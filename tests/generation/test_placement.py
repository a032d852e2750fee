"""Which pools answer whom: contracts, tiers, dedicated pools, trust levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.fair import Party
from generation.endpoint import Endpoint
from generation.extractive import ExtractiveGenerator
from generation.generator import ModelIdentity
from generation.placement import Deployment, Entry, PooledRoutes, Table
from generation.pool import Pool
from generation.routing import Route
from generation.serving import Serving
from tenancy.contract import Contract, GenerationTerms
from tenancy.control import Tenants
from tenancy.domain import permission_domain
from tenancy.errors import InvalidInput, NotFound, Unavailable
from tenancy.identity import Authenticator
from tests.support.people import Company


class Model(ExtractiveGenerator):
    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def identity(self) -> ModelIdentity:
        return ModelIdentity(self._name, "r1", "tok")


ENTRIES = (
    Entry("small", "llama-8b"),
    Entry("large", "llama-70b"),
    Entry("spare", "llama-8b"),
    Entry("vault", "llama-70b", "confidential"),
    Entry("own", "acme-model", "dedicated", "acme"),
    Entry("theirs", "globex-model", "dedicated", "globex"),
)
ROUTING: Any = {"collection": ("small", "large"), "dedicated": ("own", "theirs")}


def routes(*entries: Entry, **routing: Any) -> PooledRoutes:
    entries = entries or ENTRIES
    named: Any = routing or ROUTING
    table = Table({entry.name: entry for entry in entries}, named)
    return PooledRoutes(Deployment(table, {entry.name: Model(entry.model) for entry in entries}))


@pytest.fixture
def globex(tenants: Tenants, authenticator: Authenticator) -> Company:
    return Company(tenants, authenticator, "globex")


def agree(company: Company, **terms: Any) -> None:
    tier = terms.pop("tier", "collection")
    engine = "some" if tier == "dedicated" else None
    company.tenants.set_contract(company.name, Contract(tier=tier, engine=engine, generation=GenerationTerms(**terms)))


def chosen(company: Company, found: PooledRoutes, model: str | None = None, adapter: str | None = None) -> Route:
    principal = company.principal("bo")
    with company.tenants.open(principal).reading() as view:
        return found.choose(permission_domain(principal, view), view, model, adapter)


def names(company: Company, model: str | None = None, found: PooledRoutes | None = None) -> list[str]:
    return [placed.pool for placed in chosen(company, found or routes(), model).places]


def offered(company: Company) -> list[str]:
    principal = company.principal("bo")
    with company.tenants.open(principal).reading() as view:
        return [offer.id for offer in routes().offers(permission_domain(principal, view), view)]


def test_without_a_word_in_the_contract_the_tier_decides(acme: Company, globex: Company) -> None:
    assert names(acme) == ["small"]
    assert offered(acme) == ["llama-8b", "llama-70b"]
    for company, pool in ((acme, "own"), (globex, "theirs")):
        agree(company, tier="dedicated")
        assert names(company) == [pool], "of the tier's pools those that serve this tenant"


def test_without_routing_the_default_pool_answers_and_without_one_nothing_does(acme: Company) -> None:
    assert names(acme, found=routes(Entry("default", "m"), Entry("other", "n"), dedicated=())) == ["default"]
    for found in (routes(Entry("other", "n"), dedicated=()), routes(Entry("default", "m"), collection=())):
        with pytest.raises(Unavailable, match="no model serves this tenant"):
            names(acme, found=found)


def test_the_contracts_pools_come_in_its_order(acme: Company) -> None:
    agree(acme, pools=["large", "small"])
    assert names(acme) == ["large"]
    assert names(acme, "llama-8b") == ["small"]
    agree(acme, pools=["large", "small", "spare"], fallback=True)
    assert names(acme) == ["large", "small", "spare"]
    assert names(acme, "llama-8b") == ["small", "spare"], "whoever names a model gets that one"


def test_models_narrow_what_is_offered_named_and_fallen_back_to(acme: Company) -> None:
    agree(acme, pools=["large", "small", "spare"], models=["llama-8b"], fallback=True)
    assert offered(acme) == ["llama-8b"]
    assert names(acme) == ["small", "spare"]
    with pytest.raises(NotFound):
        names(acme, "llama-70b")
    agree(acme, pools=["large"], models=["llama-8b"])
    with pytest.raises(Unavailable):
        names(acme)


def test_a_pool_of_another_tenant_is_not_there(acme: Company, globex: Company) -> None:
    agree(acme, tier="dedicated")
    agree(globex, tier="dedicated")
    assert names(acme, "acme-model") == ["own"]
    said = set()
    for model in ("globex-model", "no-model-at-all"):
        with pytest.raises(NotFound) as caught:
            names(acme, model)
        said.add((caught.value.reason, caught.value.remedy))
    assert len(said) == 1, "foreign and absent look alike"
    assert offered(acme) == ["acme-model"]
    for pool in ("theirs", "no-pool-at-all"):
        agree(acme, pools=[pool])
        with pytest.raises(Unavailable) as refused:
            names(acme)
        said.add((refused.value.reason, refused.value.remedy))
        assert pool not in str(refused.value)
    assert len(said) == 2


def test_one_place_lists_what_may_be_named_and_nothing_of_others(acme: Company) -> None:
    for pool in ("theirs", "no-pool"):
        with pytest.raises(InvalidInput) as caught:
            routes().deployment.table.of("acme", Contract(generation=GenerationTerms(pools=[pool])))
        assert caught.value.item == "generation.pools"
        assert caught.value.remedy == "it may have large, own, small, spare, vault"


@pytest.mark.parametrize("pools", [["small", "vault"], ["own", "small"], ["vault", "own"]])
@pytest.mark.parametrize("fallback", [True, False])
def test_pools_of_different_trust_levels_are_refused_when_agreed_and_when_asked(
    acme: Company, pools: list[str], fallback: bool
) -> None:
    contract = Contract(generation=GenerationTerms(pools=pools, fallback=fallback))
    with pytest.raises(InvalidInput, match="trust levels"):
        routes().deployment.table.of("acme", contract)
    agree(acme, pools=pools, fallback=fallback)
    with pytest.raises(Unavailable):
        names(acme)


def test_every_route_has_one_trust_level(acme: Company) -> None:
    for pools in (["small", "large", "spare"], ["vault"], ["own"]):
        agree(acme, pools=pools, fallback=True)
        assert len({placed.trust for placed in chosen(acme, routes()).places}) == 1


def test_an_adapter_that_nobody_has_is_not_found(acme: Company) -> None:
    with pytest.raises(NotFound, match="no such adapter"):
        chosen(acme, routes(), adapter="x7")


def test_a_tenant_of_a_pool_is_known_by_its_id_alone(acme: Company) -> None:
    pool = Pool.of(Endpoint(base_url="http://127.0.0.1:1", model="m", revision="r"), name="default")
    found = PooledRoutes(Deployment(Table({"default": Entry("default", "m")}, {}), {"default": pool}))
    serving = chosen(acme, found).first
    assert isinstance(serving, Serving)
    assert (serving.pool, serving.party) == (pool, Party(acme.handle.tenant_id, acme.principal("bo").user_id, 1.0))
    with acme.tenants.open(acme.principal("bo")).reading() as view:
        batch = found.choose(permission_domain(acme.principal("bo"), view), view, None, None, "batch").first
    assert isinstance(batch, Serving)
    assert batch.party == replace(serving.party, work="batch")
