"""The gate over the counters in memory: what requests draw on, how leases grow, and that every exit settles."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from admission.counters import Crossing, Room, Settled
from admission.expected import FIRST_OUTPUT, LEAST_OUTPUT, ExpectedOutput
from admission.gate import ROOMS, Estimate, Gate, SharedLimits
from admission.lease import AHEAD, STEP, Lease
from admission.limits import Amounts, Limits, TenantLimits
from admission.local import LocalCounters
from admission.reaper import Reaper
from admission.scopes import DEPLOYMENT, key_scope
from tenancy.errors import InvalidInput, LimitExceeded, Unavailable
from tenancy.identity import Principal
from tests.admission.conformance.rig import Clock
from tests.support.people import Company
from tests.support.spent import Spent, spent


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


@pytest.fixture
def bo(acme: Company) -> Principal:
    return acme.principal("bo")


def gate(clock: Clock | None = None, shared: SharedLimits | None = None, **limits: Limits) -> Gate:
    return Gate(LocalCounters(clock or Clock()), lambda _tenant: TenantLimits(**limits), shared=shared)


async def ask(door: Gate, who: Principal, input: int = 0, output: int = 0, **options: Any) -> None:
    async with door.admit(who, Estimate(input, output), **options) as lease:
        await lease.settle(input, output)


async def refusal(door: Gate, who: Principal, input: int = 0, **options: Any) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as refused:
        await ask(door, who, input, **options)
    return refused.value


def test_user_tenant_and_key_are_each_refused_by_name(ana: Principal, bo: Principal) -> None:
    async def main() -> None:
        for name, limits in (("user", {"user": 1}), ("tenant", {"tenant": 1}), ("key", {"key": 1})):
            door = gate(**{kind: Limits(requests_per_minute=most) for kind, most in limits.items()})
            keyed = replace(ana, method="api_key", credential_id="k1")
            await ask(door, keyed)
            refused = await refusal(door, keyed)
            assert (refused.scope, refused.bound, refused.limit, refused.used) == (name, "requests_per_minute", 1, 1)
            if name != "tenant":
                await ask(door, replace(bo, method="api_key", credential_id="k2"))
            if name == "key":
                assert (await door.counters.use(key_scope(ana.tenant_id, "k1"))).minute.requests == 1

    asyncio.run(main())


def test_of_what_tenants_share_a_refusal_says_nothing(ana: Principal) -> None:
    async def main() -> None:
        one = Limits(requests_per_minute=1)
        for shared in (SharedLimits(one), SharedLimits(models={"m": one})):
            clock = Clock()
            door, rooms = gate(clock, shared), []
            ROOMS.set(rooms)
            await ask(door, ana, model="m")
            assert rooms == []
            # Nor when others asked, which the wait to the second would say.
            for passed in (0, 17, 30):
                clock.now += passed
                refused = await refusal(door, ana, model="m")
                assert refused.scope in {"deployment", "model"}
                assert (refused.bound, refused.limit, refused.used) == (None, None, None)
                assert refused.retry_after == 61
        await ask(door, ana, model="other")
        assert (await gate(shared=shared).counters.use(DEPLOYMENT)).minute.requests == 0

    asyncio.run(main())


def test_a_contract_takes_the_place_of_the_deployment(ana: Principal) -> None:
    class Agreed:
        weight = 1

        def limits(self, deployment: TenantLimits) -> TenantLimits:
            assert deployment.user.concurrent == 1
            return TenantLimits(user=Limits(requests_per_minute=0))

    async def main() -> None:
        door = gate(user=Limits(concurrent=1))
        assert (await refusal(door, ana, agreed=Agreed())).bound == "requests_per_minute"
        await ask(door, ana)

    asyncio.run(main())


class Contract:
    weight = 1

    def __init__(self, requests: int) -> None:
        self.requests = requests

    def limits(self, deployment: TenantLimits) -> TenantLimits:
        return TenantLimits(user=Limits(requests_per_minute=self.requests, deadline_s=deployment.user.deadline_s))


def test_each_request_has_the_limits_of_its_contract_as_it_is_then(ana: Principal) -> None:
    settings = TenantLimits(user=Limits(requests_per_minute=99))

    async def main() -> None:
        door = Gate(LocalCounters(Clock()), lambda _tenant: settings)

        async def most(agreed: Contract | None) -> int | None:
            rooms: list[Room] = []
            ROOMS.set(rooms)
            await ask(door, ana, agreed=agreed)
            return rooms[0].limit

        first, second = Contract(50), Contract(60)
        assert [await most(first), await most(second), await most(first)] == [50, 60, 50]
        del first
        assert await most(None) == 99
        assert [await most(Contract(70)), await most(Contract(80))] == [70, 80]
        assert await most(None) == 99, "what was agreed is gone, and in nobody's way"

    asyncio.run(main())


def test_limits_of_the_deployment_that_change_hold_from_the_next_request(ana: Principal) -> None:
    agreed, held = Contract(50), [TenantLimits()]

    async def main() -> None:
        door = Gate(LocalCounters(Clock()), lambda _tenant: held[-1])
        async with door.admit(ana, Estimate(0, 0), agreed) as lease:
            assert lease.deadline is None
        held.append(TenantLimits(user=Limits(deadline_s=5)))
        async with door.admit(ana, Estimate(0, 0), agreed) as lease:
            assert lease.deadline is not None

    asyncio.run(main())


def test_rooms_tell_of_the_caller_s_own_limits(ana: Principal) -> None:
    async def main() -> None:
        rooms = []
        ROOMS.set(rooms)
        await ask(gate(user=Limits(requests_per_minute=7)), ana)
        assert [(room.scope.kind, room.bound, room.limit, room.used) for room in rooms] == [
            ("user", "requests_per_minute", 7, 1)
        ]

    asyncio.run(main())


# --- Reserving ----------------------------------------------------------------------------------------------------


def test_the_reservation_follows_what_answers_took(ana: Principal, bo: Principal) -> None:
    async def main() -> None:
        door = gate()

        async def held(who: Principal, produced: int, most: int = 4_096) -> int:
            async with door.admit(who, Estimate(0, most), model="m") as lease:
                reserved = spent(door, who.tenant_id, who.user_id).held
                await lease.settle(0, produced)
                return reserved

        assert await held(ana, 20) == FIRST_OUTPUT
        assert await held(ana, 1_020) == LEAST_OUTPUT
        assert await held(ana, 0) == 220
        assert await held(ana, 0, most=100) == 100
        assert await held(bo, 0) == FIRST_OUTPUT

    asyncio.run(main())


def test_expectations_are_forgotten_oldest_first() -> None:
    expected = ExpectedOutput(kept=2)
    for user in ("a", "b", "c"):
        expected.learn("t", user, "m", 1_000)
    assert [expected.of("t", user, "m", 4_096) for user in ("a", "b", "c")] == [FIRST_OUTPUT, 1_000, 1_000]


def test_a_tenant_of_many_users_pushes_nobody_else_out() -> None:
    kept, many = 30, 1_000
    expected = ExpectedOutput(kept=kept)
    tenants = ("a", "b", "crowd")

    def known(tenant: str, users: int) -> int:
        return sum(expected.of(tenant, f"u{user}", "m", 4_096) == 1_000 for user in range(users))

    for user in range(many):
        expected.learn("crowd", f"u{user}", "m", 1_000)
    assert known("crowd", many) == kept
    for tenant in tenants[:2]:
        for user in range(kept // len(tenants)):
            expected.learn(tenant, f"u{user}", "m", 1_000)
    for user in range(many, 2 * many):
        expected.learn("crowd", f"u{user}", "m", 1_000)
        assert {known("a", 10), known("b", 10)} == {10}
    assert known("crowd", 2 * many) == 10


def test_more_tenants_than_are_kept_forget_the_oldest() -> None:
    expected = ExpectedOutput(kept=2)
    for tenant in ("a", "b", "c"):
        expected.learn(tenant, "u", "m", 1_000)
    assert [expected.of(tenant, "u", "m", 4_096) for tenant in ("a", "b", "c")] == [FIRST_OUTPUT, 1_000, 1_000]


def test_the_prompt_once_known_is_held_exactly(ana: Principal) -> None:
    async def main() -> None:
        door = gate(user=Limits(tokens_per_minute=1_000))
        async with door.admit(ana, Estimate(900, 0)) as lease:
            await lease.expect(300)
            assert spent(door, ana.tenant_id).held == 300
            async with door.admit(ana, Estimate(600, 0)):
                with pytest.raises(LimitExceeded):
                    await lease.expect(500)
                assert spent(door, ana.tenant_id).held == 900

    asyncio.run(main())


def test_a_stream_grows_by_steps_and_stops_where_nothing_is_left(ana: Principal) -> None:
    async def main() -> None:
        limit = 100 + FIRST_OUTPUT + 2 * STEP + 10
        door = gate(user=Limits(tokens_per_minute=limit))
        async with door.admit(ana, Estimate(100, 4_096)) as lease:
            assert lease.stopped_by == ""
            produced, most = 0, 0
            while await lease.produced(100, produced):
                produced += 1
                most = max(most, spent(door, ana.tenant_id).held)
            assert produced == FIRST_OUTPUT + 2 * STEP
            assert most == 100 + produced <= limit
            assert lease.stopped_by == "user tokens_per_minute"
        assert spent(door, ana.tenant_id) == Spent(1, 0, 100 + produced, 0)

    asyncio.run(main())


def test_a_step_is_asked_for_before_it_is_needed_and_never_above_the_maximum(ana: Principal) -> None:
    async def main() -> None:
        door = gate(tenant=Limits(max_output_tokens=300))
        async with door.admit(ana, Estimate(0, 4_096)) as lease:
            assert lease.max_output_tokens == 300
            assert await lease.produced(0, FIRST_OUTPUT - AHEAD)
            assert spent(door, ana.tenant_id).held == FIRST_OUTPUT
            assert await lease.produced(0, FIRST_OUTPUT - AHEAD + 1)
            assert spent(door, ana.tenant_id).held == 300
            assert await lease.produced(0, 300)

    asyncio.run(main())


def test_money_is_held_and_settled_with_what_it_cost(ana: Principal) -> None:
    async def main() -> None:
        door = gate(tenant=Limits(money_per_month=10_000))

        def price(input: int, output: int) -> int:
            return 10 + input + 3 * output

        async with door.admit(ana, Estimate(100, 50), price=price) as lease:
            assert (await door.use(ana.tenant_id)).held.money == 10 + 100 + 150
            await lease.settle(80, 20, 123)
        assert (await door.use(ana.tenant_id)).month.money == 123
        assert (await refusal(door, ana, 9_900, price=price)).bound == "money_per_month"

    asyncio.run(main())


def test_what_makes_no_sense_is_refused(ana: Principal) -> None:
    with pytest.raises(InvalidInput):
        Estimate(-1, 0)

    async def main() -> None:
        async with gate().admit(ana, Estimate(1, 1)) as lease:
            with pytest.raises(InvalidInput):
                await lease.settle(-1, 0)

    asyncio.run(main())


# --- Deadlines ----------------------------------------------------------------------------------------------------


def test_the_shortest_deadline_ends_whatever_waits(ana: Principal) -> None:
    async def main() -> None:
        door = gate(user=Limits(deadline_s=0.05), tenant=Limits(deadline_s=60.0))
        async with door.admit(ana, Estimate(0, 0)) as lease:
            assert lease.until(3_600) - time.monotonic() < 0.06
            with pytest.raises(Unavailable, match="deadline"):
                async with lease.in_time():
                    await asyncio.Event().wait()
        async with gate().admit(ana, Estimate(0, 0)) as lease, lease.in_time():
            assert lease.until(3_600) - time.monotonic() > 3_500

    asyncio.run(main())


# --- Every exit ---------------------------------------------------------------------------------------------------


class SlowCounters(LocalCounters):
    """As a store that others share: each step waits for the network."""

    immediate = False

    async def settle(self, lease: str, used: Amounts) -> Settled:
        await asyncio.sleep(0)
        return await super().settle(lease, used)

    async def leave(self, lease: str) -> Settled:
        await asyncio.sleep(0)
        return await super().leave(lease)


@pytest.mark.parametrize("ending", ["clean", "error", "cancelled", "cancelled twice", "generator closed"])
@pytest.mark.parametrize("counters", [LocalCounters, SlowCounters])
def test_every_exit_charges_what_was_reported_and_frees_the_rest(
    ana: Principal, ending: str, counters: type[LocalCounters]
) -> None:
    async def stream(door: Gate) -> AsyncGenerator[Lease, None]:
        async with door.admit(ana, Estimate(50, 50)) as lease:
            await lease.produced(20, 4)
            yield lease
            if ending == "error":
                raise RuntimeError
            if ending.startswith("cancelled"):
                await asyncio.Event().wait()

    async def consume(door: Gate, started: asyncio.Event) -> None:
        async for _ in stream(door):
            started.set()

    async def main() -> None:
        door = Gate(counters(Clock()), lambda _tenant: TenantLimits())
        if ending == "generator closed":
            pieces = stream(door)
            await anext(pieces)
            assert spent(door, ana.tenant_id).concurrent == 1
            await pieces.aclose()
        else:
            started = asyncio.Event()
            task = asyncio.create_task(consume(door, started))
            await started.wait()
            for _ in range(ending.count("cancelled") + ending.count("twice")):
                task.cancel()
                await asyncio.sleep(0)
            (result,) = await asyncio.gather(task, return_exceptions=True)
            expected = {"clean": type(None), "error": RuntimeError}.get(ending, asyncio.CancelledError)
            assert isinstance(result, expected)
        for use in (spent(door, ana.tenant_id), spent(door, ana.tenant_id, ana.user_id)):
            assert use == Spent(requests=1, concurrent=0, tokens=24, held=0)
        assert door.live == {}

    asyncio.run(main())


def test_settles_once_whatever_comes_after(ana: Principal) -> None:
    async def main() -> None:
        door = gate()
        async with door.admit(ana, Estimate(50, 50)) as lease:
            assert await lease.settle(10, 0)
            assert not await lease.settle(1_000, 1_000)
            await lease.leave()
        assert spent(door, ana.tenant_id) == Spent(1, 0, 10, 0)

    asyncio.run(main())


def test_whoever_is_cancelled_while_asking_holds_nothing(ana: Principal) -> None:
    class Granting(LocalCounters):
        immediate = False

        async def take(self, ask: Any) -> Any:
            granted = await super().take(ask)
            await asyncio.sleep(0)
            return granted

    async def main() -> None:
        door = Gate(Granting(Clock()), lambda _tenant: TenantLimits())
        task = asyncio.create_task(ask(door, ana, 10))
        await asyncio.sleep(0)
        assert spent(door, ana.tenant_id).held == 10
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert spent(door, ana.tenant_id).concurrent == spent(door, ana.tenant_id).held == 0

    asyncio.run(main())


def test_the_reaper_keeps_alive_what_lives_and_ends_the_rest(ana: Principal) -> None:
    async def main() -> None:
        clock = Clock()
        here, killed = gate(clock), gate(clock)
        killed.counters = here.counters
        told: list[str] = []
        reaper = Reaper(here, lambda reaped: told.append(reaped.lease))
        async with here.admit(ana, Estimate(10, 10), request_id="a" * 32) as lease:
            async with killed.admit(ana, Estimate(5, 5), request_id="b" * 32) as lost:
                await lost.produced(5, 1)
                await lost.renew()
                for _ in range(3):
                    clock.now += here.lease_s / 2
                    await reaper.turn()
                assert told == [lost.id]
                assert spent(here, ana.tenant_id) == Spent(2, 1, 6, 20)
            await lease.settle(1, 1)
        assert spent(here, ana.tenant_id) == Spent(2, 0, 8, 0)

    asyncio.run(main())


def test_a_budget_s_shares_are_told_once(ana: Principal) -> None:
    async def main() -> None:
        told: list[Crossing] = []
        door = Gate(
            LocalCounters(Clock()),
            lambda _tenant: TenantLimits(tenant=Limits(money_per_month=100, soft=0.8)),
            alert=told.append,
        )
        for money in (50, 35, 10):
            async with door.admit(ana, Estimate(0, 0)) as lease:
                await lease.settle(0, 0, money)
        assert [(crossing.share, crossing.used) for crossing in told] == [(0.8, 85)]

    asyncio.run(main())


# --- A crowd ------------------------------------------------------------------------------------------------------


def test_256_streams_spend_their_limit_and_no_more(ana: Principal) -> None:
    """Each client asks again and again, answers are of 40 to 1,400 tokens, in pieces; nobody is charged afterwards."""
    limit = 2_000_000

    async def main() -> tuple[int, int, int]:
        door, clients = gate(tenant=Limits(tokens_per_minute=limit)), 256
        first_refusal, stopped = 0, 0

        async def client(number: int) -> None:
            nonlocal first_refusal, stopped
            turn = 0
            while True:
                length = 40 + (number * 37 + turn * 411) % 1_361
                try:
                    async with door.admit(ana, Estimate(700, 1_500), model="m") as lease:
                        await lease.expect(500)
                        produced = 0
                        while produced < length:
                            produced += 1
                            if not await lease.produced(500, produced):
                                stopped += 1
                                break
                            if produced % 8 == 0:
                                await asyncio.sleep(0)
                        await lease.settle(500, produced)
                except LimitExceeded:
                    use = spent(door, ana.tenant_id)
                    first_refusal = first_refusal or use.tokens + use.held
                    return
                turn += 1

        await asyncio.gather(*(client(number) for number in range(clients)))
        use = spent(door, ana.tenant_id)
        assert (use.concurrent, use.held) == (0, 0)
        return use.tokens, first_refusal, stopped

    final, first, stopped = asyncio.run(main())
    assert stopped > 0
    assert first >= 0.97 * limit
    assert 0.97 * limit <= final <= 1.003 * limit


def test_200_random_cancellations_leave_nothing_held(ana: Principal) -> None:
    async def main() -> None:
        door = Gate(SlowCounters(Clock()), lambda _tenant: TenantLimits())

        async def stream(number: int) -> None:
            async with door.admit(ana, Estimate(10, 2_000), model="m") as lease:
                for produced in range(number % 700):
                    await lease.produced(10, produced)
                    await asyncio.sleep(0)
                await lease.settle(10, number % 700)

        async def cancelled(work: Coroutine[Any, Any, None], after: int) -> None:
            task = asyncio.create_task(work)
            for _ in range(after):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(cancelled(stream(n * 31), after=(n * 17) % 40) for n in range(200)))
        use = spent(door, ana.tenant_id)
        assert (use.concurrent, use.held) == (0, 0)
        assert door.live == {}

    asyncio.run(main())
