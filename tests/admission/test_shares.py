"""Service received by service due, held against what weighted sharing gives."""

from __future__ import annotations

import pytest

from admission.fair import FairQueue, Party
from admission.shares import Share, Shares


def test_who_gets_all_that_it_asks_for_has_its_share() -> None:
    shares = Shares()
    for tenant, tokens in (("a", 100), ("b", 900)):
        shares.waits(tenant, 1.0, tokens)
        shares.begins(tenant, tokens)
        shares.served(tenant, tokens)
    shares.ends("a")
    shares.ends("b")
    assert {tenant: share.ratio for tenant, share in shares.take().items()} == {"a": 1.0, "b": 2.0}


def test_who_is_passed_over_has_less_than_its_share_and_others_more() -> None:
    shares = Shares()
    shares.waits("starved", 1.0, 5_000)
    for _ in range(10):
        shares.waits("greedy", 1.0, 1_000)
        shares.begins("greedy", 1_000)
        shares.served("greedy", 1_000)
        shares.ends("greedy")
    found = shares.take()
    # Alone between two requests of the other, but nothing is served then.
    assert found["starved"] == Share(received=0.0, entitled=5_000.0, unserved=5_000)
    assert found["starved"].ratio == 0.0
    assert found["greedy"].ratio == pytest.approx(2.0)


def test_weights_divide_what_there_is() -> None:
    shares = Shares()
    for tenant, weight in (("one", 1.0), ("three", 3.0)):
        shares.waits(tenant, weight, 100_000)
    for tenant, work in (("one", 1_000), ("three", 3_000)):
        shares.waits(tenant, 1.0, 0)
        shares.begins(tenant, 0)
        shares.served(tenant, work)
    assert {tenant: share.ratio for tenant, share in shares.take().items()} == {
        "one": pytest.approx(1.0),
        "three": pytest.approx(1.0),
    }


def test_who_gives_up_asked_in_vain() -> None:
    shares = Shares()
    shares.waits("late", 1.0, 300)
    shares.waits("busy", 1.0, 0)
    shares.begins("busy", 0)
    shares.served("busy", 1_000)
    shares.gives_up("late", 300)
    assert shares.take()["late"].ratio == 0.0
    shares.ends("busy")
    shares.take()
    assert shares.take() == {}


def test_the_fair_queue_tells_its_shares_and_batch_work_has_none() -> None:
    queue: FairQueue[str] = FairQueue()
    for tenant in ("a", "b"):
        place = queue.enter(f"of {tenant}", Party(tenant, "ana"), 200)
        queue.begin(place)
        queue.used(place, 200, 50)
        queue.leave(place)
    batch = queue.enter("batch", Party("c", work="batch"), 500)
    queue.begin(batch)
    queue.leave(batch)
    given_up = queue.enter("given up", Party("a", "bo"), 70)
    queue.leave(given_up)
    found = queue.shares.take()
    assert {tenant: share.received for tenant, share in found.items()} == {"a": 300.0, "b": 300.0}
    assert found["a"].unserved == 70
    assert queue.shares.take() == {}


def test_refunds_are_given_back() -> None:
    queue: FairQueue[str] = FairQueue()
    place = queue.enter("one", Party("a"), 1_000)
    queue.begin(place)
    queue.used(place, 0, 0)
    queue.leave(place)
    assert queue.shares.take()["a"].received == 0.0
