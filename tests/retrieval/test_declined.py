"""A model that says that its sources hold no answer: the asker reads that it is not in the documents."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from generation.declined import NO_ANSWER
from generation.generator import Delta as Piece
from generation.generator import Finish, FinishReason, ModelIdentity, Usage
from generation.prompt import Prompt
from retrieval.answer import answer
from retrieval.question import Delta, Question, Revoked
from tenancy.contract import Contract, GenerationTerms, GuardTerms
from tenancy.errors import Unavailable
from tenancy.identity import Principal
from tests.support.path import Path, open_path
from tests.support.people import Company

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"


class Scripted:
    """Writes `pieces`, and counts how many of them were taken."""

    identity = ModelIdentity("scripted", "1", "none")
    salted = True

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces
        self.taken = 0
        self.reason: FinishReason = "stop"
        self.behind: Callable[[], None] = lambda: None

    def count(self, text: str) -> int:
        return len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece | Finish, None]:
        for piece in self.pieces:
            self.taken += 1
            yield Piece(piece)
        self.behind()
        yield Finish(self.reason, Usage(100, 0, 7))

    async def aclose(self) -> None:
        return None


@contextmanager
def opened(acme: Company, *pieces: str) -> Iterator[tuple[Path, Scripted]]:
    scripted = Scripted(pieces)
    with open_path(acme.tenants, generator=scripted) as path:
        path.put(acme.handle, "notice.txt", NOTICE, "tenant")
        yield path, scripted


def last_event(path: Path, principal: Principal) -> Event:
    page = query_log(path.logs.of(principal), Filters(order="desc"), limit=1)
    return decode(page.events[0].payload)


def deltas(path: Path, principal: Principal) -> list[str]:
    async def read() -> list[str]:
        asked = Question(ASKED, secrets.token_hex(16))
        async with aclosing(answer(path.path, principal, asked)) as events:
            return [event.text async for event in events if isinstance(event, Delta)]

    return asyncio.run(read())


def test_it_is_an_abstention_for_the_asker_and_on_record(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, "NO_ANSWER", "_IN_SOURCES") as (path, _):
        found = path.ask(bo, ASKED)
        assert (found.finish, found.citations) == ("abstain", ())
        assert found.text.startswith("This is not in the documents that you may read.")
        assert found.nearest_titles == ("notice.txt",)
        event = last_event(path, bo)
        assert event.generation is not None
        assert (event.generation.finish, event.detail["declined"]) == ("abstain", True)


def test_what_the_model_read_and_wrote_is_paid_by_the_engines_count(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, NO_ANSWER) as (path, _):
        assert path.ask(bo, ASKED).usage == Usage(100, 0, 7)
        generation = last_event(path, bo).generation
        assert generation is not None
        assert (generation.input, generation.output) == (100, 7)


def test_no_piece_of_the_word_is_streamed(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, *NO_ANSWER) as (path, _):
        told = deltas(path, bo)
        assert len(told) == 1
        assert told[0].startswith("This is not in the documents")


def test_a_model_that_goes_on_is_not_waited_for(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, NO_ANSWER, *["and so on "] * 100) as (path, scripted):
        assert path.ask(bo, ASKED).finish == "abstain"
        assert scripted.taken < 12


def test_titles_of_what_was_withdrawn_behind_the_word_do_not_leave(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, NO_ANSWER) as (path, scripted):
        scripted.behind = lambda: acme.access("notice.txt", allow=["group:hr"])
        with pytest.raises(Revoked):
            path.ask(bo, ASKED)


def test_a_word_that_was_cut_short_does_not_leave(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, "NO_", "ANSWER_IN") as (path, scripted):
        scripted.reason = "length"
        assert path.ask(bo, ASKED).finish == "abstain"
        assert last_event(path, bo).detail["declined"] is True


def test_an_answer_that_was_cut_short_leaves(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, "NO") as (path, scripted):
        scripted.reason = "length"
        found = path.ask(bo, ASKED)
        assert (found.text, found.finish) == ("NO", "length")


def test_where_the_engine_fails_behind_the_word_there_is_no_answer(acme: Company) -> None:
    with opened(acme, NO_ANSWER) as (path, scripted):
        scripted.reason = "error"
        with pytest.raises(Unavailable):
            path.ask(acme.principal("bo"), ASKED)


def test_it_is_not_remembered(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, NO_ANSWER) as (path, scripted):
        path.ask(bo, ASKED)
        assert path.ask(bo, ASKED).cache.status == "miss"
        assert scripted.taken == 2


def test_a_document_that_begins_with_it_silences_no_copied_answer(acme: Company) -> None:
    with open_path(acme.tenants) as path:
        path.put(acme.handle, "notice.txt", f"{NO_ANSWER} {NOTICE.removeprefix('Notice periods. ')}", "tenant")
        found = path.ask(acme.principal("bo"), ASKED)
        assert (found.finish, found.citations[0].document) == ("stop", "notice.txt")
        assert found.text.startswith(NO_ANSWER)


def test_an_answer_that_speaks_of_the_word_is_an_answer(acme: Company) -> None:
    bo = acme.principal("bo")
    with opened(acme, "The notice period is three months [S1], not ", NO_ANSWER) as (path, _):
        found = path.ask(bo, ASKED)
        assert (found.finish, found.citations[0].document) == ("stop", "notice.txt")
        assert found.text.endswith(NO_ANSWER)


@pytest.mark.parametrize("pieces", [(NO_ANSWER,), ("NO_ANSWER", "_IN_SOURCES", " ", "[S1]")])
def test_where_citations_are_required_it_is_no_withheld_answer(acme: Company, pieces: tuple[str, ...]) -> None:
    terms = GenerationTerms(guards=GuardTerms(require_citation=True))
    acme.tenants.set_contract("acme", Contract(generation=terms))
    bo = acme.principal("bo")
    with opened(acme, *pieces) as (path, _):
        found = path.ask(bo, ASKED)
        assert (found.finish, found.warnings) == ("abstain", ())
