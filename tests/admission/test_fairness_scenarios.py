"""The scenarios of `benchmarks.fairness` in short: what the order and the slots for guests are for, and their price."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from benchmarks.fairness import ALONE, RECORDINGS, SCENARIOS, TERMS, TIMES, measured, only
from benchmarks.fairness_engine import ORDERS, Costs
from benchmarks.fairness_recorded import Recording, answered
from generation.lanes import LaneTerms

COSTS = Costs(read_step=0.03, read=0.0001, write_step=0.012, write=0.0005, way=0.03)
"""In proportion near those of the recorded server, and four times as fast."""
RATE, SECONDS = 50.0, 40.0
pytestmark = pytest.mark.slow


def run(scenario: str, order: str, *, alone: bool = False, terms: LaneTerms = TERMS) -> Any:
    asked = SCENARIOS[scenario](RATE, SECONDS)
    return measured(scenario, order, only(asked, ALONE[scenario]) if alone else asked, COSTS, SECONDS, terms)


def test_a_noisy_neighbour_is_hardly_noticed_before_the_first_token() -> None:
    alone = run("noisy", "ours", alone=True)["clients"]["quiet/u"]
    found = {order: run("noisy", order) for order in ORDERS}
    quiet = {order: of["clients"]["quiet/u"] for order, of in found.items()}
    assert quiet["ours"]["wait"]["p50"] == 0
    assert quiet["ours"]["wait"]["p99"] < quiet["ours without guest slots"]["wait"]["p99"] / 2
    assert quiet["ours"]["first"]["p99"] < 1.5 * alone["first"]["p99"]
    assert quiet["first come"]["first"]["p99"] > 20 * alone["first"]["p99"]
    assert all(of["busy"] > 0.97 for of in found.values()), "the engine never idles while somebody waits"


@pytest.mark.parametrize("scenario", ALONE)
def test_with_a_pace_neither_first_token_nor_whole_answer_takes_half_as_long_again(scenario: str) -> None:
    alone = run(scenario, "ours, paced", alone=True)["clients"][ALONE[scenario]]
    beside = {order: run(scenario, order)["clients"] for order in ("ours", "ours, paced")}
    mine = {order: clients[ALONE[scenario]] for order, clients in beside.items()}
    for kind in TIMES:
        assert mine["ours, paced"][kind]["p99"] < 1.5 * alone[kind]["p99"]
    assert mine["ours"]["total"]["p99"] > 1.5 * alone["total"]["p99"], "without it does"


def test_the_pace_slows_nobody_who_is_alone() -> None:
    answers = [
        measured("noisy", order, only(SCENARIOS["noisy"](RATE, SECONDS), "noisy"), COSTS, SECONDS, TERMS)
        for order in ("ours", "ours, paced")
    ]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("scenario", ["returning", "weights"])
def test_the_pace_changes_nothing_where_all_ask_for_more_than_there_is(scenario: str) -> None:
    shares = [
        {who: of["share"] for who, of in run(scenario, order)["clients"].items()} for order in ("ours", "ours, paced")
    ]
    assert shares[0] == pytest.approx(shares[1], abs=0.03)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("order", ["ours", "ours, paced"])
def test_service_keeps_to_the_bound_also_with_slots_for_guests(scenario: str, order: str) -> None:
    assert run(scenario, order)["gap"] <= 1


def test_service_is_by_weight_where_all_wait() -> None:
    shares = {who: of["share"] for who, of in run("weights", "ours")["clients"].items()}
    assert shares["weight 4/u"] / shares["weight 1/u"] == pytest.approx(4, rel=0.1)
    assert shares["weight 2/u"] / shares["weight 1/u"] == pytest.approx(2, rel=0.1)


def test_slots_for_guests_cost_a_tenant_alone_less_than_their_share_of_the_slots() -> None:
    answers = {}
    for slots in (0, TERMS.guest_slots):
        asked = only(SCENARIOS["noisy"](RATE, SECONDS), "noisy")
        found = measured("noisy", "ours", asked, COSTS, SECONDS, replace(TERMS, guest_slots=slots))
        assert found["busy"] > 0.97
        answers[slots] = found["clients"]["noisy/u"]["answered"]
    kept = TERMS.guest_slots / TERMS.slots
    assert (1 - kept) * answers[0] < answers[TERMS.guest_slots] < answers[0]


def test_recordings_of_the_real_server_can_be_read() -> None:
    found = [Recording.read(path) for path in sorted(RECORDINGS.glob("fairness-*.json"))]
    assert {recording.order for recording in found} >= {"first come", "round robin", "ours"}
    assert all(answered(recording.asked) for recording in found)
