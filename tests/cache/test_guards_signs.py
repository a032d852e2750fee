"""Shortcuts in front of the guards cost or save time, and change nothing that is found."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from cache.guards import marks, read, signs, slots, words
from cache.guards.words import Language

PIECES = (
    "12", "3,5", "1.200", "2024", "99999", "DE89 3704 0044 0532 0130 00", "de12 ab34 cd56",
    "4111 1111 1111 1111", "+44 20 7946 0958", "(030) 123-4567", "v2.3.1", "version 4", "10:30 am", "5 p.m.",
    "7pm", "half past 3", "three o'clock", "noon", "2024-05-03", "3/4/2025", "3/4one", "May 5th", "may-5",
    "in may", "mayor 7", "5 of May, 2024", "1st of june", "#4821", "# 12", "INV-2024-77", "a_7", "0012345",
    "12-34-56", "7/12345", "12345/7", "$5-10", "5 - 10", "5 to 10 days", "50 mg", "5 per cent", "two hundred",
    "twenty-five", "x-one", "o'one 5", "World War II", "C++", "mW", "ana@x.org", "a.io/x 5", "report.pdf",
    "10.0.0.1", "one", "first", "once", "next week", "on Monday 5", "'quoted 5'", "half a day", "phone",
    "5 dollars", "2½", "１２３", "5月3日", "下午3点", "三天", "example 3", "3a.m", "3.30pm",
)  # fmt: skip


def texts() -> list[str]:
    random = Random(5)
    return [
        *(f"Is {piece} allowed?" for piece in PIECES),
        *(f"Is {' '.join(random.choices(PIECES, k=random.randint(2, 4)))} allowed?" for _ in range(400)),
        *("".join(random.choices("".join(PIECES), k=14)) for _ in range(400)),
    ]


def found(text: str) -> dict[str, set[str]]:
    known = read(text)
    return slots.extract(known, Language.CHINESE if known.language is Language.CHINESE else Language.ENGLISH)


def test_no_value_is_lost_by_leaving_a_reader_out(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = [found(text) for text in texts()]
    monkeypatch.setattr(signs, "_out_of_the_question", lambda lower, digits: set())
    assert [found(text) for text in texts()] == quick
    assert sum(map(bool, quick)) > 400


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Is level 7 allowed?", {"digits", "number", "in digits"}),
        ("Is level seven allowed?", {"number", "spelled"}),
        ("Is level A7 allowed?", {"digits", "number", "spelled", "mixed"}),
        ("Is level A allowed?", set()),
    ],
)
def test_a_text_shows_what_it_holds_alone(text: str, shown: set[str]) -> None:
    assert signs.signs(read(text)) == shown


def test_no_capital_that_differs_is_lost_by_looking_for_one_first(monkeypatch: pytest.MonkeyPatch) -> None:
    written = ("Turkey", "turkey", "may", "May", "the polish team", "the Polish team", "VPN", "vpn")
    pairs = [(f"Does it go to {one}? Ok", f"Does {two} go to it?") for one in written for two in written]
    quick = [marks.check(read(one), read(two), Language.ENGLISH) for one, two in pairs]
    assert {verdict.passed for verdict in quick} == {True, False}
    monkeypatch.setattr(marks, "_has_inner_capital", lambda text: True)
    assert [marks.check(read(one), read(two), Language.ENGLISH) for one, two in pairs] == quick


def test_words_are_told_apart_at_their_first_use_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = SimpleNamespace(times=0)
    real = words._told_apart

    def counting(plain: str) -> object:
        counted.times += 1
        return real(plain)

    monkeypatch.setattr(words, "_told_apart", counting)
    text = read("Is the notice period two weeks?")
    assert (text.source, counted.times) == ("Is the notice period two weeks?", 0)
    assert text.content == ("notice", "period", "two", "weeks")
    assert (text.language, text.words[0], text.cased[0], text.stems["weeks"]) == (Language.ENGLISH, "is", "Is", "week")
    assert counted.times == 1
    with pytest.raises(AttributeError):
        _ = text.other
