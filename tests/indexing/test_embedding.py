"""Embedding models per tenant: two dimensions on one server, only models of the settings, each loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexing.catalogue import serving
from indexing.embed import MAX_MODELS, Embedder, EmbeddingSettings, load_embedder
from indexing.embedding import Embedders
from indexing.ingest import Pipeline, Source, ingest
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, ModelMismatch
from tenancy.identity import Authenticator
from tests.support.path import Path
from tests.support.people import Company

DEFAULT, OTHER = "hashing:256", "hashing:64"


class Loader:
    def __init__(self) -> None:
        self.loaded: list[str] = []

    def __call__(self, settings: EmbeddingSettings) -> Embedder:
        self.loaded.append(settings.model)
        return load_embedder(settings)


@pytest.fixture
def path(tenants: Tenants) -> Iterator[Path]:
    made = Path(tenants, also=(OTHER,))
    yield made
    made.close()


def put(path: Path, company: Company, name: str, text: str) -> None:
    pipeline = Pipeline(path.embedder, embedder_of=path.embedders.of)
    source = Source(name, text.encode(), AccessList.of(["tenant"]), media_type="text/plain")
    (outcome,) = ingest(company.handle, pipeline, source)
    assert outcome.error is None


def model_of(company: Company) -> str:
    with company.handle.reading() as view:
        found = serving(view)
    assert found is not None
    return found.model.spec


def test_two_tenants_with_two_models_on_one_server(path: Path, tenants: Tenants, authenticator: Authenticator) -> None:
    companies = {spec: Company(tenants, authenticator, f"t{number}") for number, spec in enumerate((DEFAULT, OTHER))}
    tenants.set_contract("t1", Contract(model=OTHER))
    for spec, company in companies.items():
        tenants.open(authenticator.operator(company.name))
        put(path, company, "notice", f"The notice period at {company.name} is three months.")
        assert model_of(company) == spec
    for company in companies.values():
        ana = company.principal("ana")
        for _ in range(2):
            answer = path.ask(ana, "How long is the notice period?")
            assert f"at {company.name} is" in answer.text
        assert answer.cache.status == "hit"
        assert path.retrieve(ana, "notice period", mode="dense").passages[0].document == "notice"


def test_a_model_is_loaded_when_it_is_first_needed_and_once(acme: Company) -> None:
    loader = Loader()
    embedders = Embedders(EmbeddingSettings(model=DEFAULT, also=(OTHER, "hashing:128")), loader)
    assert loader.loaded == [DEFAULT]
    assert embedders.named(OTHER) is embedders.named(OTHER)
    assert embedders.named(DEFAULT) is embedders.default
    assert loader.loaded == [DEFAULT, OTHER]


@pytest.mark.parametrize("spec", ["/etc", "hashing:512", "org/name@" + "0" * 40, ""])
def test_nothing_but_the_settings_models_is_ever_loaded(spec: str) -> None:
    loader = Loader()
    embedders = Embedders(EmbeddingSettings(model=DEFAULT, also=(OTHER,)), loader)
    with pytest.raises(InvalidInput, match="no such embedding model"):
        embedders.named(spec)
    assert loader.loaded == [DEFAULT]


def test_a_contract_whose_model_is_gone_is_no_reason_to_use_another(
    path: Path, tenants: Tenants, acme: Company, authenticator: Authenticator
) -> None:
    tenants.set_contract("acme", Contract(model="hashing:512"))
    tenants.open(authenticator.operator("acme"))
    with acme.handle.reading() as view, pytest.raises(ModelMismatch, match="contract"):
        path.embedders.of(view)


def test_a_collection_keeps_its_model_when_the_settings_default_changes(path: Path, acme: Company) -> None:
    put(path, acme, "notice", "The notice period is three months.")
    with acme.handle.reading() as view:
        kept = Embedders(EmbeddingSettings(model=OTHER, also=(DEFAULT,)))
        assert kept.of(view).spec == DEFAULT
        with pytest.raises(ModelMismatch, match="another embedding model"):
            Embedders(EmbeddingSettings(model=OTHER)).of(view)


def test_the_number_of_models_is_bounded() -> None:
    also = tuple(f"hashing:{16 + number}" for number in range(MAX_MODELS))
    with pytest.raises(InvalidInput):
        load_embedder(EmbeddingSettings(model=DEFAULT, also=also))
    load_embedder(EmbeddingSettings(model=DEFAULT, also=also[1:]))
