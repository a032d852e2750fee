"""Requests that wait at a limit: in fair order, bounded, until their longest wait, and holding nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from admission.counters import Ask, Granted, Refused
from admission.fair import Party
from admission.gate import Estimate, Gate
from admission.limits import NO_AMOUNTS, Amounts, Draw
from admission.local import LocalCounters
from admission.scopes import DEPLOYMENT, tenant_scope, user_scope
from admission.waiting import FULL, Entry, WaitingRoom
from tenancy.contract import Contract
from tenancy.errors import LimitExceeded, Unavailable
from tenancy.identity import Principal
from tenancy.limits import Limits, TenantLimits, WorkClass
from tests.admission.conformance.rig import Clock, amounts, ask, draw, tenant, user
from tests.support.people import Company

LONG_S = 60.0


class Rig:
    """A room over counters in memory, on clocks that a test moves; `entered` are those admitted, in order."""

    def __init__(self, most: int = 256, patience_s: float = 5.0) -> None:
        self.clock = Clock()
        self.counters = LocalCounters(self.clock)
        self.now = 0.0
        self.takes = 0
        self.fails: Exception | None = None
        self.room = WaitingRoom(
            self.take, self.counters.leave, most=most, patience_s=patience_s, clock=lambda: self.now
        )
        self.entered: list[str] = []
        self.entries: dict[str, Entry] = {}
        self.asks: dict[str, Ask] = {}

    async def take(self, wanted: Ask) -> Granted | Refused:
        self.takes += 1
        if self.fails is not None:
            raise self.fails
        return await self.counters.take(wanted)

    async def ask(
        self,
        name: str,
        *draws: Draw,
        by: str = "acme",
        need: Amounts = NO_AMOUNTS,
        wait_s: float = LONG_S,
        who: str = "",
        work: WorkClass = "interactive",
    ) -> asyncio.Task[Entry]:
        """`name` asks for `by`, a tenant, and `who`, one of its users."""
        self.asks[name] = ask(*draws, need=need, tenant=by)

        async def enter() -> Entry:
            entry = await self.room.enter(self.asks[name], Party(by, who, 1.0, work), wait_s)
            self.entries[name] = entry
            if isinstance(entry.found, Granted):
                self.entered.append(name)
            return entry

        task = asyncio.create_task(enter())
        await settle()
        return task

    async def end(self, name: str, read: int = 0) -> None:
        await self.counters.settle(self.asks[name].lease, amounts(read))
        await self.counters.leave(self.asks[name].lease)
        self.entries[name].leave(read, 0)
        await settle()

    async def at_rest(self) -> None:
        assert len(self.room) == 0
        assert not self.room.waits_for([tenant()])
        for scope in (tenant_scope("acme"), tenant_scope("globex"), user_scope("acme", "ana"), DEPLOYMENT):
            use = await self.counters.use(scope)
            assert use.flight == use.held == NO_AMOUNTS


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def at(test: Callable[[Rig], Awaitable[None]], **options: float) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(Rig(**options)), 20)  # type: ignore[arg-type]

    asyncio.run(main())


ONE = tenant(concurrent=1)
SHARED = draw(DEPLOYMENT, concurrent=1)


def test_whoever_received_least_is_admitted_next() -> None:
    async def ask(rig: Rig) -> None:
        need = amounts(100)
        for number in range(3):
            await rig.ask(f"agent {number}", SHARED, tenant(), need=need)
        await rig.ask("other", SHARED, tenant("globex"), by="globex", need=need)
        assert rig.entered == ["agent 0"]
        for name in ("agent 0", "other", "agent 1", "agent 2"):
            await rig.end(name, 100)
        assert rig.entered == ["agent 0", "other", "agent 1", "agent 2"]
        await rig.at_rest()

    at(ask)


def test_batch_work_is_one_of_nine_while_people_wait_and_never_none() -> None:
    async def ask(rig: Rig) -> None:
        for number in range(30):
            await rig.ask(f"night {number}", ONE, who="night", need=amounts(100), work="batch")
        for number in range(18):
            await rig.ask(f"ana {number}", ONE, who="ana", need=amounts(100))
        for _ in range(48):
            await rig.end(rig.entered[-1], 100)
        people = [number for number, name in enumerate(rig.entered) if name.startswith("ana")]
        assert len(people) == 18
        # One batch request ran when they came, and two more had their turn among them.
        assert people[-1] <= 18 + 3
        assert len(rig.entered) == 48
        await rig.at_rest()

    at(ask)


def test_a_limit_of_one_keeps_no_other_waiting() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("ana 0", user("ana", concurrent=1), tenant(), who="ana")
        await rig.ask("ana 1", user("ana", concurrent=1), tenant(), who="ana")
        await rig.ask("bo", user("bo", concurrent=1), tenant(), who="bo")
        await rig.ask("stranger", tenant("globex"), by="globex")
        assert rig.entered == ["ana 0", "bo", "stranger"]
        for name in ("ana 0", "bo", "stranger", "ana 1"):
            await rig.end(name)
        await rig.at_rest()

    at(ask)


def test_the_longest_wait_ends_in_the_refusal_and_holds_nothing() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", ONE)
        late = await rig.ask("late", ONE, wait_s=0.02)
        entry = await late
        assert isinstance(entry.found, Refused)
        assert (entry.found.scope, entry.found.bound, entry.found.limit) == (tenant_scope("acme"), "concurrent", 1)
        assert len(rig.room) == 0
        await rig.end("first")
        assert rig.entered == ["first"]
        await rig.at_rest()

    at(ask)


def test_whoever_leaves_while_waiting_holds_nothing() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", ONE)
        gone = await rig.ask("gone", ONE)
        await rig.ask("second", ONE)
        gone.cancel()
        await settle()
        assert len(rig.room) == 1
        await rig.end("first")
        assert rig.entered == ["first", "second"]
        await rig.end("second")
        await rig.at_rest()

    at(ask)


def test_whoever_is_admitted_and_gone_in_one_moment_holds_nothing() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", ONE)
        gone = await rig.ask("gone", ONE)
        await rig.ask("next", ONE)
        await rig.counters.leave(rig.asks["first"].lease)
        rig.entries["first"].leave(0, 0)
        # The turn is given, and its owner cancelled before it has heard of it.
        for _ in range(20):
            await asyncio.sleep(0)
            if rig.asks["gone"].lease in rig.counters._leases:
                break
        assert "gone" not in rig.entered
        gone.cancel()
        await settle()
        assert gone.cancelled()
        assert rig.entered == ["first", "next"]
        await rig.end("next")
        await rig.at_rest()

    at(ask)


def test_a_small_one_passes_a_large_one_until_that_has_waited_long() -> None:
    async def ask(rig: Rig) -> None:
        capped = tenant(kv_tokens=100)
        await rig.ask("running", capped, need=amounts(60), who="bo")
        await rig.ask("large", capped, need=amounts(80), who="ana")
        await rig.ask("small 0", capped, need=amounts(30), who="cy")
        assert rig.entered == ["running", "small 0"]
        await rig.end("small 0", 30)
        rig.now += 5
        await rig.ask("small 1", capped, need=amounts(30), who="cy")
        assert rig.entered == ["running", "small 0"]
        await rig.end("running", 60)
        assert rig.entered == ["running", "small 0", "large"]
        await rig.end("large", 80)
        assert rig.entered[3:] == ["small 1"]
        await rig.end("small 1")
        await rig.at_rest()

    at(ask)


@pytest.mark.parametrize(("different", "most"), [(False, 3), (True, 18)])
def test_many_that_wait_for_one_limit_cost_others_few_steps_of_the_counters(different: bool, most: int) -> None:
    async def ask(rig: Rig) -> None:
        budget, everybody = tenant(tokens_per_minute=1_000), draw(DEPLOYMENT, concurrent=1_000)
        await rig.ask("first", everybody, budget, need=amounts(700))
        for number in range(200):
            need = amounts(900 - number if different else 800)
            await rig.ask(f"agent {number}", everybody, budget, who=f"u{number}", need=need)
        assert len(rig.room) == 200
        before = rig.takes
        for number in range(10):
            name = f"other {number}"
            await rig.ask(name, everybody, tenant("globex"), by="globex", who=str(number), need=amounts(9), wait_s=0)
            assert name in rig.entered
        assert (rig.takes - before) / 10 <= most
        # A small one of the same tenant is passed over by none of them that does not fit.
        await rig.ask("small", everybody, budget, who="small", need=amounts(300))
        assert "small" in rig.entered
        await rig.end("small")
        await rig.end("first")
        rig.now += 1
        rig.clock.now += 62
        await rig.ask("last", everybody, tenant("globex"), by="globex", need=amounts(9), wait_s=0)
        assert [name for name in rig.entered if name.startswith("agent")] != []

    at(ask)


def test_where_waiting_cannot_help_nobody_waits() -> None:
    async def ask(rig: Rig) -> None:
        for draws, need, bound in (
            ((tenant(money_per_month=10),), amounts(money=11), "money_per_month"),
            ((tenant(kv_tokens=10),), amounts(11), "kv_tokens"),
            ((tenant(concurrent=0),), amounts(), "concurrent"),
        ):
            entry = await (await rig.ask(bound, *draws, need=need))
            assert isinstance(entry.found, Refused)
            assert entry.found.bound == bound
        spent = tenant(money_per_month=10)
        await rig.ask("paid", spent, need=amounts(money=10))
        held = await rig.ask("waits", spent, need=amounts(money=1))
        # What is held may turn out to be less; what is spent stays so for the month.
        assert not held.done()
        await rig.counters.settle(rig.asks["paid"].lease, amounts(money=10))
        await rig.end("paid")
        assert isinstance((await held).found, Refused)
        assert len(rig.room) == 0

    at(ask)


def test_whoever_is_passed_over_learns_nothing_of_what_a_colleague_asked_for() -> None:
    async def ask(rig: Rig) -> None:
        capped = tenant(kv_tokens=100)
        await rig.ask("running", capped, need=amounts(60), who="bo")
        await rig.ask("large", capped, need=amounts(80), who="ana")
        rig.now += 5
        entry = await (await rig.ask("small", capped, need=amounts(10), who="cy", wait_s=0.0))
        assert isinstance(entry.found, Refused)
        assert (entry.found.scope, entry.found.bound) == (tenant_scope("acme"), "kv_tokens")
        assert entry.found.need == 0
        await rig.end("running", 60)
        await rig.end("large", 80)
        await rig.at_rest()

    at(ask)


def test_of_too_many_the_newest_of_whoever_has_most_gives_way() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", SHARED, tenant())
        for name in ("agent 0", "agent 1"):
            await rig.ask(name, SHARED, tenant(), who="agent")
        await rig.ask("other", SHARED, tenant("globex"), by="globex")
        assert isinstance(rig.entries["agent 1"].found, Refused)
        assert (rig.entries["agent 1"].found.bound, rig.entries["agent 1"].found.limit) == (FULL, 2)
        for name in ("first", "other", "agent 0"):
            await rig.end(name)
        assert sorted(rig.entered) == ["agent 0", "first", "other"]
        await rig.at_rest()

    at(ask, most=2)


def test_whoever_does_not_wait_takes_no_place_in_the_queue() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", SHARED, tenant())
        for name in ("agent 0", "agent 1"):
            await rig.ask(name, SHARED, tenant())
        entry = await (await rig.ask("hasty", SHARED, tenant("globex"), by="globex", wait_s=0.0))
        assert isinstance(entry.found, Refused)
        assert (entry.found.scope, entry.found.bound) == (DEPLOYMENT, "concurrent")
        assert len(rig.room) == 2
        for name in ("first", "agent 0", "agent 1"):
            await rig.end(name)
        assert rig.entered == ["first", "agent 0", "agent 1"]
        await rig.at_rest()

    at(ask, most=2)


def test_whoever_does_not_wait_passes_nobody_who_does() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", SHARED, tenant())
        await rig.ask("waits", SHARED, tenant())
        entry = await (await rig.ask("hasty", SHARED, tenant("globex"), by="globex", wait_s=0.0))
        assert isinstance(entry.found, Refused)
        assert entry.found.scope == DEPLOYMENT
        # Room has come, and who waits has not heard of it yet.
        await rig.counters.leave(rig.asks["first"].lease)
        rig.room._fair.used(rig.entries["first"]._place, 1_000, 0)
        hasty = await rig.ask("fair", SHARED, tenant("globex"), by="globex", wait_s=0.0)
        assert isinstance((await hasty).found, Granted)
        assert rig.entered == ["first", "fair"]
        await rig.end("fair", 2_000)
        assert rig.entered == ["first", "fair", "waits"]

    at(ask)


def test_room_that_has_just_come_is_for_whoever_waits_for_it_and_is_due() -> None:
    async def ask(rig: Rig) -> None:
        need = amounts(100)
        await rig.ask("first", SHARED, tenant("globex"), by="globex", need=need)
        await rig.ask("waits", SHARED, tenant(), need=need)
        # Nobody has told those who wait.
        await rig.counters.leave(rig.asks["first"].lease)
        entry = await (await rig.ask("hasty", SHARED, tenant("globex"), by="globex", need=need, wait_s=0.0))
        assert isinstance(entry.found, Refused)
        assert (entry.found.scope, rig.entered) == (DEPLOYMENT, ["first", "waits"])
        rig.entries["first"].leave(100, 0)
        await rig.end("waits")
        await rig.at_rest()

    at(ask)


def test_an_error_of_the_counters_is_told_to_whoever_waits() -> None:
    async def ask(rig: Rig) -> None:
        await rig.ask("first", ONE)
        waits = await rig.ask("waits", ONE)
        rig.fails = Unavailable("the store is away", item="redis")
        rig.room.wake()
        with pytest.raises(Unavailable):
            await waits
        with pytest.raises(Unavailable):
            await (await rig.ask("another", ONE))
        rig.fails = None
        await rig.end("first")
        await rig.at_rest()

    at(ask)


def test_at_random_nobody_is_forgotten_and_no_limit_exceeded() -> None:
    async def ask(rig: Rig) -> None:
        dice = random.Random(7)
        limits = {"acme": tenant(concurrent=3), "globex": tenant("globex", concurrent=2)}
        tasks: dict[str, asyncio.Task[Entry]] = {}
        given_up: set[str] = set()
        for number in range(300):
            name, by = str(number), dice.choice(("acme", "globex"))
            who = dice.choice("abc")
            both = draw(DEPLOYMENT, concurrent=4)
            tasks[name] = await rig.ask(name, both, limits[by], by=by, who=who, need=amounts(dice.randrange(50)))
            running = [name for name in rig.entered if name in tasks]
            assert len(running) <= 4
            if running and dice.random() < 0.6:
                done = dice.choice(running)
                del tasks[done]
                await rig.end(done, dice.randrange(50))
            if dice.random() < 0.1 and (waiting := [name for name in tasks if name not in rig.entered]):
                given_up.add(dice.choice(waiting))
                tasks.pop(max(given_up, key=lambda name: name in tasks)).cancel()
        while tasks:
            running = [name for name in rig.entered if name in tasks]
            assert 1 <= len(running) <= 4
            # Work-conserving: nobody waits whom every limit would hold.
            assert len(running) == 4 or len(rig.room) == 0 or len({rig.asks[name].tenant for name in tasks}) == 1
            for name in running:
                del tasks[name]
                await rig.end(name)
        assert len(rig.entered) == 300 - len(given_up)
        await rig.at_rest()

    at(ask)


# --- Through the gate ---------------------------------------------------------------------------------------------


def gate(**limits: object) -> Gate:
    return Gate(LocalCounters(), lambda _tenant: TenantLimits(**limits))  # type: ignore[arg-type]


@pytest.fixture
def ana(acme: Company) -> Principal:
    return acme.principal("ana")


def test_a_contract_says_whether_a_request_waits(ana: Principal) -> None:
    queue = Contract(admission=TenantLimits(full="queue", wait_s=LONG_S))

    async def main() -> None:
        door = gate(tenant=Limits(concurrent=1))
        inside, leave = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with door.admit(ana, Estimate(0, 0), queue):
                inside.set()
                await leave.wait()

        async def wait() -> float:
            async with door.admit(ana, Estimate(0, 0), queue) as lease:
                return lease.waited_s

        holding = asyncio.create_task(hold())
        await inside.wait()
        with pytest.raises(LimitExceeded):
            async with door.admit(ana, Estimate(0, 0)):
                pass
        waiting = asyncio.create_task(wait())
        await settle()
        assert not waiting.done()
        leave.set()
        assert await asyncio.wait_for(waiting, 20) > 0
        await holding
        assert (await door.use(ana.tenant_id)).flight == NO_AMOUNTS

    asyncio.run(main())


def test_a_request_waits_no_longer_than_its_deadline(ana: Principal) -> None:
    async def main() -> None:
        door = gate(tenant=Limits(concurrent=1, deadline_s=0.05), full="queue", wait_s=LONG_S)
        async with door.admit(ana, Estimate(0, 0)):
            with pytest.raises(LimitExceeded) as refused:
                async with door.admit(ana, Estimate(0, 0)):
                    pass
        assert (refused.value.scope, refused.value.bound) == ("tenant", "concurrent")
        assert (await door.use(ana.tenant_id)).flight == NO_AMOUNTS

    asyncio.run(main())
