from __future__ import annotations

from tenancy.recent import Recent


class Thing:
    """A value that weak references can point to."""


def test_the_most_recently_used_are_kept_and_the_rest_goes() -> None:
    table: Recent[int, Thing] = Recent(3)
    for number in range(10):
        table.add(number, Thing())
        assert table.get(0) is not None
    assert (len(table), table.keys()) == (3, {0, 8, 9})
    assert table.get(1) is None


def test_what_somebody_holds_is_found_and_not_made_twice() -> None:
    table: Recent[int, Thing] = Recent(1)
    held = table.add(1, Thing())
    table.add(2, Thing())
    assert table.add(1, Thing()) is held is table.get(1)
    assert (len(table), table.keys()) == (1, {1})
    del held
    table.add(2, Thing())
    assert table.get(1) is None


def test_what_is_taken_out_is_not_found_though_somebody_holds_it() -> None:
    table: Recent[int, Thing] = Recent(2)
    held = table.add(1, Thing())
    assert table.pop(1) is held
    assert (table.get(1), table.pop(1), len(table)) == (None, None, 0)
    assert table.add(1, Thing()) is not held


def test_dropping_takes_the_oldest_first() -> None:
    table: Recent[int, Thing] = Recent(5)
    for number in (1, 2, 1):
        table.add(number, Thing())
    assert (table.drop(), table.keys()) == (True, {1})
    assert (table.drop(), table.drop()) == (True, False)
