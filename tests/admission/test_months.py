"""What a month has cost before this process: read once, before the first request draws on it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from admission.gate import Estimate, Gate, SharedLimits
from admission.limits import Limits, TenantLimits
from admission.local import LocalCounters
from admission.scopes import DEPLOYMENT, Scope, key_scope, tenant_scope, user_scope
from tenancy.errors import LimitExceeded, Unavailable
from tenancy.identity import Principal
from tests.admission.conformance.rig import Clock
from tests.support.people import Company

CAPPED = Limits(money_per_month=100)


class Ledgers:
    """`spent` micro-units by scope; `asked` are the scopes that somebody wanted to know of."""

    def __init__(self, spent: Mapping[Scope, int] | None = None) -> None:
        self.spent = dict(spent or {})
        self.asked: list[Scope] = []
        self.away = False

    async def __call__(self, scopes: tuple[Scope, ...]) -> tuple[str, Mapping[Scope, int]]:
        self.asked += scopes
        # Others may come in between.
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("the ledger cannot be read", item="usage")
        return "2026-11", {scope: self.spent.get(scope, 0) for scope in scopes}


def gate(ledgers: Ledgers, shared: SharedLimits | None = None, **limits: Limits) -> Gate:
    return Gate(LocalCounters(Clock()), lambda _tenant: TenantLimits(**limits), shared=shared, spent=ledgers)


async def ask(door: Gate, who: Principal, money: int) -> None:
    async with door.admit(who, Estimate(money, 0), price=lambda read, _written: read) as lease:
        await lease.settle(money, 0)


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def test_a_budget_that_was_spent_before_is_spent(ana: Principal) -> None:
    async def main() -> None:
        scope = tenant_scope(ana.tenant_id)
        door = gate(Ledgers({scope: 95}), tenant=CAPPED)
        with pytest.raises(LimitExceeded) as refused:
            await ask(door, ana, 6)
        assert (refused.value.scope, refused.value.bound, refused.value.used) == ("tenant", "money_per_month", 95)
        await ask(door, ana, 5)
        with pytest.raises(LimitExceeded):
            await ask(door, ana, 1)

    asyncio.run(main())


def test_each_scope_is_read_once_and_only_where_money_is_limited(acme: Company, ana: Principal) -> None:
    async def main() -> None:
        tenant, first, second = (
            tenant_scope(ana.tenant_id),
            *(user_scope(ana.tenant_id, acme.principal(name).user_id) for name in ("ana", "bo")),
        )
        free = Ledgers()
        await ask(gate(free, tenant=Limits(requests_per_minute=5)), ana, 1)
        assert free.asked == []

        ledgers = Ledgers({first: 90})
        door = gate(ledgers, SharedLimits(CAPPED), tenant=CAPPED, user=CAPPED)
        await asyncio.gather(*(ask(door, ana, 1) for _ in range(10)))
        assert sorted(ledgers.asked, key=str) == sorted([tenant, first, DEPLOYMENT], key=str)
        ledgers.asked.clear()
        await ask(door, acme.principal("bo"), 1)
        assert ledgers.asked == [second]
        with pytest.raises(LimitExceeded) as refused:
            await ask(door, ana, 1)
        assert (refused.value.scope, refused.value.used) == ("user", 100)

    asyncio.run(main())


def test_an_amount_that_cannot_be_read_is_not_taken_for_zero(ana: Principal) -> None:
    async def main() -> None:
        scope = tenant_scope(ana.tenant_id)
        ledgers = Ledgers({scope: 100})
        ledgers.away = True
        door = gate(ledgers, tenant=CAPPED)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await ask(door, ana, 1)
        assert (await door.use(ana.tenant_id)).flight.requests == 0
        ledgers.away = False
        with pytest.raises(LimitExceeded):
            await ask(door, ana, 1)
        assert ledgers.asked == [scope] * 3

    asyncio.run(main())


def test_a_limit_that_comes_within_the_month_finds_what_was_spent(ana: Principal) -> None:
    async def main() -> None:
        limits = TenantLimits()
        ledgers = Ledgers({tenant_scope(ana.tenant_id): 100, key_scope(ana.tenant_id, "k"): 7})
        door = Gate(LocalCounters(Clock()), lambda _tenant: limits, spent=ledgers)
        await ask(door, ana, 1)
        limits = TenantLimits(tenant=CAPPED)
        with pytest.raises(LimitExceeded):
            await ask(door, ana, 1)

    asyncio.run(main())
