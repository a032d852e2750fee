"""Who is seated, who waits, and that every place comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.fair import Party
from admission.pace import Pace
from generation.lanes import Lanes, LaneTerms, Load, Ticket
from tenancy.errors import Unavailable
from tests.generation.prompts import soon
from tests.generation.test_breaker import Clock

BIG, SMALL = 3_000, 100


@dataclass(eq=False)
class Seat:
    name: str
    load: Load = field(default_factory=Load)
    usable: bool = True
    trials: int = 0

    def begin(self) -> bool:
        return False

    def abandon(self) -> None:
        self.trials += 1


class Room:
    """Lanes over `seats` replicas; requests are asked for as tasks, and those that are seated have a ticket."""

    def __init__(self, seats: int, terms: LaneTerms) -> None:
        self.seats = [Seat(f"r{number}") for number in range(seats)]
        self.lanes: Lanes[Seat] = Lanes(lambda: self.seats, terms)

    async def ask(self, tokens: int, tenant: str | None = None, **options: Any) -> asyncio.Task[Ticket[Seat]]:
        """A request, which has been seated or waits when this returns."""
        options.setdefault("party", Party(tenant or ""))
        task = asyncio.create_task(self.lanes.enter(tokens, deadline=options.pop("deadline", soon()), **options))
        await settle()
        return task

    def empty(self) -> bool:
        return all(seat.load == Load() for seat in self.seats) and not self.lanes.waiting


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def within(seats: int, test: Callable[[Room], Awaitable[None]], **terms: Any) -> None:
    async def run() -> None:
        await test(Room(seats, LaneTerms(**terms)))

    asyncio.run(run())


def test_requests_are_spread_by_what_is_read_and_what_streams() -> None:
    async def ask(room: Room) -> None:
        tickets = [(await room.ask(tokens)).result() for tokens in (BIG, SMALL, SMALL)]
        assert tickets[0].seat is not tickets[1].seat
        assert tickets[1].seat is tickets[2].seat, "beside the long prompt nobody has to wait for it"
        tickets[0].begun()
        assert (await room.ask(SMALL)).result().seat is tickets[0].seat, "it streams, and that weighs less"

    within(2, ask)


def test_another_replica_is_preferred_for_a_second_attempt() -> None:
    async def ask(room: Room) -> None:
        first = (await room.ask(SMALL)).result()
        first.leave()
        for _ in range(20):
            again = (await room.ask(SMALL, avoid=[first.seat])).result()
            assert again.seat is not first.seat
            again.leave()
        room.seats = [first.seat]
        assert (await room.ask(SMALL, avoid=[first.seat])).result().seat is first.seat

    within(2, ask)


def test_slots_are_bounded_and_whoever_waits_comes_in_order() -> None:
    async def ask(room: Room) -> None:
        held = [(await room.ask(SMALL)).result() for _ in range(2)]
        waiting = [await room.ask(SMALL) for _ in range(3)]
        assert not any(task.done() for task in waiting)
        held[0].leave()
        await settle()
        assert [task.done() for task in waiting] == [True, False, False]
        waiting[0].result().leave()
        await settle()
        assert [task.done() for task in waiting] == [True, True, False]
        held[1].leave()
        await settle()
        for task in waiting[1:]:
            task.result().leave()
        assert room.empty()

    within(1, ask, slots=2)


def test_large_prompts_leave_a_slot_for_small_ones() -> None:
    async def ask(room: Room) -> None:
        first = (await room.ask(BIG)).result()
        second = await room.ask(BIG)
        assert not second.done(), "one slot is kept"
        small = await room.ask(SMALL)
        assert small.done()
        small.result().leave()
        first.leave()
        await settle()
        assert second.done()

    within(1, ask, slots=2, small_slots=1)


def test_prompts_that_are_read_at_one_time_are_bounded_and_small_ones_pass() -> None:
    async def ask(room: Room) -> None:
        first = (await room.ask(BIG)).result()
        second = await room.ask(BIG)
        assert not second.done(), "the second would be read beside the first"
        small = await room.ask(SMALL)
        assert small.done(), "a small one is read beside it"
        first.begun()
        await settle()
        assert second.done(), "the first streams: the second is read"

    within(1, ask, slots=8, prefill_tokens=4_000)


def test_a_prompt_over_the_bound_is_read_alone() -> None:
    async def ask(room: Room) -> None:
        giant = (await room.ask(28_000)).result()
        assert not (await room.ask(28_000)).done()
        assert (await room.ask(SMALL)).done()
        giant.leave()

    within(1, ask, slots=8, prefill_tokens=4_000)


def test_small_prompts_cannot_keep_an_older_large_one_out() -> None:
    async def ask(room: Room) -> None:
        small = [(await room.ask(SMALL)).result() for _ in range(3)]
        large = await room.ask(BIG, "t")
        assert large.done()
        other = await room.ask(BIG)
        later = [await room.ask(SMALL) for _ in range(2)]
        assert not any(task.done() for task in (other, *later)), "full"
        small[0].leave()
        await settle()
        assert (other.done(), *[task.done() for task in later]) == (True, False, False)

    within(1, ask, slots=4, small_slots=1)


def test_one_tenant_has_its_share_and_others_go_past_it() -> None:
    async def ask(room: Room) -> None:
        held = [(await room.ask(SMALL, "acme")).result() for _ in range(2)]
        third = await room.ask(SMALL, "acme")
        other = await room.ask(SMALL, "globex")
        assert (third.done(), other.done()) == (False, True)
        held[0].leave()
        await settle()
        assert third.done()

    within(1, ask, slots=8, tenant_slots=2)


def test_without_a_replica_in_reach_everybody_is_told_at_once() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(BIG)).result()
        waiting = await room.ask(BIG)
        room.seats[0].usable = False
        room.lanes.wake()
        for task in (waiting, await room.ask(SMALL)):
            with pytest.raises(Unavailable, match="no replica"):
                await task
        held.leave()
        assert room.empty()

    within(1, ask, slots=2)


def test_a_deadline_ends_the_wait_and_a_full_queue_refuses() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(SMALL)).result()
        late = await room.ask(SMALL, deadline=soon(0.01))
        over = await room.ask(SMALL)
        with pytest.raises(Unavailable, match="too many"):
            await over
        with pytest.raises(Unavailable, match="deadline"):
            await late
        assert room.lanes.waiting == 0
        held.leave()
        assert room.empty()

    within(1, ask, slots=1, queue=1)


def test_whoever_goes_away_leaves_no_place_taken() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(SMALL)).result()
        waiting = [await room.ask(SMALL) for _ in range(2)]
        waiting[0].cancel()
        held.leave()
        held.leave()
        waiting[1].cancel()  # seated by now, and not yet told
        await asyncio.gather(*waiting, return_exceptions=True)
        assert room.empty()

    within(1, ask, slots=1)


def test_idle_is_when_the_last_request_left() -> None:
    async def ask(room: Room) -> None:
        held = [(await room.ask(SMALL)).result() for _ in range(2)]
        idle = asyncio.create_task(room.lanes.idle(room.seats[0]))
        held[0].leave()
        await settle()
        assert not idle.done()
        held[1].leave()
        await asyncio.wait_for(idle, 5)

    within(1, ask)


async def _served(room: Room, held: Ticket[Seat], waiting: dict[str, asyncio.Task[Ticket[Seat]]]) -> list[str]:
    """The order in which those that wait get the one slot, each leaving it at once."""
    order: list[str] = []
    while waiting:
        held.leave()
        await settle()
        (name,) = [name for name, task in waiting.items() if task.done()]
        order.append(name)
        held = waiting.pop(name).result()
        if name.startswith("known"):
            held.begun()
            held.settle(0, 1)
        elif name.startswith("failed"):
            held.refund()
    held.leave()
    return order


def test_who_received_least_is_next_and_not_who_came_first() -> None:
    async def ask(room: Room) -> None:
        agent, ana = Party("acme", "agent"), Party("acme", "ana")
        held = (await room.ask(SMALL, party=agent)).result()
        waiting = {f"agent {number}": await room.ask(SMALL, party=agent) for number in range(3)}
        waiting["ana"] = await room.ask(SMALL, party=ana)
        waiting["globex"] = await room.ask(SMALL, party=Party("globex", "bo"))
        assert await _served(room, held, waiting) == ["globex", "ana", "agent 0", "agent 1", "agent 2"]
        assert room.empty()

    within(1, ask, slots=1)


@pytest.mark.parametrize("kind", ["known", "failed"])
def test_what_the_engine_did_not_read_is_given_back(kind: str) -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(SMALL, "holder")).result()
        names = [f"{tenant} {number}" for number in range(3) for tenant in (kind, "fresh")]
        waiting = {name: await room.ask(BIG, name.split()[0]) for name in names}
        found = await _served(room, held, waiting)
        assert found.index(f"{kind} 2") < found.index("fresh 1"), "three that cost nothing before two that did"
        assert room.empty()

    within(1, ask, slots=1)


def test_a_failure_after_the_first_token_gives_nothing_back() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(BIG)).result()
        held.begun()
        held.wrote(7)
        held.refund()
        assert (held._place.read, held._place.written) == (BIG, 7)
        held.leave()

    within(1, ask)


def test_where_too_many_wait_the_newest_of_the_tenant_with_most_gives_way() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(SMALL, "crowd")).result()
        crowd = [await room.ask(SMALL, "crowd") for _ in range(2)]
        guest = await room.ask(SMALL, "guest")
        with pytest.raises(Unavailable, match="too many"):
            await crowd[1]
        assert not guest.done()
        assert not crowd[0].done()
        held.leave()
        await settle()
        for task in (guest, crowd[0]):
            (await task).leave()
        assert room.empty()

    within(1, ask, slots=1, queue=2)


def test_small_prompts_pass_a_waiting_large_one_only_as_long_as_their_client_is_not_far_ahead() -> None:
    async def ask(room: Room) -> None:
        held = (await room.ask(BIG, "reader")).result()
        large = await room.ask(BIG, "large")
        passed = 0
        while (small := await room.ask(900, "many")).done():
            passed += 1
            small.result().leave()
            assert passed < 10
        assert passed == 3, "900 tokens three times are over 2,000"
        other = await room.ask(SMALL, "other")
        assert other.done(), "who is not ahead passes"
        other.result().leave()
        held.leave()
        await settle()
        large.result().leave()
        (await small).leave()
        assert room.empty()

    within(1, ask, slots=2, small_slots=1, lead=2_000)


def test_a_tenant_with_less_than_its_part_finds_a_slot_that_a_busy_one_cannot_take() -> None:
    async def ask(room: Room) -> None:
        busy = [await room.ask(SMALL, "busy") for _ in range(9)]
        assert [task.done() for task in busy] == [True] * 6 + [False] * 3, "two slots are kept, also from one alone"
        guests = [await room.ask(SMALL, "quiet") for _ in range(3)]
        assert [task.done() for task in guests] == [True, True, False], "the engine has no more slots"
        busy[0].result().leave()
        await settle()
        assert (guests[2].done(), busy[6].done()) == (True, False), "the next one is for who has less than its part"
        for task in [*busy[1:6], *guests]:
            task.result().leave()
            await settle()
        for task in busy[6:]:
            task.result().leave()
        assert room.empty()

    within(1, ask, slots=8, guest_slots=2)


def test_many_tenants_take_every_slot() -> None:
    async def ask(room: Room) -> None:
        asked = [await room.ask(SMALL, f"t{number}") for number in range(10)]
        assert [task.done() for task in asked] == [True] * 8 + [False] * 2
        for task in asked:
            task.result().leave()
            await settle()
        assert room.empty()

    within(1, ask, slots=8, guest_slots=2)


def test_a_part_is_by_weight() -> None:
    async def ask(room: Room) -> None:
        light = [await room.ask(SMALL, party=Party("light", "u", 1.0)) for _ in range(8)]
        heavy = [await room.ask(SMALL, party=Party("heavy", "u", 3.0)) for _ in range(12)]
        assert [sum(task.done() for task in tasks) for tasks in (light, heavy)] == [4, 8]
        light[0].result().leave()
        await settle()
        assert sum(task.done() for task in heavy) == 9, "nine of twelve are its part"
        for task in (*light[1:], *heavy):
            (await task).leave()
            await settle()
        assert room.empty()

    within(1, ask, slots=12, guest_slots=8, prefill_tokens=100_000)


def test_who_is_no_guest_passes_nobody_that_waits_for_room_to_be_read() -> None:
    async def ask(room: Room) -> None:
        batch = [Party("acme", f"u{number}", work="batch") for number in range(3)]
        first = (await room.ask(900, party=batch[0])).result()
        second = await room.ask(500, party=batch[1])
        third = await room.ask(50, party=batch[2])
        assert not second.done()
        assert not third.done(), "it has room, and came later"
        first.begun()
        await settle()
        first.leave()
        for task in (second, third):
            task.result().leave()
        assert room.empty()

    within(1, ask, slots=8, small_slots=1, guest_slots=2, prefill_tokens=1_000)


def test_the_prompt_of_a_guest_is_read_beside_others_over_the_bound_one_at_a_time() -> None:
    async def ask(room: Room) -> None:
        busy = [await room.ask(900, "busy") for _ in range(3)]
        assert [task.done() for task in busy] == [True, True, False]
        quiet = [await room.ask(900, "quiet") for _ in range(2)]
        assert [task.done() for task in quiet] == [True, False]
        quiet[0].result().begun()
        await settle()
        assert quiet[1].done()

    within(1, ask, slots=8, small_slots=1, guest_slots=2, prefill_tokens=2_000)


def test_of_one_tenant_users_with_less_than_their_part_are_guests() -> None:
    async def ask(room: Room) -> None:
        agent, colleague = Party("acme", "agent"), Party("acme", "colleague")
        calls = [await room.ask(SMALL, party=agent) for _ in range(8)]
        assert [task.done() for task in calls] == [True] * 6 + [False] * 2
        asked = [await room.ask(SMALL, party=colleague) for _ in range(2)]
        assert all(task.done() for task in asked)
        for task in (*calls[:6], *asked):
            task.result().leave()
            await settle()
        for task in calls[6:]:
            task.result().leave()
        assert room.empty()

    within(1, ask, slots=8, guest_slots=2)


def test_beside_another_tenant_no_user_is_a_guest_for_itself() -> None:
    async def ask(room: Room) -> None:
        busy = [await room.ask(SMALL, party=Party("busy", f"u{number % 2}")) for number in range(6)]
        guest = await room.ask(SMALL, "quiet")
        more = await room.ask(SMALL, party=Party("busy", "u2"))
        assert (guest.done(), more.done()) == (True, False)
        for task in (*busy, guest):
            task.result().leave()
            await settle()
        more.result().leave()
        assert room.empty()

    within(1, ask, slots=8, guest_slots=2)


def test_who_is_ahead_has_few_slots_while_others_are_there_and_all_when_they_are_gone() -> None:
    async def ask(room: Room) -> None:
        clock = Clock()
        room.lanes.pace = room.lanes.fair.pace = Pace(30.0, clock)
        (await room.ask(SMALL, "quiet")).result().leave()
        busy = [await room.ask(SMALL, "busy") for _ in range(12)]
        assert [task.done() for task in busy] == [True] * 4 + [False] * 8, "its part of eight, and it wants more"
        quiet = [await room.ask(SMALL, "quiet") for _ in range(2)]
        assert all(task.done() for task in quiet), "a modest tenant is not slowed"
        for task in (*quiet, *busy[:2]):
            task.result().leave()
            await settle()
        assert sum(task.done() for task in busy) == 4, "two are there still"
        busy[2].result().leave()
        await settle()
        assert sum(task.done() for task in busy) == 5
        clock.now += 31
        busy[3].result().leave()
        await settle()
        assert sum(task.done() for task in busy) == 12, "quiet is gone"
        for task in busy:
            (await task).leave()
            await settle()
        assert room.empty()

    within(1, ask, slots=8, pace_slots=2, pace_s=30.0)


def test_no_guest_passes_who_waits_while_its_tenant_is_far_ahead() -> None:
    async def ask(room: Room) -> None:
        room.lanes.terms = replace(room.lanes.terms, guest_slots=0)
        busy = [await room.ask(SMALL, "busy") for _ in range(7)]
        first = (await room.ask(SMALL, "reader")).result()
        waiting = await room.ask(SMALL, "busy")
        first.wrote(600)
        room.lanes.terms = replace(room.lanes.terms, guest_slots=2)
        guest = await room.ask(SMALL, "reader")
        busy[0].result().leave()
        await settle()
        assert (waiting.done(), guest.done()) == (False, False), "7 of 8 slots: busy is no guest, and reader far ahead"
        other = await room.ask(SMALL, "other")
        assert other.done()
        for task in (*busy[1:], other):
            task.result().leave()
            await settle()
        assert waiting.done()
        waiting.result().leave()
        first.leave()
        (await guest).leave()
        assert room.empty()

    within(1, ask, slots=8)


def test_batch_work_is_no_guest() -> None:
    async def ask(room: Room) -> None:
        busy = [await room.ask(SMALL, "busy") for _ in range(2)]
        batch = await room.ask(SMALL, party=Party("acme", "loader", work="batch"))
        assert not batch.done()
        assert (await room.ask(SMALL, "acme")).done()
        for task in busy:
            task.result().leave()
            await settle()
        assert batch.done()

    within(1, ask, slots=4, small_slots=0, guest_slots=2)


def test_batch_work_has_no_kept_slot_and_a_small_part_while_questions_wait() -> None:
    async def ask(room: Room) -> None:
        batch = Party("acme", "loader", work="batch")
        held = (await room.ask(BIG, party=batch)).result()
        second = await room.ask(SMALL, party=batch)
        assert not second.done(), "the kept slot is for questions"
        question = await room.ask(SMALL, "acme")
        assert question.done()
        question.result().leave()
        held.leave()
        await settle()
        (await second).leave()
        assert room.empty()

    within(1, ask, slots=2, small_slots=1)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["ask", "ask", "begun", "leave", "cancel"]), st.integers(0, 40)), max_size=60),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 2),
)
def test_no_bound_is_ever_passed_and_all_end_well(
    steps: list[tuple[str, int]], seats: int, slots: int, guests: int
) -> None:
    async def run() -> None:
        terms = LaneTerms(
            slots=slots,
            small_slots=1,
            small_tokens=1_000,
            guest_slots=guests,
            prefill_tokens=5_000,
            tenant_slots=3,
        )
        room = Room(seats, terms)
        asked: list[asyncio.Task[Ticket[Seat]]] = []

        for what, number in steps:
            if what == "ask":
                asked.append(await room.ask((SMALL, 900, BIG, 28_000)[number % 4], f"t{number % 3}"))
            elif what == "cancel" and asked:
                task = asked[number % len(asked)]
                if not task.done():
                    task.cancel()
            elif here := seated(asked):
                ticket = here[number % len(here)]
                ticket.begun() if what == "begun" else ticket.leave()
            await settle()
            _require_bounds(room, terms, seated(asked))
        while here := seated(asked):
            here[0].leave()
            await settle()
        assert all(task.done() for task in asked), "whoever waited was seated in the end"
        assert room.empty()

    asyncio.run(run())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "ask", "wrote", "begun", "leave", "cancel", "later"]), st.integers(0, 99)
        ),
        max_size=80,
    ),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([None, 2]),
)
def test_whoever_is_paced_is_served_in_the_end_and_no_count_stays(
    steps: list[tuple[str, int]], seats: int, pace: int, tenant_slots: int | None
) -> None:
    async def run() -> None:
        terms = LaneTerms(slots=3, small_tokens=1_000, guest_slots=1, pace_slots=pace, tenant_slots=tenant_slots)
        room, clock = Room(seats, terms), Clock()
        room.lanes.pace = room.lanes.fair.pace = Pace(30.0, clock)
        asked: list[asyncio.Task[Ticket[Seat]]] = []

        for what, number in steps:
            if what == "ask":
                party = Party(
                    f"t{number % 3}", f"u{number % 2}", 1.0 + number % 2, "batch" if number > 90 else "interactive"
                )
                asked.append(await room.ask((SMALL, BIG)[number % 5 == 0], party=party, piece=number % 7 == 0))
            elif what == "cancel" and asked:
                asked[number % len(asked)].cancel()
            elif what == "later":
                clock.now += number
            elif here := seated(asked):
                ticket = here[number % len(here)]
                if what == "wrote":
                    ticket.wrote(number)
                else:
                    ticket.begun() if what == "begun" else ticket.leave()
            await settle()
        while here := seated(asked):
            here[0].leave()
            await settle()
        assert all(task.done() for task in asked), "whoever waited was seated in the end"
        assert room.empty()
        assert not room.lanes.fair._held
        assert not room.lanes.fair.running
        clock.now += 1e6
        room.lanes.pace.held(3, 1)
        assert not room.lanes.pace._root.children, "nobody counts as there"

    asyncio.run(run())


def seated(asked: Sequence[asyncio.Task[Ticket[Seat]]]) -> list[Ticket[Seat]]:
    """Who of `asked` has a place now."""
    done = [task.result() for task in asked if task.done() and not task.cancelled()]
    return [ticket for ticket in done if not ticket._left]


def _require_bounds(room: Room, terms: LaneTerms, seated: list[Ticket[Seat]]) -> None:
    for seat in room.seats:
        mine = [ticket for ticket in seated if ticket.seat is seat]
        reading = [ticket for ticket in mine if ticket._reading]
        assert seat.load.requests == len(mine) <= terms.slots
        assert seat.load.prefill == sum(ticket.tokens for ticket in reading)
        large = [ticket.tokens for ticket in reading if not ticket.small]
        assert len(large) <= 1 or sum(large) <= terms.prefill_tokens
        if terms.slots > 1:
            assert sum(not ticket.small for ticket in mine) <= terms.slots - terms.small_slots
    for tenant in {ticket.tenant for ticket in seated}:
        assert sum(ticket.tenant == tenant for ticket in seated) <= 3
