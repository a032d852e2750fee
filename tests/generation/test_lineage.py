"""The record of what adapters were made of, over files and over PostgreSQL: rows are added and never changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generation.adapters.lineage import origins, record, record_refusal, refusals
from generation.adapters.manifest import Description
from generation.adapters.registry import Registered
from generation.adapters.training import Source, training_of
from tests.support.people import NOW, Company

ADAPTER = Registered("ad_1", "voice", "tiny", "sha256:r", 4, ("q_proj",), {}, None, NOW, None)
MADE = Description("org/tiny", "r9", 4, ("q_proj",))
OWN = Source(tenant="acme", document="a.md", version="v1", licence="LicenseRef-acme")
PUBLIC = Source(dataset="org/set", version="1", licence="MIT")


@pytest.mark.both_storages
def test_every_declaration_stays_with_its_adapter(acme: Company, globex: Company) -> None:
    files = acme.handle.audit
    record(files, ADAPTER, MADE, None, NOW)
    assert [(one.id, one.declarations) for one in origins(files)] == [("ad_1", ())]
    for at, sources in enumerate([[OWN, PUBLIC], [PUBLIC], [PUBLIC, OWN]]):
        record(files, replace(ADAPTER, name="renamed"), MADE, training_of(sources), NOW + at)
    record(files, replace(ADAPTER, id="ad_2"), MADE, training_of([PUBLIC]), NOW + 9)
    first, second = origins(files)
    assert (first.name, first.registered, first.made_for, first.base_revision) == ("voice", NOW, "org/tiny", "r9")
    assert [(said.declared, len(said.sources)) for said in first.declarations] == [(NOW, 2), (NOW + 1, 1)]
    assert set(first.declarations[0].sources) == {OWN, PUBLIC}
    assert all(training_of(said.sources).digest == said.digest for said in first.declarations)
    assert [said.declared for said in second.declarations] == [NOW + 9]
    assert origins(globex.handle.audit) == ()


@pytest.mark.both_storages
def test_refusals_are_counted_once(acme: Company, globex: Company) -> None:
    files = acme.handle.audit
    training = training_of([OWN, replace_version("v2"), PUBLIC])
    assert record_refusal(files, training, [OWN, replace_version("v2")], NOW) == 2
    assert record_refusal(files, training, [OWN], NOW + 1) == 1
    assert [(one.document, one.version, one.at) for one in refusals(files)] == [
        ("a.md", "v1", NOW),
        ("a.md", "v2", NOW),
    ]
    assert refusals(globex.handle.audit) == ()


def replace_version(version: str) -> Source:
    return Source(tenant="acme", document="a.md", version=version, licence="LicenseRef-acme")


def test_many_sources_are_one_declaration(acme: Company) -> None:
    sources = [Source(tenant="acme", document=f"{n}.md", version="v", licence="MIT") for n in range(3_000)]
    record(acme.handle.audit, ADAPTER, MADE, training_of(sources), NOW)
    ((said,),) = [one.declarations for one in origins(acme.handle.audit)]
    assert said.sources == training_of(sources).sources
