"""Drawn hits: the asker gets a fresh answer, the stored one is compared, and what is found decides what is served."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from audit.query import Filters, query_log
from audit.record import Event, decode
from cache.certificate import evidence, negatives
from cache.certificate.judge import JUDGE_REVISION
from cache.decision import Asked, Hit
from cache.entry import Entry, sealed
from cache.ladder import Ladder
from cache.openings import open_template
from cache.policy import CachePolicy, TemplatePolicy
from cache.stores.local import LocalStore
from cache.stores.selector import Selector
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta as Piece
from generation.generator import Finish
from retrieval import cached
from retrieval.answer import answer
from retrieval.question import Answer, AnswerPath, Delta, Question
from retrieval.shadow import Comparison, write_hits
from tenancy.errors import Unavailable
from tenancy.identity import Principal
from tenancy.tenant import TenantHandle
from tenancy.workers import Workers
from tests.support.path import Path, open_path
from tests.support.people import NOW, Company

NOTICE = "Notice periods. The notice period for employees is three months to the end of a quarter."
ASKED = "What is the notice period for employees?"
PARAPHRASE = "Which notice period is there for employees?"
POLICY = TemplatePolicy(alpha=0.05, shadow=0.05, probation=0, score=0.0)


class Changing(ExtractiveGenerator):
    """The extractive generator, with an end of its own where one is set."""

    finish: Callable[[Finish], Finish] | None = None
    error: Exception | None = None

    async def generate(self, *args: object, **options: object) -> AsyncGenerator[Piece | Finish, None]:
        if self.error is not None:
            raise self.error
        async for piece in super().generate(*args, **options):  # type: ignore[arg-type]
            yield self.finish(piece) if self.finish is not None and isinstance(piece, Finish) else piece


class Chance:
    """Draws in place of a random number: 0 is drawn, 1 is not."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        return self.value


class Spoiling(LocalStore):
    """Puts another fact into the answers that it stores, sealed as if they had been made so."""

    instead: bytes | None = None

    def put(self, tenant: TenantHandle, entry: Entry, *, allowed: Callable[[], str | None]) -> str | None:
        if self.instead is not None:
            payload = entry.payload.replace(b"three months", self.instead)
            assert payload != entry.payload
            entry = sealed(tenant, replace(entry, payload=payload))
        return super().put(tenant, entry, allowed=allowed)


class Stage:
    """One question of which the answer is remembered, and the store and generator behind it."""

    def __init__(self, acme: Company, path: Path, chance: Chance, generator: Changing, store: Spoiling) -> None:
        self.acme, self.path, self.chance, self.generator, self.store = acme, path, chance, generator, store
        self.bo = acme.principal("bo")

    def begin(self, instead: bytes | None = None) -> None:
        self.store.instead = instead
        self.ask(ASKED)
        self.store.instead = None

    def ask(self, query: str, principal: Principal | None = None) -> Answer:
        return self.path.ask(principal or self.bo, query)

    def again(self) -> Answer:
        """The paraphrase, while only the first question's answer is remembered."""
        answered = self.ask(PARAPHRASE)
        self.forget()
        return answered

    def forget(self) -> None:
        for record in self.store.inspect(self.acme.handle):
            if record.question != ASKED:
                self.store.invalidate(self.acme.handle, Selector(entry=record.id))

    def renew(self) -> None:
        """The same answer as another entry."""
        self.store.invalidate(self.acme.handle, Selector(template="default"))
        drawn, self.chance.value = self.chance.value, 0.99
        self.begin()
        self.chance.value = drawn

    def open(self) -> None:
        with self.acme.handle.writing() as view:
            open_template(view, "default", threshold=0.5, opened_by="operator", reason="test", now=NOW)

    def entries(self) -> list[str]:
        return [record.question for record in self.store.inspect(self.acme.handle)]

    def records(self) -> list[evidence.EvidenceRecord]:
        with self.acme.handle.reading() as view:
            return evidence.evidence(view)

    def events(self) -> list[Event]:
        page = query_log(self.path.logs.of(self.bo), Filters(order="asc"), limit=1000)
        return [decode(stored.payload) for stored in page.events]


@pytest.fixture(params=[POLICY])
def stage(acme: Company, request: pytest.FixtureRequest) -> Iterator[Stage]:
    chance, generator = Chance(), Changing()
    store = Spoiling(CachePolicy(templates={"default": request.param}))
    ladder = Ladder(judge=JUDGE_REVISION, random=chance)
    with open_path(acme.tenants, cache=store, generator=generator, ladder=ladder) as opened:
        opened.put(acme.handle, "notice.txt", NOTICE, "tenant")
        yield Stage(acme, opened, chance, generator, store)


