"""The fair queue, rule by rule; the bound is in `test_fairness_property`."""

from __future__ import annotations

from collections import Counter

from admission.fair import FairQueue, Party, Place


def queue() -> FairQueue[str]:
    return FairQueue(clock=lambda: 0.0)


def serve(fair: FairQueue[str], tokens: int = 100) -> str:
    """The next one, served at once."""
    place = next(fair.heads())
    fair.begin(place)
    fair.used(place, tokens, 0)
    fair.leave(place)
    return place.item


def fill(fair: FairQueue[str], name: str, party: Party, number: int) -> list[Place[str]]:
    return [fair.enter(name, party, 100) for _ in range(number)]


def test_weights_divide_what_all_wait_for() -> None:
    fair = queue()
    for weight in (1, 2, 4):
        fill(fair, f"weight {weight}", Party(f"t{weight}", "u", float(weight)), 100)
    served = Counter(serve(fair) for _ in range(70))
    assert served == {"weight 1": 10, "weight 2": 20, "weight 4": 40}


def test_batch_has_a_ninth_while_questions_wait_and_all_when_none_do() -> None:
    fair = queue()
    fill(fair, "batch", Party("a", "u", work="batch"), 50)
    fill(fair, "question", Party("b", "u"), 80)
    assert Counter(serve(fair) for _ in range(90))["batch"] == 10
    assert [serve(fair) for _ in range(40)] == ["batch"] * 40


def test_bulk_work_costs_a_tenant_nothing_when_its_people_ask() -> None:
    fair = queue()
    for _ in range(20):
        fill(fair, "batch", Party("a", "loader", work="batch"), 1)
        serve(fair, 10_000)
    fill(fair, "a", Party("a", "ana"), 5)
    fill(fair, "b", Party("b", "bo"), 5)
    assert [serve(fair) for _ in range(6)] == ["a", "b"] * 3


def test_time_at_a_bound_of_its_own_earns_no_credit_and_holds_nobody_back() -> None:
    fair = queue()
    fill(fair, "held", Party("held", "u"), 50)
    fair.hold("held")
    fill(fair, "busy", Party("busy", "u"), 100)
    assert [serve(fair) for _ in range(50)] == ["busy"] * 50
    fill(fair, "new", Party("new", "u"), 50)
    assert Counter(serve(fair) for _ in range(20)) == {"busy": 10, "new": 10}, "the floor is not that of who is held"
    fair.release("held")
    assert Counter(serve(fair) for _ in range(30)) == {"busy": 10, "new": 10, "held": 10}


def test_whoever_is_alone_is_served_at_once() -> None:
    fair = queue()
    assert next(fair.heads(), None) is None
    for _ in range(10):
        fill(fair, "a", Party("a", "u"), 1)
        assert serve(fair, 100_000) == "a"
    assert (len(fair), fair.running) == (0, 0)


def test_those_that_left_leave_no_trace_and_clients_at_rest_are_a_fixed_number() -> None:
    fair = queue()
    for number in range(5_000):
        places = fill(fair, "once", Party(f"t{number % 3}", f"u{number}"), 2)
        serve(fair)
        for place in places:
            fair.leave(place)
            fair.leave(place)
    assert (len(fair), fair.running) == (0, 0)
    assert not fair._users
    (work,) = fair._root.children.values()
    assert all(len(tenant.children) <= 1_025 for tenant in work.children.values())


def test_who_gives_way_is_the_newest_of_the_tenant_and_user_with_most() -> None:
    fair = queue()
    assert fair.last_of_longest() is None
    fill(fair, "guest", Party("small", "u"), 3)
    fill(fair, "colleague", Party("large", "ana"), 1)
    crowd = fill(fair, "agent", Party("large", "agent"), 3)
    fair.enter("later guest", Party("other", "u"), 1)
    assert fair.last_of_longest() is crowd[-1]


def test_who_gives_up_waiting_is_charged_nothing_and_an_aborted_one_what_was_done() -> None:
    fair = queue()
    (gone,) = fill(fair, "gone", Party("patient", "u"), 1)
    (aborted,) = fill(fair, "aborted", Party("hasty", "u"), 1)
    fair.leave(gone)
    fair.begin(aborted)
    fair.used(aborted, 60, 5)
    fair.leave(aborted)
    fair.used(aborted, 0, 0)
    again = [fill(fair, name, Party(name, "u"), 1)[0] for name in ("patient", "hasty")]
    assert fair.lead(again[1], again[0]) == 70, "60 read and twice 5 written; nothing is given back afterwards"
