"""Personal data by shape and check digits, each kind beside what resembles it and is none."""

from __future__ import annotations

import pytest

from generation.guardrails.personal import find

KINDS = ("email", "phone", "iban", "card")


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        ("Write to Bob.Smith+x@mail.example.com.", "email", "Bob.Smith+x@mail.example.com"),
        ("邮箱是bob@example.com，谢谢", "email", "bob@example.com"),
        ("ｂｏｂ＠example．com", "email", "ｂｏｂ＠example．com"),
        ("bob@exam\u200bple.com!", "email", "bob@exam\u200bple.com"),
        ("jürgen@müller.de schreibt", "email", "jürgen@müller.de"),
        ("<bob@example.com>", "email", "bob@example.com"),
        ("bob@example.com- and", "email", "bob@example.com"),
        ("Call +49 30 1234567 today", "phone", "+49 30 1234567"),
        ("0049 171 1234567", "phone", "0049 171 1234567"),
        ("(030) 123 45 67", "phone", "(030) 123 45 67"),
        ("unter 0171/1234567 oder", "phone", "0171/1234567"),
        ("01711234567", "phone", "01711234567"),
        ("06.12.34.56.78", "phone", "06.12.34.56.78"),
        ("at (555) 123-4567 now", "phone", "(555) 123-4567"),
        ("电话：１３８００１３８０００。", "phone", "１３８００１３８０００"),
        ("手机是138 0013 8000吗", "phone", "138 0013 8000"),
        ("+49\u00a0171–1234567", "phone", "+49\u00a0171–1234567"),
        ("Tel. 5551234", "phone", "5551234"),
        ("phone: 12345", "phone", "12345"),
        ("GB82 WEST 1234 5698 7654 32 is mine", "iban", "GB82 WEST 1234 5698 7654 32"),
        ("DE89370400440532013000.", "iban", "DE89370400440532013000"),
        ("de89 3704 0044 0532 0130 00 und mehr", "iban", "de89 3704 0044 0532 0130 00"),
        ("DE89 3704 0044 0532 0130 01", "iban", "DE89 3704 0044 0532 0130 01"),
        ("D\u200bE89 3704\u200b0044 0532 0130 00", "iban", "D\u200bE89 3704\u200b0044 0532 0130 00"),
        ("Karte 4111 1111 1111 1111 gültig 12/27", "card", "4111 1111 1111 1111"),
        ("4111111111111111 12/27", "card", "4111111111111111"),
        ("3782-822463-10005", "card", "3782-822463-10005"),
        ("卡号４１１１１１１１１１１１１１１１。", "card", "４１１１１１１１１１１１１１１１"),
        ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "card", "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"),
    ],
)
def test_each_kind_is_found_whole_and_at_its_place(text: str, kind: str, found: str) -> None:
    (item,) = find(text, KINDS)
    assert (item.kind, text[item.start : item.end]) == (kind, found)
    assert not [other for other in find(text, [one for one in KINDS if one != kind]) if other.kind != kind]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "on 01.02.2024 and 2024-01-15, from 09:30",
        "48,000 euro, 12.500,00 EUR, 4,111,111,111,111,111",
        "the years 2021 2022 2023 2024 2025",
        "4111 1111 1111 1112 is no card",
        "version 3.11.4 at 10.0.0.1, @bob, user@localhost",
        "Section 12 345 of page 67",
        "hotel 12345",
        "第123章 2024年1月15日",
    ],
)
def test_dates_amounts_and_other_numbers_are_none(text: str) -> None:
    assert find(text, KINDS) == []


def test_what_stands_side_by_side_is_found_each() -> None:
    text = "+49 30 1234567 4111 1111 1111 1111 DE89 3704 0044 0532 0130 00, 030 1234567 01.02.2024"
    assert [text[item.start : item.end] for item in find(text, KINDS)] == [
        "+49 30 1234567",
        "4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
        "030 1234567",
    ]


def test_what_is_equal_has_one_value_however_it_is_written() -> None:
    written = "DE89 3704 0044 0532 0130 00, DE89370400440532013000; Bob@Example.com, bob@example.com"
    assert len({item.value for item in find(written, KINDS)}) == 2


@pytest.mark.parametrize("text", ["a" * 20_000 + "@" + "b" * 20_000, "a@" * 10_000, "GB82 " * 4_000, "0" * 20_000])
@pytest.mark.timeout(20)
def test_a_hostile_text_takes_no_long(text: str) -> None:
    find(text, KINDS)