def test_labels_of_drawn_hits_certify_and_then_the_hit_is_served(stage: Stage) -> None:
    stage.begin()
    with stage.acme.handle.reading() as view:
        epochs = view.epochs
    for number in range(64):
        if number and number % 3 == 0:
            # No more than so many labels are about one entry.
            stage.renew()
        assert stage.again().cache.status == "miss"
    (record,) = stage.records()
    assert (record.state, record.n, record.k) == ("certified", 64, 0)
    stage.chance.value = 0.99
    served = stage.again()
    assert (served.cache.status, served.cache.kind, served.cache.certified) == ("hit", "semantic", "certified")
    last = stage.events()[-1]
    assert last.cache is not None
    assert last.cache.bound is not None
    assert (last.cache.bound.n, last.cache.bound.k, last.cache.bound.state) == (64, 0, "certified")
    assert last.cache.bound.upper == pytest.approx(record.upper, abs=1e-6)
    assert last.cache.rules == record.ladder
    # A served hit may be drawn as well, and then it is not served.
    stage.chance.value = 0.0
    assert stage.again().cache.status == "miss"
    assert stage.records()[0].n == 65
    with stage.acme.handle.reading() as view:
        assert view.epochs == epochs


def test_a_wrong_entry_is_removed_and_its_pair_stays_apart(stage: Stage) -> None:
    stage.begin(b"six months")
    fresh = stage.ask(PARAPHRASE)
    assert "three months" in fresh.text
    assert stage.entries() == [PARAPHRASE]
    (record,) = stage.records()
    assert (record.n, record.k) == (1, 1)
    last = stage.events()[-1]
    assert last.detail["compared"] == "uniform"
    assert str(last.detail["comparison"]).endswith("differs")
    # The pair of questions is refused from now on, opened or not, whatever the answer is.
    stage.forget()
    stage.open()
    stage.chance.value = 0.99
    stage.begin()
    missed = stage.ask(PARAPHRASE)
    assert missed.cache.status == "miss"
    found = stage.events()[-1].cache
    assert found is not None
    assert found.reason == "reported as a wrong hit before"


def test_an_opened_template_serves_what_is_not_drawn(stage: Stage) -> None:
    stage.begin()
    stage.open()
    stage.chance.value = 0.04
    assert stage.again().cache.status == "miss"
    stage.chance.value = 0.06
    served = stage.again()
    assert (served.cache.kind, served.cache.certified) == ("semantic", "uncertified")
    (record,) = stage.records()
    assert (record.n, record.hits) == (1, 0)
    write_hits(stage.path.path, stage.acme.handle)
    assert stage.records()[0].hits == 1


@pytest.mark.parametrize("stage", [TemplatePolicy(alpha=0.05, probation=2, score=0.0)], indirect=True)
def test_the_first_hits_of_an_entry_are_compared_and_certify_nothing(stage: Stage) -> None:
    stage.begin()
    stage.open()
    stage.chance.value = 0.99
    assert [stage.again().cache.status for _ in range(2)] == ["miss", "miss"]
    assert stage.again().cache.status == "hit"
    assert stage.records() == []


@pytest.mark.parametrize("stage", [TemplatePolicy(alpha=0.05, probation=2, score=0.0)], indirect=True)
def test_a_wrong_entry_goes_on_probation_too(stage: Stage) -> None:
    stage.begin(b"six months")
    stage.open()
    stage.chance.value = 0.99
    stage.ask(PARAPHRASE)
    assert stage.entries() == [PARAPHRASE]
    with stage.acme.handle.reading() as view:
        assert negatives.count(view) == 1
    assert stage.records() == []


@pytest.mark.parametrize("stage", [TemplatePolicy(alpha=0.05, shadow=0.0, probation=0, score=0.0)], indirect=True)
def test_without_draws_nothing_is_compared(stage: Stage) -> None:
    stage.begin()
    assert stage.again().cache.status == "miss"
    assert stage.records() == []


def test_what_is_cut_short_is_a_missing_label_and_says_nothing_of_the_entry(stage: Stage) -> None:
    stage.begin()
    stage.generator.finish = lambda finish: replace(finish, reason="length")
    stage.ask(PARAPHRASE)
    (record,) = stage.records()
    assert (record.n, record.k, record.missing) == (1, 1, 1)
    assert stage.entries() == [ASKED]
    with stage.acme.handle.reading() as view:
        assert negatives.count(view) == 0


