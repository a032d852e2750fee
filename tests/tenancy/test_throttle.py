"""Throttling of failed authentications: who waits, and above all who does not."""

from __future__ import annotations

import threading

import pytest

from tenancy.errors import Throttled
from tenancy.throttle import Throttle, ThrottlePolicy


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


POLICY = ThrottlePolicy(source_failures=6, credential_failures=3, spread_failures=10, window_s=60.0, entries=50)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> Throttle:
    return Throttle(POLICY, clock)


def waits(throttle: Throttle, source: str, credential: str | None) -> float:
    try:
        throttle.check(source, credential)
    except Throttled as refused:
        return refused.retry_after
    return 0.0


def fail(throttle: Throttle, source: str, credential: str | None, times: int) -> int:
    """Failures that got through."""
    passed = 0
    for _ in range(times):
        if not waits(throttle, source, credential):
            throttle.failed(source, credential)
            passed += 1
    return passed


def test_a_source_waits_after_its_failures_and_recovers(throttle: Throttle, clock: Clock) -> None:
    assert fail(throttle, "1.1.1.1", None, 20) == 6
    wait = waits(throttle, "1.1.1.1", None)
    assert wait == pytest.approx(10.0)
    assert not waits(throttle, "2.2.2.2", None)
    clock.now += wait + 0.001
    assert fail(throttle, "1.1.1.1", None, 20) == 1
    clock.now += 61
    assert fail(throttle, "1.1.1.1", None, 20) == 6


def test_changing_credentials_does_not_help_a_source(throttle: Throttle) -> None:
    assert sum(fail(throttle, "1.1.1.1", f"key{n}", 1) for n in range(20)) == 6
    assert waits(throttle, "1.1.1.1", "never-seen")


def test_one_credential_from_one_source_has_a_lower_limit(throttle: Throttle) -> None:
    assert fail(throttle, "1.1.1.1", "k", 20) == 3
    assert not waits(throttle, "1.1.1.1", "other")


def test_failures_elsewhere_never_lock_a_key(throttle: Throttle) -> None:
    for n in range(40):
        fail(throttle, f"10.0.0.{n}", "victim", 3)
    assert not waits(throttle, "9.9.9.9", "victim")
    throttle.succeeded("9.9.9.9", "victim")
    assert not waits(throttle, "9.9.9.9", "victim")


def test_a_key_under_attack_gives_each_source_one_failure(throttle: Throttle) -> None:
    for n in range(12):
        fail(throttle, f"10.0.0.{n}", "victim", 1)
    assert fail(throttle, "10.0.1.1", "victim", 5) == 1
    assert fail(throttle, "10.0.1.1", "other", 5) == 3


def test_holder_of_a_proven_key_survives_a_neighbour_behind_one_address(throttle: Throttle) -> None:
    throttle.succeeded("1.1.1.1", "mine")
    for n in range(30):
        fail(throttle, "1.1.1.1", f"guess{n}", 1)
    assert waits(throttle, "1.1.1.1", "unproven")
    assert not waits(throttle, "1.1.1.1", "mine")


def test_neighbour_failing_with_my_key_id_costs_me_at_most_the_documented_wait(
    throttle: Throttle, clock: Clock
) -> None:
    throttle.succeeded("1.1.1.1", "mine")
    fail(throttle, "1.1.1.1", "mine", 50)
    wait = waits(throttle, "1.1.1.1", "mine")
    assert 0 < wait <= POLICY.window_s / POLICY.credential_failures
    assert not waits(throttle, "2.2.2.2", "mine")
    clock.now += wait + 0.001
    assert not waits(throttle, "1.1.1.1", "mine")


def test_an_own_valid_key_buys_no_guesses_at_others(throttle: Throttle) -> None:
    passed = 0
    for n in range(40):
        throttle.succeeded("1.1.1.1", "attackers-own")
        passed += fail(throttle, "1.1.1.1", f"guess{n}", 1)
    assert passed == 6


def test_success_clears_the_typos_before_it(throttle: Throttle) -> None:
    fail(throttle, "1.1.1.1", "k", 2)
    throttle.succeeded("1.1.1.1", "k")
    assert fail(throttle, "1.1.1.1", "k", 20) == 3


def test_a_proven_key_that_is_revoked_and_retried_waits(throttle: Throttle) -> None:
    throttle.succeeded("1.1.1.1", "revoked")
    assert fail(throttle, "1.1.1.1", "revoked", 100) == 3


def test_memory_is_bounded_and_dropping_refuses_nobody(throttle: Throttle) -> None:
    throttle.succeeded("9.9.9.9", "holder")
    for n in range(5000):
        fail(throttle, f"s{n}", f"k{n}", 1)
    assert len(throttle._sources) == len(throttle._credentials) == len(throttle._pairs) == 50
    assert not waits(throttle, "9.9.9.9", "holder")


def test_threads_count_every_failure() -> None:
    throttle = Throttle(
        ThrottlePolicy(source_failures=800, credential_failures=800, spread_failures=9999, window_s=1e9), lambda: 0.0
    )

    def fail_often() -> None:
        for _ in range(100):
            throttle.failed("s", "k")

    threads = [threading.Thread(target=fail_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert waits(throttle, "s", "k") == pytest.approx(1e9 / 800)


def test_waiting_text_names_neither_source_nor_credential(throttle: Throttle) -> None:
    fail(throttle, "1.1.1.1", "kid-123", 20)
    with pytest.raises(Throttled) as refused:
        throttle.check("1.1.1.1", "kid-123")
    assert "kid-123" not in str(refused.value)
    assert "1.1.1.1" not in str(refused.value)
