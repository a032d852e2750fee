"""Embedding and search wait for the user's turn, before they take a thread; nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

import pytest

from admission.fair import Party
from admission.turns import Desks, Turns
from indexing.catalogue import EMBEDDED
from retrieval.answer import answer
from retrieval.question import Done, Question
from tenancy.errors import Unavailable
from tests.support.path import Path, open_path
from tests.support.people import Company

ASKED = "When does the canteen open?"


@pytest.fixture
def path(acme: Company) -> Iterator[Path]:
    with open_path(acme.tenants) as opened:
        opened.put(acme.handle, "canteen.txt", "The canteen opens at noon.", "tenant")
        yield opened


def has(path: Path, desks: Desks) -> None:
    path.path = replace(path.path, desks=desks)


def test_a_question_waits_while_others_hold_the_threads(path: Path, acme: Company) -> None:
    async def ask() -> None:
        turns = Turns(1)
        has(path, Desks(turns))
        async with turns.turn(Party("globex", "bulk", work="batch")):
            asked = asyncio.create_task(path.ask_async(acme.principal("bo"), ASKED))
            while not turns.waiting:
                assert not asked.done()
                await asyncio.sleep(0)
        assert "noon" in (await asked).text
        assert (turns.held, turns.waiting) == (0, 0)

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_question_is_refused_where_too_many_wait_and_leaves_no_place_taken(path: Path, acme: Company) -> None:
    async def ask() -> None:
        turns = Turns(1, queue=0)
        has(path, Desks(turns))
        async with turns.turn(Party("globex", "bulk")):
            with pytest.raises(Unavailable, match="busy"):
                await path.ask_async(acme.principal("bo"), ASKED)
        assert "noon" in (await path.ask_async(acme.principal("bo"), ASKED)).text

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_who_waits_for_one_server_holds_no_turn_of_the_others(path: Path, acme: Company) -> None:
    """The search of this tenant has a desk of its own, which is held; embedding goes on at the shared one."""

    async def ask() -> None:
        shared, own = Turns(1), Turns(1)
        has(path, Desks(shared, {EMBEDDED: own}))
        async with own.turn(Party("globex", "slow")):
            asked = asyncio.create_task(path.ask_async(acme.principal("bo"), ASKED))
            while not own.waiting:
                assert not asked.done()
                await asyncio.sleep(0)
            assert shared.held == 0
        assert "noon" in (await asked).text

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_copied_answers_are_read_in_a_turn_that_no_client_can_hold(path: Path, acme: Company) -> None:
    class Counted(Turns):
        taken = 0

        def turn(self, party: Party, *, deadline: float | None = None) -> AbstractAsyncContextManager[None]:
            self.taken += 1
            return super().turn(party, deadline=deadline)

    async def ask() -> None:
        turns = Counted(1)
        has(path, Desks(turns))
        asked = Question(ASKED, "1", cache="bypass")
        async with aclosing(answer(path.path, acme.principal("bo"), asked)) as events:
            async for event in events:
                # Embedding, search and reading are done; a client that reads slowly keeps nobody waiting.
                assert (turns.taken, turns.held) == (3, 0)
                last = event
        assert isinstance(last, Done)
        assert "noon" in last.answer.text

    asyncio.run(asyncio.wait_for(ask(), 60))
