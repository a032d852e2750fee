"""Who is slowed for whose sake: tenants, and users of one tenant."""

from __future__ import annotations

from admission.fair import FairQueue, Party, Place
from admission.pace import Pace

SLOTS, MOST = 8, 2


class Desk:
    """A queue with its pace, in time of its own; every answer reads a prompt of 100 tokens."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pace = Pace(30.0, lambda: self.now)
        self.queue: FairQueue[None] = FairQueue(clock=lambda: self.now, pace=self.pace)

    def ask(self, party: Party, count: int = 1, *, piece: bool = False) -> list[Place[None]]:
        return [self.queue.enter(None, party, 100, piece=piece) for _ in range(count)]

    def serve(self, places: list[Place[None]]) -> None:
        for place in places:
            self.queue.begin(place)

    @property
    def held(self) -> set[tuple[str, ...]]:
        return set(self.pace.held(SLOTS, MOST))


BUSY, QUIET = Party("busy", "u"), Party("quiet", "u")


def test_a_tenant_alone_is_never_slowed() -> None:
    desk = Desk()
    desk.serve(desk.ask(BUSY, 20)[:8])
    assert not desk.held


def test_a_tenant_ahead_is_held_at_its_bound_while_a_modest_one_is_there() -> None:
    desk = Desk()
    asked = desk.ask(BUSY, 20)
    quiet = desk.ask(QUIET)
    desk.serve(asked[:1])
    assert not desk.held, "one slot of two"
    desk.serve(asked[1:2])
    assert desk.held == {("busy",)}
    desk.queue.leave(asked[0])
    assert not desk.held
    desk.serve(asked[2:3])
    desk.queue.leave(quiet[0])
    desk.now = 29.0
    assert desk.held == {("busy",)}, "it was there a moment ago"
    desk.now = 31.0
    assert not desk.held


def test_who_keeps_to_its_part_of_the_slots_is_not_slowed_however_much_it_was_served() -> None:
    desk = Desk()
    desk.ask(QUIET)
    desk.serve(desk.ask(BUSY, 4))
    assert not desk.held
    desk.ask(BUSY)
    assert desk.held == {("busy",)}, "five of eight are more than its half"


def test_once_eager_it_counts_as_such_for_a_while() -> None:
    desk = Desk()
    desk.ask(QUIET)
    asked = desk.ask(BUSY, 5)
    desk.serve(asked)
    assert desk.held
    for place in asked[:3]:
        desk.queue.leave(place)
    desk.now = 29.0
    assert desk.held == {("busy",)}
    desk.now = 31.0
    assert not desk.held


def test_nobody_is_slowed_below_its_part_of_what_is_served() -> None:
    desk = Desk()
    desk.serve(desk.ask(QUIET, 3))
    desk.serve(desk.ask(BUSY, 9)[:2])
    assert not desk.held, "quiet was served more"


def test_for_who_asks_for_more_than_its_part_nobody_is_slowed() -> None:
    desk = Desk()
    desk.serve(desk.ask(BUSY, 9)[:4])
    desk.ask(Party("back", "u"), 9)
    assert not desk.held, "it waits for want of capacity"


def test_a_part_is_by_weight() -> None:
    desk = Desk()
    desk.ask(Party("light", "u", 1.0))
    desk.serve(desk.ask(Party("heavy", "u", 3.0), 6))
    assert not desk.held
    desk.ask(Party("heavy", "u", 3.0))
    assert desk.held == {("heavy",)}


def test_users_of_one_tenant_are_slowed_likewise() -> None:
    desk = Desk()
    desk.serve(desk.ask(Party("acme", "agent"), 47)[:2])
    assert not desk.held
    desk.ask(Party("acme", "colleague"))
    assert desk.held == {("acme", "agent")}


def test_nobody_is_slowed_for_batch_work_or_for_a_prompt_that_is_read_ahead() -> None:
    desk = Desk()
    desk.serve(desk.ask(BUSY, 9)[:4])
    desk.ask(Party("bulk", "u", work="batch"))
    desk.ask(Party("long", "u"), piece=True)
    assert not desk.held
    desk.ask(QUIET)
    assert desk.held == {("busy",)}


def test_a_held_user_is_not_next_and_its_colleague_is() -> None:
    desk = Desk()
    agent, colleague = desk.ask(Party("acme", "agent")), desk.ask(Party("acme", "colleague"))
    desk.queue.hold("acme", "agent")
    assert list(desk.queue.heads()) == colleague
    desk.queue.leave(colleague[0])
    assert not list(desk.queue.heads())
    desk.queue.release("acme", "agent")
    assert list(desk.queue.heads()) == agent


def test_who_is_gone_is_forgotten() -> None:
    desk = Desk()
    for number in range(100):
        for place in desk.ask(Party(f"t{number}", "u")):
            desk.queue.leave(place)
    desk.now = 1_000.0
    assert not desk.held
    assert not desk.pace._root.children


def test_who_is_gone_is_forgotten_though_nobody_is_ever_held() -> None:
    desk = Desk()
    for number in range(1_000):
        desk.now = float(number)
        for party in (Party(f"t{number}", "u"), Party("acme", f"u{number}")):
            desk.serve(places := desk.ask(party))
            desk.queue.leave(places[0])
    known = desk.pace._root.children
    assert len(known) < 400, "those of some hundred seconds"
    assert len(known["acme"].children) < 400


def test_service_of_long_ago_counts_less_though_nobody_looked_meanwhile() -> None:
    desk = Desk()
    for party, times in ((Party("past", "u"), 9), (QUIET, 1)):
        desk.serve(places := desk.ask(party, times))
        for place in places:
            desk.queue.leave(place)
    desk.now = 120.0
    desk.serve(desk.ask(BUSY, 3))
    desk.ask(Party("past", "u"))
    desk.ask(BUSY, 3)
    assert desk.held == {("busy",)}, "what another was served two minutes ago is no reason"
