"""Names of files that are no UTF-8."""

from __future__ import annotations

import os

import pytest

from indexing.file_names import readable


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("gbk", "报告.txt"),
        ("gbk", "财务报表2024.xlsx"),
        ("gbk", "國際業務"),
        ("cp932", "報告書.txt"),
        ("cp932", "データ.csv"),
        ("cp932", "請求書2024.pdf"),
        ("cp1252", "café.txt"),
        ("cp1252", "Müller-Straße.txt"),
    ],
)
def test_a_name_in_an_older_encoding_is_read(encoding: str, name: str) -> None:
    assert readable(os.fsdecode(name.encode(encoding))) == (name, False)


def test_utf8_is_itself_in_one_form_and_what_is_nothing_is_written_out() -> None:
    assert readable("u\u0308ber.txt") == ("über.txt", True)
    assert readable(os.fsdecode(b"a\xff\xfe\x80.txt")) == ("a\\xff\\xfe\\x80.txt", False)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("a\nb.txt", "a\\nb.txt"), ("\x1b[2J", "\\x1b[2J"), ("a\u200bb", "a\\u200bb"), ("a\u200cb", "a\\u200cb"),
        ("\u200fعقد.pdf", "\\u200fعقد.pdf"), ("\U000e0062", "\\U000e0062"),
    ],
)  # fmt: skip
def test_what_nobody_sees_is_written_out(part: str, told: str) -> None:
    assert readable(part) == (told, False)


@pytest.mark.parametrize(
    "part", ["نامه\u200cها.txt", "\U0001f468\u200d\U0001f469\u200d\U0001f467.png", " a.txt ", "\u3000.md"]
)
def test_joiners_in_their_place_and_outer_blanks_stay(part: str) -> None:
    assert readable(part) == (part, True)
