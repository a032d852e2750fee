"""Questions under a filter: what is found, remembered and on record, over the whole path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from audit.query import Filters, query_log, view
from audit.record import decode
from cache.openings import open_template
from generation.prompt import Turn
from indexing.filters import All, Compare
from indexing.ingest import Pipeline, Source, ingest
from retrieval import search as module
from tenancy.acl import AccessList
from tenancy.contract import Contract
from tenancy.errors import InvalidInput
from tenancy.fields import FieldType
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company

FIELDS: dict[str, FieldType] = {"year": "integer", "author": "string"}
ASKED = "What is the notice period for employees?"
NEW = {"field": "year", "ge": 2020}
OLD = {"field": "year", "lt": 2020}


def put(path: Path, company: Company, name: str, text: str, *allow: str, **metadata: Any) -> None:
    source = Source(name, text.encode(), AccessList.of(allow), media_type="text/plain", metadata=metadata)
    (outcome,) = ingest(company.handle, Pipeline(path.embedder), source)
    assert outcome.error is None, outcome


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    acme.tenants.set_contract("acme", Contract(metadata=FIELDS))
    with open_path(acme.tenants) as opened:
        put(
            opened,
            acme,
            "new.txt",
            "The notice period for employees is three months.",
            "tenant",
            year=2024,
            author="Zoë Wunderlich",
        )
        put(opened, acme, "old.txt", "The notice period for employees is six weeks.", "tenant", year=2015)
        put(
            opened,
            acme,
            "board.txt",
            "The notice period for employees of the board is a year.",
            "group:board",
            year=2024,
        )
        yield opened


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


def found(path: Path, principal: Principal, where: Any, **options: Any) -> list[str]:
    passages = path.retrieve(principal, ASKED, filter=where, **options).passages
    return sorted(passage.document for passage in passages)


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_a_filter_narrows_what_is_found_and_opens_nothing(path: Path, bo: Principal, acme: Company, mode: str) -> None:
    assert found(path, bo, None, mode=mode) == ["new.txt", "old.txt"]
    assert found(path, bo, NEW, mode=mode) == ["new.txt"]
    assert found(path, bo, {"not": NEW}, mode=mode) == ["old.txt"]
    assert found(path, bo, {"any": [NEW, {"not": NEW}]}, mode=mode) == ["new.txt", "old.txt"]
    assert found(path, bo, {"field": "year", "gt": 2024}, mode=mode) == []
    assert found(path, acme.principal("ann", groups=["board"]), NEW, mode=mode) == ["board.txt", "new.txt"]


@pytest.mark.parametrize("mode", ["dense", "lexical", "hybrid"])
def test_better_rows_outside_the_filter_take_no_place(path: Path, acme: Company, bo: Principal, mode: str) -> None:
    for number in range(120):
        put(path, acme, f"near-{number}.txt", ASKED, "tenant", year=2000 + number % 20)
    passages = path.retrieve(bo, ASKED, filter=NEW, mode=mode, top_k=1)
    assert [passage.document for passage in passages.passages] == ["new.txt"]
    events = [decode(event.payload) for event in query_log(path.logs.of(bo), Filters(), limit=10).events]
    assert {event.withheld for event in events} == {0}


def test_answers_rest_on_filtered_documents_alone(path: Path, bo: Principal) -> None:
    for where, text, document in ((NEW, "three months", "new.txt"), (OLD, "six weeks", "old.txt")):
        answered = path.ask(bo, ASKED, filter=where)
        assert text in answered.text
        assert [citation.document for citation in answered.citations] == [document]
    nothing = path.ask(bo, ASKED, filter={"field": "year", "gt": 2024})
    assert (nothing.finish, nothing.nearest_titles) == ("abstain", ())


def test_what_the_contract_does_not_declare_is_refused_and_what_it_declares_next_is_not(
    path: Path, acme: Company, bo: Principal
) -> None:
    pages = {"field": "pages", "eq": 3}
    with pytest.raises(InvalidInput, match="no such field"):
        path.ask(bo, ASKED, filter=pages)
    acme.tenants.set_contract("acme", Contract(metadata={**FIELDS, "pages": "integer"}))
    assert path.ask(bo, ASKED, filter=pages).finish == "abstain"
    acme.tenants.set_contract("acme", Contract())
    with pytest.raises(InvalidInput, match="declares no metadata fields"):
        path.ask(bo, ASKED, filter=NEW)
    assert path.ask(bo, ASKED).finish == "stop"


def test_metadata_that_was_there_before_its_field_was_declared_is_found(
    path: Path, acme: Company, bo: Principal
) -> None:
    put(path, acme, "late.txt", "The notice period for employees abroad is a month.", "tenant", region="north")
    found(path, bo, None)
    acme.tenants.set_contract("acme", Contract(metadata={"region": "string"}))
    assert found(path, bo, {"field": "region", "eq": "north"}) == ["late.txt"]


def test_two_filters_never_share_an_answer_and_equal_ones_do(path: Path, bo: Principal) -> None:
    def status(where: Any) -> tuple[str, str | None]:
        cache = path.ask(bo, ASKED, filter=where).cache
        return cache.status, cache.kind

    different = [
        None,
        NEW,
        OLD,
        {"all": [NEW]},
        {"field": "year", "gt": 2019},
        {"field": "author", "eq": "Zoë Wunderlich"},
    ]
    assert [status(where) for where in different] == [("miss", None)] * len(different)
    assert [status(where) for where in different] == [("hit", "exact")] * len(different)
    assert status({"ge": 2020, "field": "year"}) == ("hit", "exact")
    assert status({"field": "author", "eq": "Zoe\u0308 Wunderlich"}) == ("hit", "exact")


def test_a_similar_question_under_another_filter_is_no_hit(path: Path, acme: Company, bo: Principal) -> None:
    similar = "Which notice period is there for employees?"
    path.ask(bo, ASKED, filter=NEW)
    with acme.handle.writing() as writing:
        open_template(writing, "default", threshold=0.5, opened_by="operator", reason="test", now=NOW)
    for other in (OLD, None, {"field": "year", "ge": 2021}):
        missed = path.ask(bo, similar, filter=other, cache="default")
        assert missed.cache.status == "miss"
    hit = path.ask(bo, similar.replace("is there", "is there here"), filter=NEW)
    assert (hit.cache.status, hit.cache.kind) == ("hit", "semantic")
    assert "three months" in hit.text


def test_a_field_of_another_type_is_another_question(path: Path, acme: Company, bo: Principal) -> None:
    assert path.ask(bo, ASKED, filter=NEW).cache.stored
    acme.tenants.set_contract("acme", Contract(metadata={"year": "number"}))
    assert path.ask(bo, ASKED, filter=NEW).cache.status == "miss"
    assert path.ask(bo, ASKED, filter=NEW).cache.status == "hit"


def test_a_follow_up_keeps_its_filter(path: Path, acme: Company, bo: Principal) -> None:
    put(path, acme, "managers.txt", "The notice period for managers is six months.", "tenant", year=2015)
    history = (Turn("user", ASKED), Turn("assistant", "Three months. [S1]"))
    followed = path.ask(bo, "And for managers?", history=history, filter=OLD)
    assert followed.rewritten is not None
    assert {citation.document for citation in followed.citations} == {"managers.txt"}
    other = path.ask(bo, "And for managers?", history=history, filter=NEW)
    assert "managers.txt" not in {citation.document for citation in other.citations}


def test_the_filter_is_on_record_sealed_like_the_question(path: Path, bo: Principal) -> None:
    path.ask(bo, ASKED, filter={"field": "author", "eq": "Zoë Wunderlich"})
    path.ask(bo, ASKED, filter={"field": "author", "eq": "Zoë Wunderlich"})
    path.ask(bo, ASKED)
    path.retrieve(bo, ASKED, filter=NEW)
    log = path.logs.of(bo)
    stored = query_log(log, Filters(order="asc"), limit=1000).events
    intents = [event for event in stored if decode(event.payload).phase == "intent"]
    assert not any(b"Wunderlich" in event.payload or b'"ge"' in event.payload for event in stored)
    shown = [view(event, log.subjects)["content"].get("filter", {}).get("text") for event in intents]
    author = {"field": "author", "type": "string", "eq": "Zoë Wunderlich"}
    assert [None if text is None else json.loads(text) for text in shown] == [
        author, author, None, {"field": "year", "type": "integer", "ge": 2020},
    ]  # fmt: skip


def test_a_refused_filter_is_on_record_as_refused(path: Path, bo: Principal) -> None:
    with pytest.raises(InvalidInput):
        path.retrieve(bo, ASKED, filter={"field": "nope", "eq": "Zoë Wunderlich"})
    events = [decode(event.payload) for event in query_log(path.logs.of(bo), Filters(), limit=10).events]
    assert (events[0].outcome, events[0].reason, events[0].resources) == ("refused", "invalid-input", ())


def test_a_row_that_an_index_wrongly_returns_is_dropped_by_its_own_metadata(
    path: Path, acme: Company, bo: Principal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index knows hashes; what is released was compared by value."""
    scope = module.open_scope(bo, acme.handle, path.path.collections)
    where = Compare("year", "integer", "ge", 2020)
    vector = path.embedder.encode_query(ASKED)
    fingerprint = path.embedder.fingerprint

    def search() -> module.Passages:
        return module.search(
            acme.handle, bo, scope, ASKED, vector, 5, model=fingerprint, covers=1.0, where=All((where, where))
        )

    assert [passage.document for passage in search().items] == ["new.txt"]
    for leg in ("dense", "lexical"):
        real = getattr(type(scope.snapshot), leg)
        monkeypatch.setattr(type(scope.snapshot), leg, lambda *given, real=real: real(*given[:-1], None))
    wrong = search()
    assert [passage.document for passage in wrong.items] == ["new.txt"]
    assert wrong.withheld == 1
