"""What is shown of a passage: offsets into the document's text, that are where they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.words import spans, words
from retrieval.highlights import SNIPPET_CHARS, shown
from retrieval.passage import Passage

FILLER = "The cafeteria is open from eight to four and serves two warm meals. " * 6
NOTICE = "The notice period is three months to the end of a quarter."


def passage(text: str, start: int = 1_000) -> Passage:
    return Passage("d", 1, "t", "v", "c", 1, start, start + len(text), text, 1.0)


def marked(question: str, text: str) -> list[str]:
    one = passage(text)
    (found,) = shown(question, [one])
    return [text[start - one.start : end - one.start] for start, end in found.highlights]


def test_words_are_marked_folded_and_stemmed_and_function_words_are_not() -> None:
    assert marked("How long is the notice period?", NOTICE) == ["notice", "period"]
    assert marked("Which periods were NOTICED?", NOTICE) == ["notice", "period"]
    assert marked("café", "The Cafe\u0301, the CAFE and the cafes.") == ["Cafe\u0301", "CAFE", "cafes"]


@pytest.mark.parametrize(
    ("question", "text", "wanted"),
    [
        ("年假几天", "员工每年享有年假二十五天。", ["年假"]),
        ("Urlaubstage im Jahr", "Der Urlaub umfasst 30 Urlaubstage.", ["Urlaubstage"]),
        ("отпуск", "Отпуск длится 28 дней.", ["Отпуск"]),
        ("ﬁle", "The file is here.", ["file"]),
    ],
)
def test_other_scripts(question: str, text: str, wanted: list[str]) -> None:
    assert marked(question, text) == wanted


def test_the_snippet_begins_at_the_sentence_that_speaks_of_it() -> None:
    one = passage(FILLER + NOTICE + " " + FILLER)
    (found,) = shown("How long is the notice period?", [one])
    text = one.text[found.snippet[0] - one.start : found.snippet[1] - one.start]
    assert text.startswith(NOTICE)
    assert len(text) <= SNIPPET_CHARS


def test_without_a_word_in_common_the_beginning_is_shown() -> None:
    one = passage(NOTICE)
    (found,) = shown("parking", [one])
    assert (found.snippet, found.highlights) == ((one.start, one.end), ())
    assert shown("parking", []) == []


@given(question=st.text(max_size=30), text=st.text(max_size=600), start=st.integers(0, 10**6))
def test_all_offsets_lie_in_the_passage_in_order(question: str, text: str, start: int) -> None:
    one = passage(text, start)
    (found,) = shown(question, [one])
    begin, end = found.snippet
    assert one.start <= begin <= end <= one.end
    assert end - begin <= SNIPPET_CHARS
    at = one.start
    for first, last in found.highlights:
        assert at <= first < last <= one.end
        at = last


@given(st.text(max_size=200))
def test_plain_text_has_the_same_words_with_and_without_offsets(text: str) -> None:
    plain = text.encode("ascii", "ignore").decode()
    assert [word for _, _, word in spans(plain)] == words(plain)
    assert all(0 <= start < end <= len(text) for start, end, _ in spans(text))
