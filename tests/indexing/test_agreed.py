"""What a contract says of chunks holds from the next ingestion on, for its tenant alone."""

from __future__ import annotations

import pytest

from indexing.agreed import chunking_of
from indexing.chunk import Chunking
from indexing.documents import show_document
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, ingest
from tenancy.acl import AccessList
from tenancy.contract import ChunkingTerms, Contract, RetrievalTerms
from tenancy.control import Tenants
from tenancy.errors import InvalidInput
from tenancy.identity import Authenticator
from tests.support.people import Company

TEXT = " ".join(f"Rule {number} says that everybody reads rule {number + 1} as well." for number in range(40))
SMALL = ChunkingTerms(target_chars=128, overlap_chars=0)


def test_a_contract_cuts_its_tenants_documents_from_the_next_ingestion_on(
    tenants: Tenants, authenticator: Authenticator, acme: Company, globex: Company
) -> None:
    pipeline = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")))
    source = Source("rules.txt", TEXT.encode(), AccessList.of(["tenant"]), "text/plain")
    for company in (acme, globex):
        ingest(company.handle, pipeline, source)
    before = show_document(acme.handle, "rules.txt").chunks
    tenants.set_contract("acme", Contract(chunking=SMALL))
    tenants.open(authenticator.operator("acme"))
    assert show_document(acme.handle, "rules.txt").chunks == before
    for company in (acme, globex):
        ingest(company.handle, pipeline, source)
    assert show_document(acme.handle, "rules.txt").chunks > 2 * before
    assert show_document(globex.handle, "rules.txt").chunks == before
    (again,) = ingest(acme.handle, pipeline, source)
    assert again.change.value == "none"


def test_numbers_that_do_not_go_together_are_refused() -> None:
    assert chunking_of(ChunkingTerms(), Chunking()) == Chunking()
    assert chunking_of(SMALL, Chunking()).target_chars == 128
    with pytest.raises(InvalidInput):
        chunking_of(ChunkingTerms(target_chars=100), Chunking())
    assert RetrievalTerms().threshold is None
