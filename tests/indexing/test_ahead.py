"""Work a bounded amount ahead, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from indexing.ahead import in_order


def test_results_come_in_order_whichever_is_done_first() -> None:
    second_done = threading.Event()

    def work(item: int) -> int:
        if item == 1:
            assert second_done.wait(10)
        if item == 2:
            second_done.set()
        return item * 10

    assert list(in_order(iter([1, 2, 3]), work, lambda _: 1, threads=2, most=8, heaviest=8)) == [10, 20, 30]


@pytest.mark.parametrize(("most", "heaviest", "ahead"), [(3, 100, 3), (100, 6, 3), (100, 1, 1)])
def test_no_more_is_ahead_than_may_be(most: int, heaviest: int, ahead: int) -> None:
    taken, given, peak = 0, 0, 0

    def items() -> Iterator[int]:
        nonlocal taken, peak
        for number in range(20):
            taken += 1
            # The one that was just asked for waits until there is room for it.
            peak = max(peak, taken - 1 - given)
            yield number

    for _ in in_order(items(), lambda item: item, lambda _: 2, threads=2, most=most, heaviest=heaviest):
        given += 1
    assert (given, peak) == (20, ahead)


def test_an_error_is_raised_in_its_turn_and_ends_the_work() -> None:
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 2:
            raise ValueError("two")
        return item

    results = in_order(iter(range(100)), work, lambda _: 1, threads=1, most=4, heaviest=100)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)
    assert len(begun) <= 7


def test_who_stops_taking_ends_the_work() -> None:
    begun = []
    results = in_order(iter(range(100)), lambda item: begun.append(item), lambda _: 1, threads=1, most=4, heaviest=100)
    next(results)
    results.close()  # type: ignore[attr-defined]
    assert len(begun) <= 6
