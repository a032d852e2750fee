"""When a server is left alone, for how long, and what ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.breaker import Breaker, BreakerTerms

TERMS = BreakerTerms(failures=3, pause_s=1.0, longest_s=8.0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def longest(low: float, high: float) -> float:
    assert low == high / 2
    return high


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(TERMS, clock=clock, jitter=longest)
    for _ in range(TERMS.failures):
        breaker.fail()
    return breaker


def test_failures_in_a_row_open_it_and_others_do_not() -> None:
    breaker = Breaker(TERMS)
    for _ in range(10):
        breaker.fail()
        breaker.fail()
        breaker.succeed()
    assert (breaker.state, breaker.permits) == ("closed", True)
    breaker.fail()
    breaker.fail()
    assert breaker.permits
    breaker.fail()
    assert (breaker.state, breaker.permits) == ("open", False)


def test_after_the_pause_one_request_tries_it() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 0.99
    assert not breaker.permits
    clock.now += 0.02
    assert (breaker.state, breaker.permits) == ("half-open", True)
    assert breaker.begin()
    assert not breaker.permits, "one trial at a time"
    assert not breaker.begin()
    breaker.succeed(trial=True)
    assert (breaker.state, breaker.permits) == ("closed", True)
    breaker.fail()
    assert breaker.permits, "its failures are forgotten"


def test_pauses_double_up_to_the_longest_and_begin_anew() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(6):
        pauses.append(breaker.retry_after)
        clock.now += pauses[-1]
        assert breaker.begin()
        breaker.fail()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    clock.now += 8
    breaker.succeed(trial=breaker.begin())
    for _ in range(TERMS.failures):
        breaker.fail()
    assert breaker.retry_after == 1.0


@given(st.integers(1, 200))
def test_the_pause_is_drawn_between_its_half_and_its_whole(trials: int) -> None:
    breaker = Breaker(TERMS, clock=Clock())
    for _ in range(min(trials, 3)):
        breaker.trip()
    whole = min(8.0, 2 ** (min(trials, 3) - 1))
    assert whole / 2 <= breaker.retry_after <= whole


def test_what_was_sent_before_it_opened_changes_nothing() -> None:
    clock = Clock()
    breaker = opened(clock)
    breaker.fail()
    breaker.succeed()
    assert breaker.retry_after == 1.0
    clock.now += 1
    breaker.succeed()
    assert breaker.state == "half-open", "an answer to an older request is no trial"


def test_a_trial_that_tells_nothing_makes_room_for_another() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += 1
    assert breaker.begin()
    breaker.abandon()
    assert breaker.permits
    assert breaker.begin()


@pytest.mark.parametrize("before", [0, 2])
def test_a_server_that_is_wrong_is_left_alone_at_once(before: int) -> None:
    breaker = Breaker(TERMS)
    for _ in range(before):
        breaker.fail()
    breaker.trip()
    assert not breaker.permits
