"""Metadata on its way in: names, types that the contract declares, and what counts as a change."""

from __future__ import annotations

from typing import Any

import pytest

from indexing.documents import show_document
from indexing.embed import EmbeddingSettings, load_embedder
from indexing.ingest import Pipeline, Source, ingest, put_document
from indexing.outcome import Change, Outcome, Status
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tests.support.people import NOW, Company

PIPELINE = Pipeline(load_embedder(EmbeddingSettings(model="hashing:64")), clock=lambda: NOW)


@pytest.fixture
def company(acme: Company) -> Company:
    return declared(acme, year="integer", price="number", dept="string", draft="boolean")


def declared(company: Company, **fields: Any) -> Company:
    company.tenants.set_contract(company.name, Contract(metadata=fields))
    company.principal("ana")
    company.handle = company.tenants.open(company.principal("ana"))
    return company


def put(company: Company, **metadata: Any) -> Outcome:
    [outcome] = put_document(company.handle, PIPELINE, Source("a.txt", b"some words", metadata=metadata))
    return outcome


@pytest.mark.parametrize(
    ("metadata", "warnings"),
    [
        ({"year": 2024, "price": 9.5, "dept": "hr", "draft": False}, ()),
        ({"price": 9, "other": [1]}, ()),
        ({}, ()),
        ({"year": "2024"}, ("metadata_type:year",)),
        ({"year": 2024.0}, ("metadata_type:year",)),
        ({"year": True, "draft": 1}, ("metadata_type:draft", "metadata_type:year")),
        ({"year": 2**53}, ("metadata_type:year",)),
        ({"price": "9.5", "dept": 1}, ("metadata_type:dept", "metadata_type:price")),
    ],
)
def test_a_declared_field_of_another_type_is_a_warning_and_kept(
    company: Company, metadata: dict[str, Any], warnings: tuple[str, ...]
) -> None:
    outcome = put(company, **metadata)
    assert (outcome.change, outcome.warnings) == (Change.ADDED, warnings)
    shown = show_document(company.handle, "a.txt")
    assert (dict(shown.metadata), shown.warnings) == (metadata, warnings)


def test_without_a_declaration_there_is_nothing_to_warn_of(acme: Company) -> None:
    assert put(acme, year="2024").warnings == ()
    assert put(declared(acme, year="integer"), year="2025").warnings == ("metadata_type:year",)


def test_a_corrected_type_is_a_change_and_the_same_value_is_none(company: Company) -> None:
    values: list[Any] = ["2024", 2024.0, True, 1, 1.0, 2024]
    for value in values:
        put(company, year=value)
        outcome = put(company, year=value)
        assert outcome.status is Status.UNCHANGED
    assert [put(company, year=value).change for value in values] == [Change.UPDATED] * len(values)
    stored = show_document(company.handle, "a.txt").metadata["year"]
    assert (stored, type(stored)) == (2024, int)


def test_names_are_one_name_in_either_normal_form(company: Company) -> None:
    decomposed, composed = {"gro\u0308\u00dfe": 2}, {"gr\u00f6\u00dfe": 2}
    put(company, **decomposed)
    assert dict(show_document(company.handle, "a.txt").metadata) == composed
    assert put(company, **composed).status is Status.UNCHANGED


@pytest.mark.parametrize("name", ["", " year", "a\nb", "a\x00b", "\ud800", "x" * 201])
def test_what_is_no_name_is_refused(company: Company, name: str) -> None:
    with pytest.raises(InvalidInput, match="metadata"):
        put(company, **{name: 1})
    twice = {"\u00f6": 1, "o\u0308": 2}
    with pytest.raises(InvalidInput, match="normal form"):
        put(company, **twice)
    assert put(company, year=1).change is Change.ADDED


def test_lines_of_a_file_are_warned_of_one_by_one(company: Company) -> None:
    lines = b'{"text": "one", "metadata": {"year": 1}}\n{"text": "two", "metadata": {"year": "2"}}\n'
    outcomes = ingest(company.handle, PIPELINE, Source("rows.jsonl", lines))
    assert [outcome.warnings for outcome in outcomes] == [(), ("metadata_type:year",)]
