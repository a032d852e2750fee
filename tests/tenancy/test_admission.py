"""Admission: all or nothing over both scopes, settled once on every exit, and no tenant moves another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.admission import WINDOW_S, Admission, Estimate, Lease, Limits, TenantLimits, Use
from tenancy.control import Tenants
from tenancy.errors import InvalidInput, LimitExceeded
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tests.support.people import Company

NOTHING = Use(requests=0, concurrent=0, tokens=0, held=0)


class Clock:
    def __init__(self, now: float = 5000.25) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[int, int], Principal]]:
    """Principals by (tenant, user): two tenants, three users of the same names in each."""
    tenants = Tenants(tmp_path_factory.mktemp("admission"), MasterKey(bytes(32)))
    authenticator = Authenticator(tenants)
    made: dict[tuple[int, int], Principal] = {}
    for t, name in enumerate(("acme", "globex")):
        company = Company(tenants, authenticator, name)
        made |= {(t, u): company.principal(user) for u, user in enumerate(("ana", "bo", "cy"))}
    yield made
    tenants.close()


@pytest.fixture
def ana(people: dict[tuple[int, int], Principal]) -> Principal:
    return people[0, 0]


@pytest.fixture
def bo(people: dict[tuple[int, int], Principal]) -> Principal:
    return people[0, 1]


def admission(clock: Callable[[], float], tenant: Limits | None = None, user: Limits | None = None) -> Admission:
    limits = TenantLimits(tenant=tenant or Limits(), user=user or Limits())
    return Admission(lambda _tenant_id: limits, clock)


async def ask(door: Admission, principal: Principal, tokens: tuple[int, int] = (10, 5)) -> None:
    async with door.admit(principal, Estimate(*tokens)) as lease:
        lease.settle(*tokens)


async def refusal(door: Admission, principal: Principal, tokens: tuple[int, int] = (10, 5)) -> LimitExceeded:
    with pytest.raises(LimitExceeded) as refused:
        await ask(door, principal, tokens)
    return refused.value


def test_requests_a_minute_for_the_user_and_again_after_retry_after(ana: Principal, bo: Principal) -> None:
    async def main() -> None:
        clock = Clock()
        door = admission(clock, user=Limits(requests_per_minute=2))
        await ask(door, ana)
        clock.now += 10
        await ask(door, ana)
        refused = await refusal(door, ana)
        assert (refused.scope, refused.limit, refused.used) == ("user", 2, 2)
        assert 50 <= refused.retry_after <= 51
        await ask(door, bo)
        clock.now += refused.retry_after
        await ask(door, ana)
        assert (await refusal(door, ana)).scope == "user"

    asyncio.run(main())


def test_tenant_limit_counts_all_users_and_is_named(ana: Principal, bo: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(requests_per_minute=3), user=Limits(requests_per_minute=2))
        for principal in (ana, ana, bo):
            await ask(door, principal)
        assert (await refusal(door, bo)).scope == "tenant"
        assert door.use(ana.tenant_id).requests == 3

    asyncio.run(main())


def test_concurrency_is_freed_at_the_end_and_not_at_settlement(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), user=Limits(concurrent=1))
        async with door.admit(ana, Estimate(1, 1)) as lease:
            assert (await refusal(door, ana)).retry_after > 0
            lease.settle(1, 1)
            assert (await refusal(door, ana)).used == 1
        await ask(door, ana)

    asyncio.run(main())


def test_reservation_is_corrected_to_what_was_used(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(tokens_per_minute=100))
        async with door.admit(ana, Estimate(50, 40)) as lease:
            assert door.use(ana.tenant_id) == Use(requests=1, concurrent=1, tokens=0, held=90)
            assert (await refusal(door, ana, (10, 1))).used == 90
            assert lease.settle(50, 10)
            assert door.use(ana.tenant_id) == Use(requests=1, concurrent=1, tokens=60, held=0)
            await ask(door, ana, (30, 10))
        assert (await refusal(door, ana, (1, 0))).limit == 100

    asyncio.run(main())


def test_tokens_in_flight_count_beyond_the_window(ana: Principal) -> None:
    async def main() -> None:
        clock = Clock()
        door = admission(clock, user=Limits(tokens_per_minute=100))
        async with door.admit(ana, Estimate(80, 10)) as lease:
            clock.now += 10 * WINDOW_S
            await refusal(door, ana, (20, 0))
            lease.settle(80, 10)
        await refusal(door, ana, (20, 0))
        clock.now += WINDOW_S + 1
        await ask(door, ana, (20, 0))

    asyncio.run(main())


def test_settles_once_whatever_is_called_after(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock())
        async with door.admit(ana, Estimate(50, 50)) as lease:
            assert lease.settle(10, 0)
            assert not lease.settle(1000, 1000)
            lease.used(500, 500)
        lease.leave()
        lease.used(500, 500)
        assert not lease.settle(7, 7)
        assert door.use(ana.tenant_id, ana.user_id) == Use(requests=1, concurrent=0, tokens=10, held=0)

    asyncio.run(main())


@pytest.mark.parametrize("ending", ["clean", "error", "cancelled", "generator closed"])
def test_every_exit_charges_what_was_reported_and_frees_the_rest(ana: Principal, ending: str) -> None:
    async def question(door: Admission, started: asyncio.Event) -> None:
        async with door.admit(ana, Estimate(50, 50)) as lease:
            lease.used(20, 1)
            lease.used(20, 4)
            started.set()
            if ending == "error":
                raise RuntimeError
            if ending == "cancelled":
                await asyncio.Event().wait()

    async def stream(door: Admission) -> AsyncGenerator[int, None]:
        async with door.admit(ana, Estimate(50, 50)) as lease:
            lease.used(20, 4)
            yield 1

    async def main() -> None:
        door = admission(Clock())
        if ending == "generator closed":
            pieces = stream(door)
            await anext(pieces)
            assert door.use(ana.tenant_id).concurrent == 1
            await pieces.aclose()
        else:
            started = asyncio.Event()
            task = asyncio.create_task(question(door, started))
            await started.wait()
            if ending == "cancelled":
                task.cancel()
            (result,) = await asyncio.gather(task, return_exceptions=True)
            expected = {"clean": type(None), "error": RuntimeError, "cancelled": asyncio.CancelledError}
            assert isinstance(result, expected[ending])
        for scope in (door.use(ana.tenant_id), door.use(ana.tenant_id, ana.user_id)):
            assert scope == Use(requests=1, concurrent=0, tokens=24, held=0)

    asyncio.run(main())


def test_use_above_the_reservation_is_seen_at_once(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(tokens_per_minute=100))
        async with door.admit(ana, Estimate(10, 10)) as lease:
            lease.used(10, 80)
            assert door.use(ana.tenant_id).held == 90
            assert (await refusal(door, ana, (11, 0))).used == 90
            lease.used(10, 20)
        assert door.use(ana.tenant_id) == Use(requests=1, concurrent=0, tokens=90, held=0)

    asyncio.run(main())


def test_a_refusal_consumes_nothing_in_any_scope(ana: Principal, bo: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(tokens_per_minute=30), user=Limits(requests_per_minute=5))
        await ask(door, ana, (20, 0))
        before = [door.use(ana.tenant_id), door.use(ana.tenant_id, ana.user_id), door.use(bo.tenant_id, bo.user_id)]
        for principal in (ana, bo) * 20:
            assert (await refusal(door, principal, (20, 0))).scope == "tenant"
        after = [door.use(ana.tenant_id), door.use(ana.tenant_id, ana.user_id), door.use(bo.tenant_id, bo.user_id)]
        assert after == before
        assert after[2] == NOTHING
        await ask(door, bo, (10, 0))

    asyncio.run(main())


def test_refusal_names_the_scope_with_the_longest_wait(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(requests_per_minute=1), user=Limits(concurrent=1))
        async with door.admit(ana, Estimate(0, 0)):
            refused = await refusal(door, ana)
        assert refused.scope == "tenant"
        assert refused.retry_after > 50

    asyncio.run(main())


def test_a_request_larger_than_the_limit_says_so(ana: Principal) -> None:
    async def main() -> None:
        refused = await refusal(admission(Clock(), user=Limits(tokens_per_minute=100)), ana, (101, 0))
        assert "101" in str(refused)
        assert refused.retry_after == WINDOW_S

    asyncio.run(main())


def test_max_output_is_the_smaller_one_and_cuts_the_reservation(ana: Principal) -> None:
    async def main() -> None:
        door = admission(Clock(), tenant=Limits(max_output_tokens=300), user=Limits(max_output_tokens=200))
        async with door.admit(ana, Estimate(10, 5000)) as lease:
            assert lease.max_output_tokens == 200
            assert door.use(ana.tenant_id).held == 210
        async with admission(Clock()).admit(ana, Estimate(10, 5000)) as lease:
            assert lease.max_output_tokens is None

    asyncio.run(main())


def test_changed_limits_hold_at_the_next_request(ana: Principal) -> None:
    async def main() -> None:
        contract = {"limits": TenantLimits(user=Limits(requests_per_minute=0))}
        door = Admission(lambda _tenant_id: contract["limits"], Clock())
        await refusal(door, ana)
        contract["limits"] = TenantLimits()
        await ask(door, ana)

    asyncio.run(main())


def test_limits_and_amounts_that_make_no_sense_are_refused() -> None:
    assert msgspec.convert({"user": {"concurrent": 2}}, TenantLimits).user.concurrent == 2
    wrong: list[dict[str, object]] = [{"user": {"concurrent": -1}}, {"user": {"concurent": 1}}, {"users": {}}]
    for bad in wrong:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(bad, TenantLimits)
    with pytest.raises(InvalidInput):
        Estimate(-1, 0)


def test_many_threads_never_exceed_concurrency_and_lose_nothing(ana: Principal, bo: Principal) -> None:
    door = Admission(lambda _tenant_id: TenantLimits(tenant=Limits(concurrent=3, tokens_per_minute=10**9)))
    admitted, most, lock = [0], [0], threading.Lock()

    async def work(principal: Principal) -> None:
        for _ in range(200):
            try:
                async with door.admit(principal, Estimate(3, 4)) as lease:
                    concurrent = door.use(principal.tenant_id).concurrent
                    lease.settle(2, 1)
                    with lock:
                        admitted[0] += 1
                        most[0] = max(most[0], concurrent)
                    await asyncio.sleep(0)
            except LimitExceeded:
                continue

    threads = [threading.Thread(target=lambda p=p: asyncio.run(work(p))) for p in (ana, bo) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most[0] <= 3
    use = door.use(ana.tenant_id)
    assert (use.concurrent, use.held) == (0, 0)
    assert use.requests == admitted[0]
    assert use.tokens == 3 * admitted[0]


def test_memory_holds_only_what_is_active() -> None:
    clock = Clock()
    door = admission(clock)
    for minute in range(5):
        for n in range(300):
            door._take(f"t{n}", f"u{minute}", Estimate(1, 1)).leave()
            door._take("busy", f"u{minute}-{n}", Estimate(1, 1)).leave()
        clock.now += WINDOW_S + 1
    for n in range(400):
        door._take("busy", f"last{n % 2}", Estimate(1, 1)).leave()
    assert set(door._tenants) == {"busy"}
    assert set(door._tenants["busy"].users) == {"last0", "last1"}


# --- The whole against a plain model -----------------------------------------------------------------------------


@dataclass
class Held:
    """A request of the model: who, what it holds and what it reported."""

    tenant: int
    user: int
    reserved: int
    reported: tuple[int, int] = (0, 0)
    settled: bool = False
    gone: bool = False


@dataclass
class Model:
    """Lists of everything that ever happened, summed anew for every decision."""

    limits: TenantLimits
    asked: list[tuple[int, int, float]] = field(default_factory=list)
    spent: list[tuple[int, int, int, float]] = field(default_factory=list)
    live: list[Held] = field(default_factory=list)

    def sums(self, tenant: int, user: int | None, now: float, slack: float) -> tuple[int, int, int]:
        """Requests, concurrency and tokens of a scope; events up to `slack` steps older than the window count."""

        def counts(t: int, u: int, at: float) -> bool:
            left = at + WINDOW_S if slack == 0 else int(at) + slack + WINDOW_S
            return t == tenant and user in (None, u) and left > now

        mine = [held for held in self.live if held.tenant == tenant and user in (None, held.user)]
        requests = sum(1 for t, u, at in self.asked if counts(t, u, at))
        tokens = sum(n for t, u, n, at in self.spent if counts(t, u, at))
        holding = sum(max(held.reserved, sum(held.reported)) for held in mine if not held.settled)
        return requests, sum(1 for held in mine if not held.gone), tokens + holding

    def fits(self, tenant: int, user: int, need: int, now: float, slack: float) -> bool:
        for limits, whose in ((self.limits.user, user), (self.limits.tenant, None)):
            requests, concurrent, tokens = self.sums(tenant, whose, now, slack)
            for limit, amount in (
                (limits.requests_per_minute, requests + 1),
                (limits.concurrent, concurrent + 1),
                (limits.tokens_per_minute, tokens + need),
            ):
                if limit is not None and amount > limit:
                    return False
        return True


limits_strategy = st.builds(
    Limits,
    requests_per_minute=st.none() | st.integers(1, 6),
    concurrent=st.none() | st.integers(1, 4),
    tokens_per_minute=st.none() | st.integers(20, 150),
    max_output_tokens=st.none() | st.integers(5, 30),
)
step_strategy = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, 1), st.integers(0, 2), st.integers(0, 40), st.integers(0, 40)),
    st.tuples(st.just("used"), st.integers(0, 20), st.integers(0, 60), st.integers(0, 60)),
    st.tuples(st.just("settle"), st.integers(0, 20), st.integers(0, 60), st.integers(0, 60)),
    st.tuples(st.just("leave"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.floats(0, 70, allow_nan=False)),
)
People = dict[tuple[int, int], Principal]
Step = tuple[object, ...]


async def drive(
    people: People, limits: TenantLimits, steps: list[Step], only: int | None = None
) -> list[tuple[int, object]]:
    """Run `steps` against product and model; with `only`, as if the other tenant did not exist.

    Returns each decision as (tenant, "admitted" or what the refusal says).
    """
    clock, model = Clock(), Model(limits)
    door = Admission(lambda _tenant_id: limits, clock)
    output_limit = min(
        (p.max_output_tokens for p in (limits.user, limits.tenant) if p.max_output_tokens is not None), default=None
    )
    requests: list[tuple[Held, Lease, AbstractAsyncContextManager[Lease]] | None] = []
    decisions: list[tuple[int, object]] = []

    async def leave(number: int) -> None:
        held, _, block = requests[number]  # type: ignore[misc]
        if not held.gone:
            await block.__aexit__(None, None, None)
            if not held.settled:
                model.spent.append((held.tenant, held.user, sum(held.reported), clock.now))
            held.settled = held.gone = True

    for step in steps:
        match step:
            case ("wait", float(seconds)):
                clock.now += seconds
            case ("ask", int(tenant), int(user), int(inputs), int(outputs)):
                if only not in (None, tenant):
                    requests.append(None)
                    continue
                need = inputs + (outputs if output_limit is None else min(outputs, output_limit))
                expected = model.fits(tenant, user, need, clock.now, slack=1)
                block = door.admit(people[tenant, user], Estimate(inputs, outputs))
                try:
                    lease = await block.__aenter__()
                except LimitExceeded as refused:
                    assert not expected
                    decisions.append((tenant, (refused.scope, refused.limit, refused.used, refused.retry_after)))
                    requests.append(None)
                    continue
                assert expected
                assert model.fits(tenant, user, need, clock.now, slack=0), "over a true sliding limit"
                decisions.append((tenant, "admitted"))
                held = Held(tenant, user, need)
                model.live.append(held)
                model.asked.append((tenant, user, clock.now))
                requests.append((held, lease, block))
            case (str(action), int(number), *tokens) if requests and requests[number % len(requests)] is not None:
                held, lease, _ = requests[number % len(requests)]  # type: ignore[misc]
                amounts = tuple(int(str(amount)) for amount in tokens)
                if action == "leave":
                    await leave(number % len(requests))
                elif action == "used":
                    lease.used(*amounts)
                    if not held.settled:
                        held.reported = (max(held.reported[0], amounts[0]), max(held.reported[1], amounts[1]))
                else:
                    assert lease.settle(*amounts) is not held.settled
                    if not held.settled:
                        model.spent.append((held.tenant, held.user, sum(amounts), clock.now))
                    held.settled = True
        for tenant in (0, 1):
            for whose in (None, 0, 1, 2):
                use = door.use(people[tenant, 0].tenant_id, None if whose is None else people[tenant, whose].user_id)
                got = (use.requests, use.concurrent, use.tokens + use.held)
                assert got == model.sums(tenant, whose, clock.now, slack=1)
    for number, request in enumerate(requests):
        if request is not None:
            await leave(number)
    clock.now += WINDOW_S + 1
    for principal in people.values():
        assert door.use(principal.tenant_id) == door.use(principal.tenant_id, principal.user_id) == NOTHING
    return decisions


@settings(max_examples=150, deadline=None)
@given(tenant=limits_strategy, user=limits_strategy, steps=st.lists(step_strategy, min_size=5, max_size=40))
def test_decides_like_the_model_and_each_tenant_as_if_alone(
    people: People, tenant: Limits, user: Limits, steps: list[Step]
) -> None:
    limits = TenantLimits(tenant=tenant, user=user)
    together = asyncio.run(drive(people, limits, steps))
    waits = [decision[3] for _, decision in together if isinstance(decision, tuple)]
    assert all(0 < wait <= WINDOW_S + 1 for wait in waits)
    for alone in (0, 1):
        assert asyncio.run(drive(people, limits, steps, only=alone)) == [d for d in together if d[0] == alone]
