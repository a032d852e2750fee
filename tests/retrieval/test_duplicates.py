"""Near-duplicates give way, and nothing that differs does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.duplicates import spread
from retrieval.passage import Passage

LEAVE = "Employees have 25 days of paid leave a year, of which 5 may be carried over into the next one until March."


def passage(number: int, text: str) -> Passage:
    return Passage(f"d{number}", number, "t", "v", "c", number, 0, len(text), text, 1.0 / (number + 1))


def order(*texts: str, top_k: int = 10) -> list[int]:
    return [one.document_id for one in spread([passage(n, text) for n, text in enumerate(texts)], top_k)]


def test_copies_come_behind_what_is_new() -> None:
    assert order(LEAVE, LEAVE, "Something else altogether about parking.") == [0, 2, 1]
    assert order(LEAVE, LEAVE.upper() + "  ", "Parking.", top_k=2) == [0, 2]


def test_where_nothing_else_is_left_copies_fill_the_room() -> None:
    assert order(LEAVE, LEAVE, LEAVE) == [0, 1, 2]
    assert order(LEAVE, LEAVE, LEAVE, top_k=2) == [0, 1]


@pytest.mark.parametrize(
    "other",
    [
        LEAVE.replace("25", "30"),
        LEAVE.replace("5 may", "6 may"),
        LEAVE + " This does not hold for people who work part-time, whose leave follows their hours.",
        "Paid leave: 25 days a year; 5 of them may be carried over.",
    ],
)
def test_what_differs_in_a_number_or_a_sentence_is_no_copy(other: str) -> None:
    assert order(LEAVE, other, "Parking.") == [0, 1, 2]


def test_other_scripts_are_compared_as_well() -> None:
    rule = "员工每年享有二十五天带薪年假，其中五天可以结转至次年三月。"
    assert order(rule, rule, "停车规定见附件。") == [0, 2, 1]
    assert order(rule, rule.replace("带薪", "无薪"), "停车规定见附件。") == [0, 1, 2]


@given(
    st.lists(st.sampled_from(["a b c d", "a b c e", "", "1 2 3", "x", LEAVE, "年假"]), max_size=12), st.integers(1, 12)
)
def test_no_passage_is_made_up_lost_or_taken_twice(texts: list[str], top_k: int) -> None:
    given_ = [passage(number, text) for number, text in enumerate(texts)]
    found = spread(given_, top_k)
    assert len(found) == min(top_k, len(texts))
    assert len({one.document_id for one in found}) == len(found)
    assert all(replace(one) in given_ for one in found)
    assert found[:1] == given_[:1]
