"""Any order of calls over several tenants: each decision and each figure is that of the model, and at rest nothing is
held. One Hypothesis state machine over every implementation of the port.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from admission.counters import Ask, Counters, Granted, Reaped, Refused
from admission.limits import NO_AMOUNTS, WINDOW_S, Amounts, Budget, Draw, Limits
from admission.local import LocalCounters
from admission.redis import PREFIX, RedisCounters
from admission.redis_link import Link
from admission.scopes import DEPLOYMENT, model_scope, root_scope, tenant_scope, user_scope
from tests.admission.conformance.conftest import settings_of
from tests.admission.conformance.model import Model, matches
from tests.admission.conformance.rig import MID_MONTH, TTL_S, Clock
from tests.support.redis_server import RedisServer

TENANTS, USERS = 2, 2
MONTH_END = 1_796_083_200.0
"""2026-12-01, 00:00 UTC."""


def maybe(low: int, high: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(low, high)


a_limit = st.builds(
    Limits,
    requests_per_minute=maybe(0, 6),
    concurrent=maybe(0, 4),
    input_tokens_per_minute=maybe(10, 90),
    output_tokens_per_minute=maybe(10, 90),
    tokens_per_minute=maybe(20, 150),
    kv_tokens=maybe(20, 150),
    money_per_month=maybe(5, 200),
    soft=st.none() | st.sampled_from((0.5, 0.8)),
)
a_budget = st.builds(Budget, requests=maybe(1, 6), tokens=maybe(10, 150), money=maybe(5, 100))
an_amount = st.builds(Amounts, st.just(0), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
a_change = st.builds(Amounts, st.just(0), st.integers(-30, 30), st.integers(-30, 30), st.integers(-30, 30))


class Machine(RuleBasedStateMachine):
    """Each scope has the same limits throughout a run. `opened` gives the counters, empty."""

    opened: ClassVar[Callable[[Clock], Counters]]
    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.model = Clock(), Model()
        self.runner = asyncio.Runner()
        self.counters = type(self).opened(self.clock)
        self.numbers = itertools.count()

    @initialize(
        tenant=a_limit,
        user=a_limit,
        shared=a_limit,
        root=a_budget,
        until=st.none() | st.floats(5, 200),
        late=st.booleans(),
    )
    def agree(
        self, tenant: Limits, user: Limits, shared: Limits, root: Budget, until: float | None, late: bool
    ) -> None:
        self.clock.now = MONTH_END - 45.5 if late else MID_MONTH + 0.25
        self.tenants = [Draw(tenant_scope(f"t{t}"), tenant) for t in range(TENANTS)]
        self.users = [[Draw(user_scope(f"t{t}", f"u{u}"), user) for u in range(USERS)] for t in range(TENANTS)]
        ends = None if until is None else self.clock.now + until
        self.roots = [Draw(root_scope(f"t{t}", "r"), Limits(concurrent=2), root, ends) for t in range(TENANTS)]
        self.shared = [Draw(model_scope("m"), shared), Draw(DEPLOYMENT, Limits(concurrent=3))]

    @rule(
        target=leases,
        tenant=st.integers(0, TENANTS - 1),
        user=st.integers(0, USERS - 1),
        within=st.booleans(),
        shared=st.booleans(),
        need=an_amount,
    )
    def take(self, tenant: int, user: int, within: bool, shared: bool, need: Amounts) -> Ask:
        draws = [self.users[tenant][user], self.tenants[tenant]]
        draws = [*([self.roots[tenant]] if within else []), *draws, *(self.shared if shared else [])]
        ask = Ask(f"{next(self.numbers):032x}", f"t{tenant}", tuple(draws), need, TTL_S)
        self._take(ask)
        return ask

    @rule(ask=leases)
    def take_again(self, ask: Ask) -> None:
        """The same request once more: nothing more is taken, unless it is over."""
        if ask.lease in self.model.leases:
            self._take(ask)

    @rule(ask=leases, more=a_change, used=an_amount)
    def extend(self, ask: Ask, more: Amounts, used: Amounts) -> None:
        expected = self.model.extend(ask.lease, more, used, self.clock.now)
        found = self._run(self.counters.extend(ask.lease, more, used))
        if expected is None:
            assert found.bound == "lease"
        elif expected:
            assert matches(found, expected), (found, expected)
        else:
            assert found is None

    @rule(ask=leases, used=an_amount)
    def settle(self, ask: Ask, used: Amounts) -> None:
        booked, crossed = self.model.settle(ask.lease, used, self.clock.now)
        found = self._run(self.counters.settle(ask.lease, used))
        assert (found.booked, list(found.crossed)) == (booked, crossed)

    @rule(ask=leases)
    def leave(self, ask: Ask) -> None:
        booked, crossed = self.model.leave(ask.lease, self.clock.now)
        found = self._run(self.counters.leave(ask.lease))
        assert (found.booked, list(found.crossed)) == (booked, crossed)

    @rule()
    def reap(self) -> None:
        expected = self.model.reap(self.clock.now)
        found = self._run(self.counters.reap())
        assert {one.lease: one.used for one in found} == {lease: used for lease, (used, _) in expected.items()}
        said = [(crossing.scope, crossing.share) for one in found for crossing in one.crossed]
        assert sorted(said, key=repr) == sorted(
            ((crossing.scope, crossing.share) for _, crossed in expected.values() for crossing in crossed), key=repr
        )

    @rule(seconds=st.sampled_from((0.25, 1.0, 7.5, 29.75, 31.0, 61.0)))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def figures_are_those_of_the_model(self) -> None:
        for draw in self._scopes():
            assert self._run(self.counters.use(draw.scope)) == self.model.use(draw, self.clock.now), draw.scope

    def teardown(self) -> None:
        try:
            for lease in list(self.model.leases):
                self.model.leave(lease, self.clock.now)
                self._run(self.counters.leave(lease))
            self.clock.now += WINDOW_S + 1
            for draw in self._scopes():
                use = self._run(self.counters.use(draw.scope))
                assert use.flight == use.held == use.minute == NO_AMOUNTS
        finally:
            if isinstance(self.counters, RedisCounters):
                self._run(_closed(self.counters.link))
            self.runner.close()

    def _take(self, ask: Ask) -> None:
        violated = self.model.take(ask, self.clock.now)
        found = self._run(self.counters.take(ask))
        if violated:
            assert isinstance(found, Refused), violated
            assert matches(found, violated), (found, violated)
            assert found.retry_after > 0
            return
        assert isinstance(found, Granted), found
        draws = {draw.scope: draw for draw in ask.draws}
        for room in found.rooms:
            assert (
                room.used
                == self.model.used(draws[room.scope], room.bound, self.clock.now)
                <= max(room.limit, room.used)
            )
            assert room.resets_s >= 0

    def _scopes(self) -> list[Draw]:
        if not hasattr(self, "tenants"):
            return []
        return [*self.tenants, *itertools.chain(*self.users), *self.roots, *self.shared]

    def _run(self, work: Any) -> Any:
        return self.runner.run(work)


async def _closed(link: Link) -> None:
    await link.aclose()
    # A transport is closed in the loop's next turn.
    await asyncio.sleep(0)


def test_in_memory() -> None:
    class Local(Machine):
        opened = LocalCounters

    run_state_machine_as_test(Local, settings=settings(max_examples=30, stateful_step_count=30, deadline=None))


@pytest.mark.slow
def test_in_memory_often() -> None:
    class Local(Machine):
        opened = LocalCounters

    run_state_machine_as_test(Local, settings=settings(max_examples=1_000, stateful_step_count=50, deadline=None))


@pytest.mark.slow
def test_at_redis(redis_memory: RedisServer) -> None:
    class Watched(RedisCounters):
        """With a reaper that was never away: after a gap without one, leases first get another term."""

        async def reap(self) -> tuple[Reaped, ...]:
            with redis_memory.client() as client:
                client.delete(f"{PREFIX}seen")
            return await super().reap()

    def opened(clock: Clock) -> Counters:
        with redis_memory.client() as client:
            client.flushall()
        return Watched(Link(settings_of(redis_memory)), clock=clock)

    class AtRedis(Machine):
        pass

    AtRedis.opened = staticmethod(opened)
    run_state_machine_as_test(
        AtRedis,
        settings=settings(
            max_examples=8, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
