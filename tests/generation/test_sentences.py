"""Sentences with offsets, in prose, wrapped lines, lists and scripts without full stops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generation.sentences import sentences


def texts(text: str) -> list[str]:
    return [sentence.text for sentence in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One is here. Two is there! Three?", ["One is here.", "Two is there!", "Three?"]),
        (
            "Dr. Lee, e.g. of the U.S. office, agreed. All left.",
            ["Dr. Lee, e.g. of the U.S. office, agreed.", "All left."],
        ),
        ("It rose 3.5 percent. Then it fell.", ["It rose 3.5 percent.", "Then it fell."]),
        ("Er endet am 31. März. Danach ist Mai.", ["Er endet am 31. März.", "Danach ist Mai."]),
        ("Es kostet 31. Maibäume gibt es nicht.", ["Es kostet 31.", "Maibäume gibt es nicht."]),
        ('He said "no." She left.', ['He said "no."', "She left."]),
        ("今天是星期一。你好吗？我很好！", ["今天是星期一。", "你好吗？", "我很好！"]),
        ("年假30天；病假5天。", ["年假30天；", "病假5天。"]),
        ("● First entry\n● Second entry\nthat goes on", ["First entry", "Second entry\nthat goes on"]),
        ("The rules are:\n- No smoking\n- No pets", ["The rules are:", "No smoking", "No pets"]),
        ("", []),
        (" \n\t ", []),
        ("... !!!", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_a_wrapped_sentence_is_one() -> None:
    text = "This policy applies to all regular\nemployees of the company and to\ninterns. Others are not covered.\n"
    assert texts(text) == [
        "This policy applies to all regular\nemployees of the company and to\ninterns.",
        "Others are not covered.",
    ]


def test_headings_openings_and_items_are_told_apart() -> None:
    found = sentences("2. Leave\nEmployees may take:\n● Annual leave of 27 days\n\nAll leave is paid in full.")
    assert [(one.text, one.heading, one.lead, one.item) for one in found] == [
        ("2. Leave", True, False, True),
        ("Employees may take:", False, True, False),
        ("Annual leave of 27 days", False, False, True),
        ("All leave is paid in full.", False, False, False),
    ]


def test_text_without_marks_is_cut_by_length() -> None:
    thai = "พนักงานประจำมีสิทธิลาพักผ่อนประจำปีได้ปีละสิบวัน " * 12
    assert all(len(one) <= 160 for one in texts(thai))
    assert "".join(texts(thai)).replace(" ", "") == thai.replace(" ", "")
    assert max(map(len, texts("word " * 1000))) <= 480
    assert max(map(len, texts("x" * 2000))) <= 480


@given(st.text(alphabet=st.sampled_from("aB1. ,;:!?\n●-。，中คท\"'()[]\u2028")))
def test_offsets_are_exact_ordered_and_lose_no_letter(text: str) -> None:
    end = 0
    for one in sentences(text):
        assert one.start >= end
        assert text[one.start : one.end] == one.text
        assert one.text == one.text.strip()
        end = one.end
    kept = {position for one in sentences(text) for position in range(one.start, one.end)}
    assert all(not character.isalnum() for position, character in enumerate(text) if position not in kept)
