"""The mark of the system message: an answer that holds it does not leave, and no other is held up by it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from generation.canary import CanaryCheck, canary
from generation.output import Chain, Withheld

MARK = canary(b"k" * 32, "r1")


def test_a_mark_belongs_to_one_key_and_one_template() -> None:
    assert canary(b"k" * 32, "r1") == MARK
    assert len({MARK, canary(b"k" * 32, "r2"), canary(b"j" * 32, "r1")}) == 3
    assert MARK.isalnum()


@pytest.mark.parametrize(
    "form",
    [
        MARK,
        MARK.upper(),
        " ".join(MARK),
        "-".join(MARK),
        f"**{MARK[:9]}**\n{MARK[9:]}",
        f"it is:{MARK}.",
        "".join(chr(ord(sign) + 0xFEE0) for sign in MARK.upper()),
        "\u200b".join(chr(0x1D41A + ord(sign) - ord("a")) if sign.isalpha() else sign for sign in MARK),
    ],
    ids=["plain", "upper", "spaced", "hyphens", "broken", "glued", "full-width", "mathematical"],
)
@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_an_answer_with_the_mark_is_withheld_before_any_of_it_leaves(form: str, size: int) -> None:
    check, text, left = CanaryCheck(MARK), f"My rules are {form}", list[str]()
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    with pytest.raises(Withheld):
        left.extend(map(check.feed, pieces))
    said = "".join(left)
    assert text.startswith(said)
    assert "".join(sign for sign in said.lower() if sign.isalnum()) in ("", "myrulesare", "myrulesareitis")
    assert check.detail == {"canary": True}


@settings(deadline=None)
@given(st.lists(st.sampled_from([MARK[:5], MARK[:-1], MARK[1:], "z", "q", " ", "notice", "中", "İ"]), max_size=20))
def test_any_other_answer_leaves_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    if MARK in "".join(sign.lower()[0] for sign in text if sign.isalnum()):
        return
    check = CanaryCheck(MARK)
    assert "".join(map(check.feed, pieces)) + check.flush() == text
    assert (check.detail, check.warnings) == ({}, ())


def test_what_may_yet_become_the_mark_takes_no_time_while_it_grows() -> None:
    check, began = CanaryCheck(MARK), time.process_time()
    assert "".join(check.feed(piece) for piece in [MARK[:-1], *["- "] * 20_000]) == ""
    with pytest.raises(Withheld):
        check.feed(MARK[-1])
    assert time.process_time() - began < 5


class Doubling:
    """A stage that holds back everything and says it twice at the end."""

    def __init__(self) -> None:
        self.held = ""
        self.detail = {"doubled": 1}
        self.warnings = ("doubled",)

    def feed(self, text: str) -> str:
        self.held += text
        return ""

    def flush(self) -> str:
        return self.held * 2


def test_stages_are_chained_and_what_one_holds_back_passes_the_next() -> None:
    chain = Chain([CanaryCheck(MARK), Doubling(), CanaryCheck(MARK)])
    assert chain.feed("one z") == ""
    assert chain.flush() == "one zone z"
    assert (chain.detail, chain.warnings) == ({"doubled": 1}, ("doubled",))
    half = len(MARK) // 2
    turned = Chain([Doubling(), CanaryCheck(MARK)])
    turned.feed(MARK[half:] + MARK[:half])
    with pytest.raises(Withheld):
        turned.flush()
    assert Chain([]).feed("x") == "x"
