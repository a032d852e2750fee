"""A model that declines: its word never leaves, whatever the pieces, and every other answer leaves unchanged."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.declined import NO_ANSWER, Declined
from generation.prompt import Templates, render


def left(pieces: list[str]) -> tuple[str, bool]:
    """What left of an answer in these pieces, and whether it was taken as declined."""
    check = Declined()
    text = "".join(map(check.feed, pieces)) + check.flush()
    return text, check.said


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@pytest.mark.parametrize(
    "answer",
    [
        NO_ANSWER,
        f" \n{NO_ANSWER}.",
        f"**{NO_ANSWER}**",
        f'"{NO_ANSWER}" since nothing is said about it. [S1]',
        f"- {NO_ANSWER}\n",
        f"[{NO_ANSWER}]",
        f"\u201c{NO_ANSWER}\u201d",
    ],
)
@given(places=st.lists(st.integers(0, 100), max_size=6))
def test_the_word_is_no_answer_and_does_not_leave(answer: str, places: list[int]) -> None:
    assert left(cut(answer, places)) == ("", True)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   ",
        "Three months. [S1]",
        NO_ANSWER[:-1],
        "NO",
        "NO_ANSWER: the field is empty. [S1]",
        f"no {NO_ANSWER}",
        f"The sources say {NO_ANSWER}.",
        " " * 17 + NO_ANSWER,
        "**Three** months. [S1]",
        NO_ANSWER.lower(),
    ],
)
@given(places=st.lists(st.integers(0, 100), max_size=6))
def test_any_other_answer_leaves_as_it_is(answer: str, places: list[int]) -> None:
    assert left(cut(answer, places)) == (answer, False)


@given(st.text(alphabet="NO_ANSWERIC U*", max_size=40), st.lists(st.integers(0, 100), max_size=6))
def test_pieces_change_nothing(answer: str, places: list[int]) -> None:
    whole = left([answer])
    assert left(cut(answer, places)) == whole
    assert whole == (("", True) if whole[1] else (answer, False))


def test_nothing_is_held_back_once_it_is_no_declining() -> None:
    check = Declined()
    assert check.feed("NO") == ""
    assert check.feed(" leave is carried over.") == "NO leave is carried over."
    assert check.feed(" [S1]") == " [S1]"


def test_what_follows_the_word_is_waited_for_a_little() -> None:
    check = Declined()
    check.feed(NO_ANSWER)
    check.feed("." * 80)
    assert not check.goes_on
    check.feed(".")
    assert check.goes_on


def test_it_is_on_record_where_it_was_said() -> None:
    said, other = Declined(), Declined()
    said.feed(NO_ANSWER)
    other.feed("Three months.")
    assert (said.detail, other.detail) == ({"declined": True}, {})


def test_every_prompt_tells_the_word_whatever_the_template() -> None:
    templates = Templates({"house": "Speak like a lawyer."})
    for name in templates.names():
        prompt = render(templates.get(name), "How long?", ())
        assert NO_ANSWER in prompt.messages[0].content
