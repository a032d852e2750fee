"""Over a store that takes its time: a block has its lease from beginning to end, whoever asks beside it or leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from admission.counters import Ask, Granted, Reaped, Refused, Settled, Use
from admission.gate import Estimate, Gate
from admission.limits import NO_AMOUNTS, Amounts
from admission.local import LocalCounters
from admission.scopes import Scope, tenant_scope, user_scope
from tenancy.errors import LimitExceeded
from tenancy.identity import Principal
from tenancy.limits import Limits, TenantLimits
from tests.support.people import Company

LIMITS = Limits(concurrent=4, tokens_per_minute=100_000, money_per_month=1_000_000)


class Far:
    """Counters behind a network: each call takes some turns of the loop on its way there, and on its way back."""

    def __init__(self, chance: random.Random) -> None:
        self.near = LocalCounters()
        self._chance = chance

    async def _way(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def take(self, ask: Ask) -> Granted | Refused:
        await self._way()
        found = await self.near.take(ask)
        await self._way()
        return found

    async def extend(self, lease: str, more: Amounts, used: Amounts) -> Refused | None:
        await self._way()
        found = await self.near.extend(lease, more, used)
        await self._way()
        return found

    async def settle(self, lease: str, used: Amounts) -> Settled:
        await self._way()
        found = await self.near.settle(lease, used)
        await self._way()
        return found

    async def leave(self, lease: str) -> Settled:
        await self._way()
        found = await self.near.leave(lease)
        await self._way()
        return found

    async def reap(self) -> tuple[Reaped, ...]:
        return await self.near.reap()

    async def seed(self, month: str, spent: Mapping[Scope, int]) -> None:
        await self.near.seed(month, spent)

    async def recall(self, scope: Scope, until: float, used: Amounts) -> None:
        await self.near.recall(scope, until, used)

    async def use(self, scope: Scope) -> Use:
        return await self.near.use(scope)

    async def aclose(self) -> None:
        return


@pytest.mark.parametrize("full", ["queue", "refuse"])
@pytest.mark.parametrize("seed", range(6))
def test_a_block_has_its_lease_whoever_asks_beside_it_or_leaves(acme: Company, full: str, seed: int) -> None:
    chance, people = random.Random(seed), [acme.principal(name) for name in ("ana", "bo")]
    counters = Far(chance)
    terms = TenantLimits(tenant=LIMITS, user=Limits(concurrent=3), full=full, wait_s=5.0)  # type: ignore[arg-type]
    gate = Gate(counters, lambda _tenant: terms)
    inside: set[str] = set()
    seen = {"admitted": 0, "refused": 0, "cancelled": 0}
    charged = 0

    async def one(principal: Principal, number: int) -> None:
        nonlocal charged
        tokens, booked = chance.randrange(1, 400), False
        try:
            async with gate.admit(
                principal, Estimate(tokens, 600), request_id=f"{number:032x}", price=lambda *used: sum(used)
            ) as lease:
                seen["admitted"] += 1
                assert lease.id not in inside, "two blocks have one lease"
                inside.add(lease.id)
                try:
                    assert len(inside) <= 4
                    await lease.expect(tokens + 5)
                    for written in range(chance.randrange(400)):
                        if written % 40 == 0:
                            assert lease.id in counters.near._leases, "somebody else gave the lease back"
                            assert await lease.produced(tokens, written)
                            await asyncio.sleep(0)
                    booked = await lease.settle(tokens, lease.output)
                    assert booked, "it was settled before"
                    assert not await lease.settle(tokens, 1)
                finally:
                    inside.discard(lease.id)
                    charged += lease.used.money
        except LimitExceeded:
            seen["refused"] += 1
        except asyncio.CancelledError:
            seen["cancelled"] += 1

    async def main() -> None:
        tasks = []
        for number in range(120):
            tasks.append(asyncio.create_task(one(chance.choice(people), number)))
            for _ in range(chance.choice((0, 0, 1, 4, 40))):
                await asyncio.sleep(0)
            under_way = [task for task in tasks if not task.done()]
            if under_way and chance.random() < 0.3:
                chance.choice(under_way).cancel()
        for ended in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20):
            if isinstance(ended, BaseException):  # cancelled before it began
                assert isinstance(ended, asyncio.CancelledError), ended
        whole = await counters.use(tenant_scope(people[0].tenant_id))
        assert whole.held == whole.flight == NO_AMOUNTS
        assert whole.month.money == whole.minute.tokens == charged
        for person in people:
            use = await counters.use(user_scope(person.tenant_id, person.user_id))
            assert use.held == use.flight == NO_AMOUNTS
        assert not counters.near._leases
        assert not gate.live

    asyncio.run(main())
    assert seen["admitted"] > 20
    assert seen["cancelled"] > 10


def test_what_many_afford_at_one_time_is_never_more_than_there_is(acme: Company) -> None:
    """As documents do, whose cost shows when they are parsed: each is held whole, or refused and costs nothing."""
    chance, ana = random.Random(7), acme.principal("ana")
    counters = Far(chance)
    gate = Gate(counters, lambda _tenant: TenantLimits(tenant=Limits(money_per_month=10_000)))
    scope, spent, refused = tenant_scope(ana.tenant_id), 0, 0

    async def load(guess: int, cost: int) -> None:
        nonlocal spent, refused
        try:
            async with gate.admit(ana, Estimate(0, 0), price=lambda *_: guess) as lease:
                for part in (cost // 3, cost):
                    await lease.afford(part)
                    assert (await counters.use(scope)).month.money + (await counters.use(scope)).held.money <= 10_000
                spent += cost
                await lease.settle(0, 0, cost)
        except LimitExceeded:
            refused += 1

    async def main() -> None:
        tasks = [asyncio.create_task(load(chance.randrange(300), chance.randrange(1_500))) for _ in range(60)]
        for task in chance.sample(tasks, 10):
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in ended)
        use = await counters.use(scope)
        assert use.held == use.flight == NO_AMOUNTS
        assert use.month.money == spent <= 10_000
        assert refused > 10
        assert spent > 5_000

    asyncio.run(main())
