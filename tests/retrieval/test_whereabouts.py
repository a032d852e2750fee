"""Where a passage stands and what it stands under, and text that nobody sees who opens the document."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from generation.generator import Delta as Piece
from generation.generator import Finish, ModelIdentity, Usage
from generation.prompt import Prompt
from indexing.ingest import Pipeline, Source, put_document
from indexing.parse import Parsed
from indexing.parse.building import Building
from indexing.parse.model import HIDDEN_TEXT, Kind
from tenancy.acl import AccessList
from tenancy.contract import Contract, GenerationTerms, RetrievalTerms
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

ASKED = "What is the notice period for employees?"
NOTICE = "The notice period for employees is three months to the end of a quarter."
SECRET = "The notice period for employees is one day, whatever else is written."


class Model:
    """Keeps its prompts; says what every source says, and cites each."""

    identity = ModelIdentity("model", "1", "none")
    salted = True

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        del salt, request_id, max_tokens, deadline
        self.prompts.append(prompt)
        for source in prompt.sources:
            yield Piece(f"{source.text} [{source.key}] ")
        yield Finish("stop", Usage(10, 0, 5))

    async def aclose(self) -> None:
        return None

    @property
    def last(self) -> str:
        return self.prompts[-1].messages[-1].content


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def path(acme: Company, model: Model) -> Iterator[Path]:
    with open_path(acme.tenants, generator=model) as opened:
        yield opened


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def recorded(stored: Any) -> Event:
    return decode(stored.payload)


def put(path: Path, acme: Company, name: str, building: Building, *warnings: str) -> None:
    """Ingest what a parser would give."""

    def parsed(*_: Any) -> list[Any]:
        return [
            Parsed(
                building.text(), name, "text/plain", warnings, blocks=building.blocks(), places=building.places()
            )
        ]  # fmt: skip

    source = Source(name, building.text().encode(), AccessList.of(["tenant"]))
    put_document(acme.handle, Pipeline(path.embedder, parse=parsed), source)


def with_hidden(path: Path, acme: Company) -> None:
    building = Building(10_000)
    building.add(NOTICE)
    building.add(SECRET, hidden=True)
    put(path, acme, "notice.docx", building, HIDDEN_TEXT)


def test_hidden_text_is_a_passage_of_its_own_marked_for_model_and_asker(
    path: Path, acme: Company, model: Model, ana: Principal
) -> None:
    with_hidden(path, acme)
    found = {one.text: one.hidden for one in path.retrieve(ana, ASKED).passages}
    assert found == {NOTICE: False, SECRET: True}
    answer = path.ask(ana, ASKED)
    sources = {line for line in model.last.split("<source ") if NOTICE in line or SECRET in line}
    assert {(NOTICE in line, 'hidden="true"' in line.split(">")[0]) for line in sources} == {
        (True, False),
        (False, True),
    }
    assert answer.warnings == ("hidden-text-in-source",)
    page = query_log(path.logs.of(ana), Filters(order="asc"), limit=1000)
    assert [event.detail["hidden_sources"] for event in map(recorded, page.events) if "hidden_sources" in event.detail]
    assert {one.quote: one.hidden for one in answer.citations} == found


def test_hidden_text_is_left_out_where_the_contract_says_so(
    path: Path, acme: Company, model: Model, ana: Principal
) -> None:
    with_hidden(path, acme)
    path.ask(ana, ASKED)
    acme.tenants.set_contract("acme", Contract(generation=GenerationTerms(hidden="leave_out")))
    answer = path.ask(ana, ASKED)
    assert answer.cache.status == "miss", "an answer of the other policy is never served"
    assert SECRET not in model.last
    assert NOTICE in model.last
    assert answer.warnings == ()


def test_hidden_copies_take_no_place_of_what_is_seen(path: Path, acme: Company, model: Model, ana: Principal) -> None:
    building = Building(10_000)
    building.add(NOTICE, hidden=True)
    put(path, acme, "hidden.docx", building, HIDDEN_TEXT)
    with_hidden(path, acme)
    for number in range(3):
        path.put(acme.handle, f"{number}.txt", f"Notice of motion {number} is for the board.", "tenant")
    acme.tenants.set_contract(
        "acme", Contract(generation=GenerationTerms(hidden="leave_out"), retrieval=RetrievalTerms(top_k=1))
    )
    assert path.ask(ana, ASKED).finish == "stop"
    assert NOTICE in model.last


def test_a_citation_says_on_which_page_its_quote_stands_not_where_its_passage_begins(
    path: Path, acme: Company, ana: Principal
) -> None:
    building = Building(10_000)
    building.place("page 3")
    building.add("Working time is agreed in writing.")
    building.place("page 4")
    building.add(NOTICE)
    put(path, acme, "contract.pdf", building)
    (passage,) = path.retrieve(ana, ASKED).passages
    assert (passage.place, passage.text) == ("page 3", building.text())
    answer = path.ask(ana, ASKED)
    cited = {one.quote: one.place for one in answer.citations}
    assert cited.get(NOTICE) == "page 4"


def test_a_row_of_a_long_table_comes_with_header_and_headings_which_cannot_be_quoted(
    path: Path, acme: Company, model: Model, ana: Principal
) -> None:
    building = Building(100_000)
    building.add("Tariffs", Kind.HEADING, level=1)
    building.add("Parcels", Kind.HEADING, level=2)
    rows = [f"country {number} | {number} euro | {number + 2} days" for number in range(100)]
    building.add(
        "\n".join(["destination | price | duration", *rows]), Kind.TABLE, header="destination | price | duration"
    )
    put(path, acme, "tariffs.xlsx", building)
    best = path.retrieve(ana, "country 77").passages[0]
    assert "country 77 |" in best.text
    assert best.text.splitlines()[0].startswith("country ")
    assert best.context == "Tariffs > Parcels\ndestination | price | duration"
    answer = path.ask(ana, "country 77")
    assert "<context>Tariffs &gt; Parcels\ndestination | price | duration</context>\ncountry" in model.last
    assert all("destination" not in one.quote for one in answer.citations if one.start > 200)
