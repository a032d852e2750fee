"""A thousand tenants: each is admitted and refused as if it shared the service with nine others, or with nobody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.counters import Room
from admission.gate import ROOMS, Estimate, Gate
from admission.lease import Lease
from admission.limits import Limits, TenantLimits
from admission.local import LocalCounters
from tenancy.control import Tenants
from tenancy.errors import LimitExceeded
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tests.admission.conformance.rig import Clock
from tests.support.people import Company

WATCHED, MANY, USERS = 10, 1_000, 3
LIMITS = TenantLimits(
    tenant=Limits(requests_per_minute=12, concurrent=4, tokens_per_minute=6_000, money_per_month=40_000),
    user=Limits(requests_per_minute=6, concurrent=2, output_tokens_per_minute=1_500),
)


@dataclass(frozen=True)
class Visit:
    """A request of a tenant's user at a time; it produces so much, and leaves after so many other visits of its own."""

    at: float
    tenant: int
    user: int
    read: int
    written: int
    stays: int


def visits(seed: int, tenants: Iterable[int], each: int) -> list[Visit]:
    """Of each tenant the same ones, whoever else there is."""
    found = []
    for tenant in tenants:
        dice = random.Random(seed * 100_003 + tenant)
        at = 0.0
        for _ in range(each):
            at += dice.choice((0.0, 0.5, 3.0, 20.0, 70.0)) * dice.random()
            found.append(
                Visit(at, tenant, dice.randrange(USERS), dice.randrange(900), dice.randrange(700), dice.randrange(4))
            )
    return sorted(found, key=lambda one: (one.at, one.tenant))


def price(read: int, written: int) -> int:
    return read + 3 * written


async def decided(ana: Principal, coming: list[Visit]) -> dict[int, list[object]]:
    """What each watched tenant was told, in order."""
    clock = Clock()
    door = Gate(LocalCounters(clock), lambda _: LIMITS)
    rooms: list[Room] = []
    ROOMS.set(rooms)
    begun, told = clock.now, {tenant: [] for tenant in range(WATCHED)}
    inside: dict[int, list[tuple[int, AbstractAsyncContextManager[Lease], Lease, Visit]]] = {}

    async def go(tenant: int, *, everybody: bool = False) -> None:
        here = inside.get(tenant, [])
        stay = []
        for left, block, lease, one in here:
            if left > 0 and not everybody:
                stay.append((left - 1, block, lease, one))
                continue
            await lease.settle(one.read, min(one.written, lease.output or one.written))
            await block.__aexit__(None, None, None)
        inside[tenant] = stay

    for one in coming:
        clock.now = begun + one.at
        await go(one.tenant)
        who = replace(
            ana, tenant_id=f"t{one.tenant:04d}", user_id=f"u{one.user}", credential_id=f"k{one.tenant}-{one.user}"
        )
        block = door.admit(who, Estimate(one.read, 800), model="m", price=price, request_id=f"{id(one):032x}")
        said: object
        try:
            lease = await block.__aenter__()
        except LimitExceeded as refused:
            said = (refused.scope, refused.bound, refused.limit, refused.used, round(refused.retry_after, 6))
        else:
            grows = await lease.produced(one.read, one.written)
            said = (grows, lease.stopped_by, [(room.bound, room.used, round(room.resets_s, 6)) for room in rooms])
            inside.setdefault(one.tenant, []).append((one.stays, block, lease, one))
        if one.tenant < WATCHED:
            told[one.tenant].append(said)
    for tenant in list(inside):
        await go(tenant, everybody=True)
    assert door.live == {}
    return told


@pytest.fixture(scope="module")
def ana(tmp_path_factory: pytest.TempPathFactory) -> Principal:
    tenants = Tenants(tmp_path_factory.mktemp("many"), MasterKey(bytes(32)))
    try:
        return Company(tenants, Authenticator(tenants), "acme").principal("ana")
    finally:
        tenants.close()


def told(ana: Principal, seed: int, tenants: Iterable[int], each: int) -> dict[int, list[object]]:
    return asyncio.run(decided(ana, visits(seed, tenants, each)))


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_each_is_decided_as_if_alone(ana: Principal, seed: int) -> None:
    together = told(ana, seed, range(WATCHED), 12)
    for tenant in range(0, WATCHED, 3):
        assert told(ana, seed, [tenant], 12)[tenant] == together[tenant]


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_decisions_among_a_thousand_are_those_among_ten(ana: Principal, seed: int) -> None:
    few, many = told(ana, seed, range(WATCHED), 12), told(ana, seed, range(MANY), 12)
    assert few == many
    answers = [one for each in few.values() for one in each]
    refused = [one for one in answers if isinstance(one, tuple) and len(one) == 5]
    assert 0.1 < len(refused) / len(answers) < 0.9, "both are decided often"


def test_who_came_once_takes_no_memory_for_long(ana: Principal) -> None:
    clock = Clock()
    counters = LocalCounters(clock)
    door = Gate(counters, lambda _: TenantLimits(tenant=Limits(requests_per_minute=1)))

    async def main() -> None:
        for number in range(2_000):
            async with door.admit(replace(ana, tenant_id=f"t{number}"), Estimate(0, 0)):
                clock.now += 0.5
            assert len(counters._scopes) < 600, "of 4,000: those of a minute, and some that nobody looked at yet"

    asyncio.run(main())
