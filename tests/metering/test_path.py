"""What the path of a question puts on record of its hops, also where it is given up."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import replace
from typing import Literal

import pytest

from admission.gate import Gate
from admission.limits import NO_AMOUNTS
from admission.local import LocalCounters
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta as Text
from generation.generator import Finish, Piece, Usage
from generation.prompt import Prompt
from metering.events import INGESTION, UsageEvent
from metering.ledger import UsageLedger
from metering.meter import Tariff
from metering.prices import Price, PriceBook, PriceList
from metering.reconcile import reconcile
from metering.usage import events_of
from retrieval import finding, steps
from retrieval.answer import answer
from retrieval.question import Delta, Question
from tenancy.control import Tenants
from tenancy.errors import Unavailable
from tenancy.limits import Limits, TenantLimits
from tests.support.path import Path, open_path
from tests.support.people import Company

QUESTION = "How long is the notice period?"
Counts = Literal["all", "first", "none"]
READ, COMPUTED, PIECE = 5_000, 3, 16
TEXT = "The notice period is three months. The notice period of a trial is two weeks."


def booked(path: Path, acme: Company) -> list[UsageEvent]:
    ledger = UsageLedger(path.logs.of(acme.principal("ana")))
    ledger.catch_up()
    found = events_of(ledger, limit=1_000)
    assert reconcile(ledger).agrees
    return found


def test_a_stream_that_its_asker_leaves_is_charged_with_what_was_produced(tenants: Tenants, acme: Company) -> None:
    async def leave(path: Path) -> int:
        question = Question(QUESTION, secrets.token_hex(16))
        async with aclosing(answer(path.path, acme.principal("ana"), question)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    return ExtractiveGenerator().count(event.text)
        raise AssertionError

    with open_path(tenants) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        produced = asyncio.run(leave(path))
        (generated,) = [one for one in booked(path, acme) if one.hop == "generate"]
        assert generated.estimated
        assert 0 < produced <= generated.computed_output
        whole = path.ask(acme.principal("ana"), QUESTION, cache="bypass").usage
        assert generated.computed_output <= whole.output
        last = [one for one in booked(path, acme) if one.hop == "generate"][-1]
        assert not last.estimated
        assert (last.served_input, last.computed_output) == (whole.input, whole.output)


class Engine(ExtractiveGenerator):
    """Writes `PIECE` tokens at once, of a prompt that it has most of in its memory; `counts` says of which pieces it
    says so. It fails after `fails`.
    """

    def __init__(self, counts: Counts, fails: int) -> None:
        super().__init__()
        self.counts, self.fails, self.last = counts, fails, Usage()

    def count(self, text: str) -> int:
        return PIECE if text in {"One. ", "Two. "} else len(text.split())

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        for number in range(1_000):
            self.last = Usage(READ, READ - COMPUTED, PIECE * (number + 1))
            said = self.counts == "all" or (self.counts == "first" and number == 0)
            yield Text("Two. " if number else "One. ", self.last if said else None)
            if number + 1 == self.fails:
                yield Finish("error", self.last, detail="the stream broke", counted=False)
                return


@pytest.mark.parametrize("counts", ["all", "first", "none"])
@pytest.mark.parametrize("way", ["leaves", "fails", "limit"])
def test_a_cut_stream_is_charged_by_the_engine_s_last_word(
    tenants: Tenants, acme: Company, counts: Counts, way: str
) -> None:
    engine, ana = Engine(counts, fails=3 if way == "fails" else 1_000), acme.principal("ana")

    async def ask(path: Path) -> None:
        """Raises `Unavailable` where the engine failed."""
        question, seen = Question(QUESTION, secrets.token_hex(16), cache="bypass"), 0
        async with aclosing(answer(path.path, ana, question)) as events:
            async for event in events:
                seen += isinstance(event, Delta)
                if way == "leaves" and seen == 3:
                    return

    with open_path(tenants, generator=engine) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        limits = Limits(output_tokens_per_minute=400, money_per_month=10**9)
        gate = Gate(LocalCounters(), lambda _: TenantLimits(tenant=limits))
        prices = PriceList(
            plan="p", hops={"generate": Price(input_per_million=3_000_000, output_per_million=9_000_000)}
        )
        path.path = replace(path.path, admission=gate, tariff=Tariff(PriceBook([prices]), "p"))
        with pytest.raises(Unavailable) if way == "fails" else nullcontext():
            asyncio.run(ask(path))
        (generated,) = [one for one in booked(path, acme) if one.hop == "generate"]
        use = asyncio.run(gate.use(ana.tenant_id))

    assert generated.estimated
    assert generated.computed_output == engine.last.output
    if counts == "none" and way != "fails":
        assert generated.computed_input == generated.served_input != READ
    else:
        assert (generated.computed_input, generated.served_input) == (COMPUTED, READ)
    assert use.month.money == generated.microunits == 3 * generated.computed_input + 9 * generated.computed_output
    assert (use.minute.input, use.minute.output) == (generated.served_input, generated.computed_output)
    assert use.held.tokens == use.flight.requests == 0


def test_models_and_versions_are_named(tenants: Tenants, acme: Company) -> None:
    with open_path(tenants) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        answered = path.ask(acme.principal("ana"), QUESTION, feature="help")
        found = {one.hop: one for one in booked(path, acme)}
        fingerprint = path.embedder.fingerprint
        assert (found["embed"].model, found["embed"].version) == (fingerprint.name, fingerprint.revision)
        assert found["generate"].model == answered.model
        assert found["retrieve"].model == "faiss"
        assert {one.feature for one in found.values()} == {"help"}
        ana = acme.principal("ana")
        assert {one.user for one in found.values()} == {path.logs.of(ana).subjects.ref(ana.user_id)}


def test_a_plan_that_is_not_in_force_answers_nobody_rather_than_for_free(tenants: Tenants, acme: Company) -> None:
    with open_path(tenants) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        lists = PriceBook([PriceList(plan="p", revision="1", hops={"cache": Price(call=2)})])
        good, path.path = path.path, replace(path.path, tariff=Tariff(lists, "q"))
        with pytest.raises(Unavailable):
            path.ask(acme.principal("ana"), QUESTION)
        assert booked(path, acme) == []
        path.path = replace(good, tariff=Tariff(lists, "p"))
        path.ask(acme.principal("ana"), QUESTION)
        assert sum(one.microunits for one in booked(path, acme)) == 2 * len(
            [one for one in booked(path, acme) if one.hop == "cache"]
        )


PRICED = PriceList(plan="p", revision="1", hops={"embed": Price(call=100), "retrieve": Price(call=10),
                                                 "generate": Price(call=1, output_per_million=1_000_000)})  # fmt: skip
LIMITED = TenantLimits(tenant=Limits(money_per_month=1_000_000))


def spent_on_both_accounts(path: Path, acme: Company) -> tuple[int, int]:
    """Microunits as the limits have counted them, and as the ledger has them."""
    counted = asyncio.run(path.path.admission.use(acme.handle.tenant_id))
    assert counted.held == counted.flight == NO_AMOUNTS
    return counted.month.money, sum(one.microunits for one in booked(path, acme) if one.feature != INGESTION)


@pytest.mark.parametrize("error", [Unavailable("x", item="x"), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("step", ["passages", "sources_of", "begin"])
def test_what_ends_before_its_answer_counts_at_the_limits_as_it_is_booked(
    tenants: Tenants, acme: Company, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    async def ends(*_: object, **_named: object) -> None:
        raise error

    with open_path(tenants, limits=LIMITED) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        path.path = replace(path.path, tariff=Tariff(PriceBook([PRICED]), "p"))
        with monkeypatch.context() as patched:
            patched.setattr(finding if step == "passages" else steps, step, ends)
            with pytest.raises(type(error)):
                path.ask(acme.principal("ana"), QUESTION)
            if step == "passages":
                with pytest.raises(type(error)):
                    path.retrieve(acme.principal("ana"), QUESTION)
                read = asyncio.run(path.path.admission.use(acme.handle.tenant_id)).minute.input
                assert read == path.embedder.token_count(QUESTION)
        counted, in_ledger = spent_on_both_accounts(path, acme)
        assert counted == in_ledger == {"passages": 200, "sources_of": 110, "begin": 110}[step]
        path.ask(acme.principal("ana"), QUESTION)
        counted, in_ledger = spent_on_both_accounts(path, acme)
        assert counted == in_ledger > 220


def test_a_stream_that_is_left_counts_at_the_limits_as_it_is_booked(tenants: Tenants, acme: Company) -> None:
    async def leave(path: Path) -> None:
        question = Question(QUESTION, secrets.token_hex(16))
        async with aclosing(answer(path.path, acme.principal("ana"), question)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    return

    with open_path(tenants, limits=LIMITED) as path:
        path.put(acme.handle, "notice.md", TEXT, "tenant")
        path.path = replace(path.path, tariff=Tariff(PriceBook([PRICED]), "p"))
        asyncio.run(leave(path))
        counted, in_ledger = spent_on_both_accounts(path, acme)
        assert counted == in_ledger > 111
