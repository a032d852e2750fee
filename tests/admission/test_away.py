"""A store of counters that goes away and comes back: a real Redis, killed and started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admission.away import WithAllowance
from admission.counters import Ask, Granted, Refused
from admission.gate import Estimate, Gate
from admission.lease import STEP
from admission.limits import NO_AMOUNTS, Amounts, Budget, Draw, Limits, TenantLimits
from admission.redis import RedisCounters
from admission.redis_link import Link
from admission.scopes import Scope, root_scope, tenant_scope, user_scope
from admission.tally import month_of
from tenancy.errors import LimitExceeded, LimitsUnavailable
from tenancy.identity import Principal
from tenancy.limits import Away
from tests.admission.conformance.conftest import settings_of
from tests.admission.conformance.rig import Clock, amounts, ask, draw, granted, refused, tenant, user
from tests.support.people import Company
from tests.support.redis_server import RedisServer

ACME, ANA = tenant_scope("acme"), user_scope("acme", "ana")
THREE = Budget(requests=3, tokens=1_000)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path / "redis", persistent=True)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def counters(server: RedisServer) -> WithAllowance:
    # Asked anew at every call: a pause would only make the tests wait.
    settings = msgspec.structs.replace(settings_of(server), retry_s=1e-6)
    return WithAllowance(RedisCounters(Link(settings)))


def run(work: Coroutine[Any, Any, None], counters: WithAllowance) -> None:
    async def main() -> None:
        try:
            await work
        finally:
            await counters.aclose()

    asyncio.run(main())


def with_allowance(wanted: Ask, allowance: Budget = THREE) -> Ask:
    return msgspec.structs.replace(wanted, allowance=allowance)


async def spend(counters: WithAllowance, wanted: Ask, used: Amounts) -> bool:
    """Whether it was on the allowance."""
    found = await counters.take(wanted)
    assert isinstance(found, Granted), found
    await counters.settle(wanted.lease, used)
    await counters.leave(wanted.lease)
    return found.on_allowance


def test_without_an_allowance_nothing_is_admitted(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        await spend(counters, ask(tenant("acme", concurrent=1)), amounts(1))
        server.kill()
        for _ in range(3):
            with pytest.raises(LimitsUnavailable):
                await counters.take(ask(tenant("acme", concurrent=1)))
        assert not counters.available
        assert counters.counts == {"refused": 3, "allowed": 0, "reported": 0, "waiting": 0}
        server.start()
        await spend(counters, ask(tenant("acme", concurrent=1)), amounts(1))
        assert counters.available
        assert (await counters.use(ACME)).minute == Amounts(2, 2)

    run(main(), counters)


def test_an_allowance_bounds_requests_and_tokens(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        server.kill()
        for _ in range(3):
            assert await spend(counters, with_allowance(ask(user(), tenant())), amounts(100, 50))
        with pytest.raises(LimitsUnavailable, match="allowance of 3 requests"):
            await counters.take(with_allowance(ask(user(), tenant())))
        other = ask(draw(tenant_scope("globex")), need=amounts(990), tenant="globex")
        assert await spend(counters, with_allowance(other), amounts(990))
        more = ask(draw(tenant_scope("globex")), need=amounts(11), tenant="globex")
        with pytest.raises(LimitsUnavailable, match="allowance of 1000 tokens"):
            await counters.take(with_allowance(more))
        assert counters.counts == {"refused": 2, "allowed": 4, "reported": 0, "waiting": 4}

    run(main(), counters)


def test_on_the_allowance_the_limits_of_each_scope_hold_as_well(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        server.kill()
        own = (user(requests_per_minute=1), tenant())
        assert await spend(counters, with_allowance(ask(*own)), amounts(1))
        refusal = await refused(counters, with_allowance(ask(*own)))  # type: ignore[arg-type]
        assert (refusal.scope, refusal.bound) == (ANA, "requests_per_minute")
        found = await counters.take(with_allowance(ask(user("bo"), tenant(concurrent=5))))
        assert isinstance(found, Granted)
        assert [room.bound for room in found.rooms] == ["concurrent"], "the allowance is no limit of the tenant's"

    run(main(), counters)


def test_what_the_allowance_spent_is_told_to_the_store_once(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        told: list[float] = []
        counters.tell = lambda crossed: told.extend(one.share for one in crossed)
        limits = {"money_per_month": 100, "soft": 0.5}
        await spend(counters, with_allowance(ask(user(), tenant(**limits))), amounts(1, 1, 10))
        server.kill()
        asks = [with_allowance(ask(user(), tenant(**limits), need=amounts(0, 0, 9))) for _ in range(3)]
        for one in asks:
            assert await spend(counters, one, amounts(100, 50, 30))
        server.start()
        assert await counters.reap() == ()
        for scope in (ACME, ANA):
            use = await counters.use(scope)
            assert (use.minute, use.held, use.flight) == (Amounts(4, 301, 151, 100), NO_AMOUNTS, NO_AMOUNTS)
        assert (await counters.use(ACME)).month.money == 100
        assert told == [0.5, 1.0]
        refusal = await refused(counters, with_allowance(ask(tenant(**limits), need=amounts(0, 0, 1))))  # type: ignore[arg-type]
        assert (refusal.bound, refusal.used) == ("money_per_month", 100)
        # The answer to a report was lost, and it is said again.
        for one in asks:
            assert not (await counters.store.report(one, amounts(100, 50, 30), recent=True)).booked
        assert (await counters.use(ACME)).month.money == 100
        assert counters.counts == {"refused": 0, "allowed": 3, "reported": 3, "waiting": 0}

    run(main(), counters)


def test_a_server_that_ends_tells_first_what_it_knows(counters: WithAllowance, server: RedisServer) -> None:
    other = RedisCounters(Link(settings_of(server)))

    async def main() -> None:
        server.kill()
        assert await spend(counters, with_allowance(ask(tenant())), amounts(7))
        server.start()
        await counters.aclose()
        assert (await other.use(ACME)).minute == Amounts(1, 7)
        await other.aclose()

    run(main(), counters)


def test_a_lost_reply_to_a_take_costs_nothing_twice(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        wanted = with_allowance(ask(user(), tenant(), need=amounts(50)))
        await granted(counters.store, wanted)
        server.kill()
        assert await spend(counters, wanted, amounts(40))
        server.start()
        await counters.reap()
        use = await counters.use(ACME)
        assert (use.minute, use.held, use.flight) == (Amounts(1, 40), NO_AMOUNTS, NO_AMOUNTS)

    run(main(), counters)


def test_an_outage_of_several_parts_has_one_allowance(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        server.kill()
        goes_on = with_allowance(ask(tenant()))
        await granted(counters, goes_on)
        assert await spend(counters, with_allowance(ask(tenant())), amounts(1))
        server.start()
        assert not await spend(counters, with_allowance(ask(tenant())), amounts(1))
        server.kill()
        assert await spend(counters, with_allowance(ask(tenant())), amounts(1))
        with pytest.raises(LimitsUnavailable, match="3 requests"):
            await counters.take(with_allowance(ask(tenant())))
        await counters.leave(goes_on.lease)
        server.start()
        await counters.reap()
        assert (await counters.use(ACME)).minute.requests == 4
        server.kill()
        for _ in range(3):
            assert await spend(counters, with_allowance(ask(tenant())), amounts(1))

    run(main(), counters)


def test_a_request_admitted_before_is_settled_afterwards(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        settles, leaves, lives = (ask(user(), tenant(), need=amounts(10, 10)) for _ in range(3))
        for one in (settles, leaves, lives):
            await granted(counters, one)
        server.kill()
        assert await counters.extend(leaves.lease, NO_AMOUNTS, amounts(5, 1)) is None
        assert (await counters.settle(settles.lease, amounts(7, 3, 2))).booked
        assert not (await counters.settle(settles.lease, amounts(900))).booked
        await counters.leave(settles.lease)
        await counters.leave(leaves.lease)
        assert (await counters.settle(lives.lease, amounts(20))).booked
        server.start()
        await counters.reap()
        use = await counters.use(ACME)
        assert (use.minute, use.flight.requests) == (Amounts(3, 7, 3, 2), 1)
        await counters.leave(lives.lease)
        use = await counters.use(ACME)
        assert (use.minute, use.held, use.flight) == (Amounts(3, 27, 3, 2), NO_AMOUNTS, NO_AMOUNTS)

    run(main(), counters)


def test_after_a_long_outage_leases_have_time_to_give_a_sign_of_life(
    counters: WithAllowance, server: RedisServer
) -> None:
    async def main() -> None:
        clock = Clock()
        other = RedisCounters(Link(settings_of(server)), clock=clock)
        wanted = ask(tenant(), need=amounts(10))
        await granted(other, wanted)
        assert await other.reap() == ()
        server.kill()
        clock.now += 300
        server.start()
        assert await other.reap() == (), "whose lease it is had no chance to renew it"
        clock.now += wanted.ttl_s / 2
        assert await other.reap() == ()
        clock.now += wanted.ttl_s / 2
        assert [one.lease for one in await other.reap()] == [wanted.lease]
        await other.aclose()

    run(main(), counters)


def test_what_was_admitted_before_gets_more_from_the_allowance_or_ends(
    counters: WithAllowance, server: RedisServer
) -> None:
    async def main() -> None:
        none, some = ask(tenant(), need=amounts(10)), with_allowance(ask(tenant(), need=amounts(10)))
        await granted(counters, none)
        await granted(counters, some)
        server.kill()
        refusal = await counters.extend(none.lease, amounts(0, 256), amounts(10))
        assert isinstance(refusal, Refused)
        assert refusal.bound == "store"
        for _ in range(3):
            assert await counters.extend(some.lease, amounts(0, 300), amounts(10)) is None
        refusal = await counters.extend(some.lease, amounts(0, 300), amounts(10))
        assert isinstance(refusal, Refused), "1,000 tokens are allowed"
        await counters.settle(some.lease, amounts(10, 900))
        await counters.leave(some.lease)
        # Two requests and 100 tokens are left.
        with pytest.raises(LimitsUnavailable):
            await counters.take(with_allowance(ask(tenant(), need=amounts(101))))
        assert await spend(counters, with_allowance(ask(tenant(), need=amounts(100))), amounts(100))
        await counters.leave(none.lease)
        server.start()
        await counters.reap()
        use = await counters.use(ACME)
        assert (use.minute, use.held, use.flight) == (Amounts(3, 110, 900), NO_AMOUNTS, NO_AMOUNTS)

    run(main(), counters)


def test_a_root_is_recalled_also_while_the_store_is_away(counters: WithAllowance, server: RedisServer) -> None:
    async def main() -> None:
        clock = Clock()
        root = draw(root_scope("acme", "r"), Budget(requests=2), until=clock.now + 1e9)
        server.kill()
        await counters.recall(root.scope, clock.now + 1e9, Amounts(requests=1))
        await spend(counters, with_allowance(ask(root, tenant())), amounts(1))
        refusal = await refused(counters, with_allowance(ask(root, tenant())))  # type: ignore[arg-type]
        assert (refusal.scope, refusal.used) == (root.scope, 2)
        server.start()
        await counters.reap()
        assert (await counters.use(root.scope)).life.requests == 2

    run(main(), counters)


def test_a_store_that_comes_back_empty_begins_no_month_or_life_with_the_allowance_alone(tmp_path: Path) -> None:
    """What was used before it was lost is told from the record when it is asked for: it must not be begun by then."""
    server = RedisServer(tmp_path / "forgetful")
    server.start()
    counters = WithAllowance(RedisCounters(Link(msgspec.structs.replace(settings_of(server), retry_s=1e-6))))
    told: list[str] = []

    async def main() -> None:
        ends = time.time() + 3_600
        root = draw(root_scope("acme", "r"), Budget(requests=10), until=ends)
        draws = (root, tenant(money_per_month=100))
        month = month_of(time.time())

        async def emptied(_draws: tuple[Draw, ...]) -> None:
            told.append(month)
            await counters.seed(month, {ACME: 97})

        assert isinstance(counters.store, RedisCounters)
        counters.store.emptied = emptied
        await counters.seed(month, {ACME: 90})
        await spend(counters, with_allowance(ask(*draws)), amounts(0, 0, 4))
        server.kill()
        assert await spend(counters, with_allowance(ask(*draws)), amounts(0, 0, 3))
        server.start()
        await counters.reap()
        assert counters.counts["waiting"] == 0
        use = await counters.use(root.scope)
        assert not use.life.requests, "so that it is asked for"
        assert (use.minute.requests, use.minute.money) == (1, 3)
        await counters.recall(root.scope, ends, Amounts(2, 0, 0, 7))
        refusal = await refused(counters, ask(*draws, need=amounts(0, 0, 4)))  # type: ignore[arg-type]
        assert (refusal.bound, refusal.used) == ("money_per_month", 97)
        assert (await counters.use(root.scope)).life == Amounts(2, 0, 0, 7)
        assert told == [month]

    try:
        run(main(), counters)
    finally:
        server.kill()


# --- At the gate --------------------------------------------------------------------------------------------------


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def test_an_answer_that_streams_ends_with_what_it_holds(
    counters: WithAllowance, server: RedisServer, ana: Principal
) -> None:
    async def main() -> None:
        gate = Gate(counters, lambda _: TenantLimits())
        async with gate.admit(ana, Estimate(10, 2_000)) as lease:
            server.kill()
            pieces = 0
            while await lease.produced(10, pieces + 1):
                pieces += 1
            assert lease.stopped_by == "tenant store"
            assert pieces < STEP + 64

    run(main(), counters)


def test_contract_and_settings_say_what_is_admitted(
    counters: WithAllowance, server: RedisServer, ana: Principal
) -> None:
    async def main() -> None:
        limits = TenantLimits(away=Away("allowance", requests=1, tokens=1_000))
        gate = Gate(counters, lambda _: limits)
        refuses = Gate(counters, lambda _: TenantLimits(away=Away()))
        silent = Gate(counters, lambda _: TenantLimits())
        server.kill()
        async with gate.admit(ana, Estimate(10, 0)) as lease:
            assert lease.on_allowance
        for door in (gate, refuses, silent):
            with pytest.raises(LimitsUnavailable):
                async with door.admit(ana, Estimate(10, 0)):
                    pytest.fail("admitted")

    run(main(), counters)


def test_a_store_that_lost_all_is_told_what_months_have_cost(tmp_path: Path, ana: Principal) -> None:
    """Another server takes the place of the first, and remembers nothing."""
    server = RedisServer(tmp_path / "forgetful")
    server.start()
    counters = WithAllowance(RedisCounters(Link(msgspec.structs.replace(settings_of(server), retry_s=1e-6))))
    ledger, reads = {"spent": 90}, []

    async def spent(scopes: tuple[Scope, ...]) -> tuple[str, Mapping[Scope, int]]:
        reads.append(scopes)
        with server.client() as client:
            seconds = client.time()[0]
        return month_of(seconds), dict.fromkeys(scopes, ledger["spent"])

    async def main() -> None:
        limits = TenantLimits(tenant=Limits(money_per_month=100))
        gate = Gate(counters, lambda _: limits, spent=spent)
        assert isinstance(counters.store, RedisCounters)
        counters.store.emptied = gate.begin_again
        for _ in range(2):
            async with gate.admit(ana, Estimate(0, 0)) as lease:
                await lease.settle(1, 0, 4)
        ledger["spent"] = 98
        assert len(reads) == 1
        server.kill()
        server.start()
        with pytest.raises(LimitExceeded) as full:
            async with gate.admit(ana, Estimate(3, 0), price=lambda read, _: read):
                pytest.fail("admitted")
        assert (full.value.bound, full.value.used) == ("money_per_month", 98)
        assert len(reads) == 2
        async with gate.admit(ana, Estimate(2, 0), price=lambda read, _: read) as lease:
            await lease.settle(2, 0)
        assert (await counters.use(tenant_scope(ana.tenant_id))).month.money == 100

    try:
        run(main(), counters)
    finally:
        server.kill()