def test_a_generator_that_fails_gives_no_label(stage: Stage) -> None:
    stage.begin()
    stage.generator.error = Unavailable("the generator is away")
    with pytest.raises(Unavailable):
        stage.ask(PARAPHRASE)
    (record,) = stage.records()
    assert (record.n, record.k, record.unanswered) == (0, 0, 1)


def test_an_asker_who_leaves_takes_a_label_along(stage: Stage) -> None:
    stage.begin()

    async def leave() -> None:
        question = Question(PARAPHRASE, secrets.token_hex(16))
        async with aclosing(answer(stage.path.path, stage.bo, question)) as events:
            async for event in events:
                assert isinstance(event, Delta)
                return

    asyncio.run(leave())
    (record,) = stage.records()
    assert (record.n, record.k, record.missing, record.unanswered) == (1, 1, 1, 0)
    assert stage.entries() == [ASKED]


def test_an_asker_who_leaves_while_the_comparison_waits_does_not_end_it(stage: Stage) -> None:
    stage.begin(b"six months")
    hold = threading.Event()
    workers, real = stage.path.path.workers, Comparison.compare

    async def leave() -> None:
        others: list[asyncio.Task[bool]] = []

        async def compare(self: Comparison, finished: Answer) -> None:
            # Others keep all threads busy, and the asker is gone before the comparison gets one.
            others.extend(asyncio.create_task(workers.run(hold.wait)) for _ in range(16))
            loop = asyncio.get_running_loop()
            loop.call_later(0.05, asking.cancel)
            loop.call_later(0.1, hold.set)
            await real(self, finished)

        async def ask() -> None:
            question = Question(PARAPHRASE, secrets.token_hex(16))
            async with aclosing(answer(stage.path.path, stage.bo, question)) as events:
                async for _ in events:
                    pass

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Comparison, "compare", compare)
            asking = asyncio.create_task(ask())
            with pytest.raises(asyncio.CancelledError):
                await asking
        await asyncio.gather(*others)

    asyncio.run(leave())
    (record,) = stage.records()
    assert (record.n, record.k, record.missing) == (1, 1, 0)
    assert stage.entries() == []


def test_a_full_pool_leaves_a_missing_label(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin(b"six months")
    real = Workers.run

    async def run(self: Workers, function: Callable[..., object], *args: object, **options: object) -> object:
        if getattr(function, "__name__", "") == "compare":
            raise Unavailable("its work queue is full")
        return await real(self, function, *args, **options)

    monkeypatch.setattr(Workers, "run", run)
    assert "three months" in stage.ask(PARAPHRASE).text
    (record,) = stage.records()
    assert (record.n, record.k, record.missing) == (1, 1, 1)


def test_a_wrong_entry_that_cannot_be_removed_is_not_served_either(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.begin(b"six months")

    def away(*_: object) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(stage.store, "discard", away)
        stage.ask(PARAPHRASE)
    (record,) = stage.records()
    assert (record.n, record.k, record.missing) == (1, 1, 0)
    assert ASKED in stage.entries()
    stage.open()
    stage.chance.value = 0.99
    stage.forget()
    assert stage.ask("Which notice period is there for the employees?").cache.status == "miss"
    stage.forget()
    asked = stage.ask(ASKED)
    assert (asked.cache.status, "three months" in asked.text) == ("miss", True)
    # The fresh answer takes its place.
    assert stage.ask(ASKED).cache.status == "hit"


def test_a_check_that_is_counted_meanwhile_withdraws_no_hit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin()
    real = cached.look_again

    def look_again(path: AnswerPath, principal: Principal, asked: Asked, hit: Hit) -> Any:
        tenant, entry = stage.acme.handle, hit.entry
        assert path.cache.confirm(tenant, sealed(tenant, replace(entry, confirmed=entry.confirmed + 1)))
        return real(path, principal, asked, hit)

    monkeypatch.setattr(cached, "look_again", look_again)
    assert stage.ask(ASKED).cache.status == "hit"


def test_a_comparison_that_cannot_be_recorded_takes_nothing_from_the_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.begin()

    def away(*_: object) -> None:
        raise Unavailable("the database is away")

    monkeypatch.setattr(evidence, "record", away)
    assert "three months" in stage.ask(PARAPHRASE).text
    assert stage.records() == []


def test_a_question_that_is_no_hit_is_not_compared(stage: Stage) -> None:
    stage.begin()
    stage.ask("What is the notice period for 12 employees?")
    stage.ask(ASKED)
    assert stage.records() == []
