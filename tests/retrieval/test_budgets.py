"""A crowd of streams at one limit, on the whole path of a question: what is spent, when one is refused, what stays.

The stand-in for an engine says so many tokens in pieces, and lets others go on between any two; windows do not move on.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from admission.gate import Gate
from admission.limits import Limits, TenantLimits
from admission.local import LocalCounters
from admission.turns import Desks, Turns
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta, Finish, Piece, Usage, prompt_tokens
from generation.prompt import Prompt
from metering.ledger import UsageLedger
from metering.meter import Tariff
from metering.prices import Price, PriceBook, PriceList
from metering.reconcile import generation, reconcile
from metering.usage import report
from retrieval.question import PathSettings
from tenancy.control import Tenants
from tenancy.errors import LimitExceeded
from tenancy.identity import Principal
from tenancy.workers import Lanes, Workers
from tests.admission.conformance.rig import Clock
from tests.support.path import Path, open_path
from tests.support.people import Company
from tests.support.spent import spent

PIECE = 16
CLIENTS = 256
USERS = 8
PRICES = PriceList(plan="p", hops={"generate": Price(input_per_million=3_000_000, output_per_million=9_000_000)})


class StandIn(ExtractiveGenerator):
    """Each answer has a length of its own, between 400 and 3,600 tokens, whatever was expected."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.produced = 0
        self._dice = random.Random(seed)

    def count(self, text: str) -> int:
        return PIECE * text.count("piece ") if text.startswith("piece ") else len(text) // 4

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        length = min(max_tokens, self._dice.randrange(400, 3_600)) // PIECE
        for _ in range(length):
            self.produced += PIECE
            yield Delta("piece ")
            await asyncio.sleep(0)
        yield Finish("stop", Usage(prompt_tokens(prompt, self.count), 0, PIECE * length))


@dataclass
class Crowd:
    """What became of the clients. `admitted` are tokens, by request, of those that were in before the first refusal."""

    path: Path
    refused: int = 0
    answered: int = 0
    stopped: int = 0
    used: list[int] = field(default_factory=list)
    before: int | None = None
    reserved: int | None = None

    async def client(self, who: Principal) -> None:
        """Ask again and again, until there is no room for a question more."""
        while True:
            number = len(self.used)
            self.used.append(0)
            try:
                answer = await self.path.ask_async(who, f"How long is notice period {number}?", cache="bypass")
            except LimitExceeded:
                self.refused += 1
                if self.before is None:
                    self.before = number
                    use = spent(self.path.path.admission, who.tenant_id)
                    self.reserved = use.tokens + use.held
                return
            self.used[number] = answer.usage.input + answer.usage.output
            self.answered += 1
            self.stopped += answer.finish == "budget"


@contextmanager
def crowded(tenants: Tenants, acme: Company, limits: Limits) -> Iterator[tuple[Path, StandIn, list[Principal]]]:
    settings = PathSettings(context_tokens=400, max_tokens=4_096)
    engine = StandIn(3)
    with open_path(tenants, generator=engine, settings=settings) as path:
        path.put(acme.handle, "notice.md", "The notice period is three months.", "tenant")
        workers = Workers(4, 4 * CLIENTS)
        path.path.workers.close()
        path.path = replace(
            path.path,
            workers=workers,
            lanes=Lanes(workers),
            desks=Desks(Turns(8, 4 * CLIENTS)),
            admission=Gate(LocalCounters(Clock()), lambda _: TenantLimits(tenant=limits)),
            tariff=Tariff(PriceBook([PRICES]), "p"),
        )
        yield path, engine, [acme.principal(f"user-{number}") for number in range(USERS)]


def ledger_of(path: Path, who: Principal) -> UsageLedger:
    ledger = UsageLedger(path.logs.of(who))
    ledger.catch_up()
    return ledger


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("measure", ["tokens", "money"])
def test_256_streams_spend_their_limit_and_no_more(tenants: Tenants, acme: Company, measure: str) -> None:
    tokens, money = 1_200_000, 9_000_000
    limits = Limits(tokens_per_minute=tokens) if measure == "tokens" else Limits(money_per_month=money)
    with crowded(tenants, acme, limits) as (path, _, people):
        crowd, gate = Crowd(path), path.path.admission

        async def everybody() -> None:
            await asyncio.gather(*(crowd.client(people[number % USERS]) for number in range(CLIENTS)))

        asyncio.run(everybody())
        use = asyncio.run(gate.use(people[0].tenant_id))
        assert crowd.refused == CLIENTS
        assert (use.flight.requests, use.held.tokens, use.held.money, gate.live) == (0, 0, 0, {})

        # What was refused consumed nothing: neither a request of the window, nor a line of the ledger.
        assert use.minute.requests == crowd.answered
        ledger = ledger_of(path, people[0])
        (row,) = report(ledger, "acme", ())
        booked = generation(ledger)
        assert reconcile(ledger).agrees
        assert booked.prompt + booked.generated == use.minute.tokens == sum(crowd.used)
        assert crowd.stopped > 0, "the limit ended streams as well"

        limit, final = (tokens, use.minute.tokens) if measure == "tokens" else (money, use.month.money)
        if measure == "money":
            assert row["microunits"] == use.month.money
        print(
            f"{measure}: {crowd.answered} answers, {crowd.stopped} of them cut by the limit; final {final / limit:.4f} "
            f"of the limit"
        )
        assert 0.97 * limit <= final <= 1.003 * limit
        if measure == "tokens":
            # In hindsight: what those used in the end that were in when the first one was refused.
            assert crowd.before is not None
            assert crowd.reserved is not None
            within = sum(crowd.used[: crowd.before])
            print(f"first refusal at {crowd.reserved / limit:.4f} with reservations, {within / limit:.4f} in hindsight")
            assert crowd.reserved >= 0.97 * limit


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_200_questions_that_are_cancelled_anywhere_leave_nothing_held(tenants: Tenants, acme: Company) -> None:
    with crowded(tenants, acme, Limits(tokens_per_minute=10**9)) as (path, engine, people):
        gate, dice = path.path.admission, random.Random(5)

        async def cancelled(number: int) -> None:
            asking = asyncio.ensure_future(
                path.ask_async(people[number % USERS], f"How long is notice period {number}?", cache="bypass")
            )
            # Anywhere between the door and the end: by steps of the loop, which its threads are a part of.
            for _ in range(dice.randrange(600)):
                if asking.done():
                    break
                await asyncio.sleep(0.001 if dice.random() < 0.1 else 0)
            asking.cancel(secrets.token_hex(4))
            await asyncio.gather(asking, return_exceptions=True)

        async def everybody() -> None:
            await asyncio.gather(*(cancelled(number) for number in range(200)))

        asyncio.run(everybody())
        use = asyncio.run(gate.use(people[0].tenant_id))
        assert (use.flight.requests, use.held.tokens, gate.live) == (0, 0, {})
        ledger = ledger_of(path, people[0])
        assert reconcile(ledger).agrees
        booked = generation(ledger)
        unowned = engine.produced - booked.generated
        print(
            f"{use.minute.requests} of 200 were admitted; the engine made {engine.produced} tokens, {booked.generated} "
            f"are booked, {unowned} are nobody's"
        )
        # Of each stream at most the piece that was on its way; and what a limit counts is what the ledger has.
        assert 0 <= unowned <= PIECE * 200
        assert booked.prompt + booked.generated == use.minute.tokens
