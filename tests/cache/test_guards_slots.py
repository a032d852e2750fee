"""Typed slots: one normal form for every notation, two for what differs; and properties of the whole."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache.guards import compare, numbers, read, slots
from cache.guards.words import Language


def found(text: str) -> dict[str, set[str]]:
    return slots.extract(read(text), Language.ENGLISH)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("a claim of 1.200,50 EUR", "amount", "EUR 1200.5"),
        ("a claim of 1,200.50 EUR", "amount", "EUR 1200.5"),
        ("a claim of EUR 1 200", "amount", "EUR 1200"),
        ("a claim of 1\u00a0200 EUR", "amount", "EUR 1200"),
        ("a claim of 1'200 CHF", "amount", "CHF 1200"),
        ("a claim of ₹1,20,000", "amount", "INR 120000"),
        ("a claim of €2m", "amount", "EUR 2000000"),
        ("a fee of 50p", "amount", "GBP 0.5"),
        ("a fee of 50 cents", "amount", "USD 0.5"),
        ("Rs. 15000", "amount", "INR 15000"),
        ("a dose of 5 µg", "quantity", "mass 0.000000005"),
        ("100 km/h", "quantity", "speed 100"),
        ("6 square metres", "quantity", "area 6"),
        ("a two-week notice", "quantity", "time 1209600"),
        ("within a year", "quantity", "months 12"),
        ("half an hour", "quantity", "time 1800"),
        ("10+ years", "quantity", "months 120"),
        ("20 per cent", "quantity", "ratio 0.2"),
        ("an 18-year-old", "number", "18"),
        ("for over-18s", "number", "18"),
        ("nineteen eighty four", "number", "1984"),
        ("World War II", "number", "2"),
        ("3rd of May, 2024", "date", "2024-5-3"),
        ("2024/05/03", "date", "2024-5-3"),
        ("25/12/2025", "date", "2025-12-25"),
        ("12/25/2025", "date", "2025-12-25"),
        ("3/4/2025", "date", "3/4/2025"),
        ("03.04.2025", "date", "3.4.2025"),
        ("half past seven", "time", "7:30"),
        ("seven this evening", "time", "19:0"),
        ("7.30pm", "time", "19:30"),
        ("next week", "relative date", "week 1"),
        ("version 2.1", "version", "2.1"),
        ("v2.1", "version", "2.1"),
        ("+44 (0)20 7946 0018", "phone", "+442079460018"),
        ("0044 20 7946 0018", "phone", "+442079460018"),
        ("(212) 555-0199", "phone", "2125550199"),
        ("DE89 3704 0044 0532 0130 00", "account", "de89370400440532013000"),
        ("4111-1111-1111-1111", "card", "4111111111111111"),
        ("https://www.example.com/a/", "url", "example.com/a"),
        ("edit config.yaml", "file", "config.yaml"),
        ("host 192.168.0.1", "address", "192.168.0.1"),
        ("INV-2024-001", "id", "inv-2024-001"),
        ("the 11th floor", "ordinal", "11"),
        ("the eleventh floor", "ordinal", "11"),
        ("at the age of four years", "number", "4"),
    ],
)
def test_normal_forms(text: str, kind: str, value: str) -> None:
    assert found(text).get(kind) == {value}, found(text)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Is it due on 3/4/2025?", "Is it due on 3 April 2025?"),
        ("Is it due on 3/4/2025?", "Is it due on 4 March 2025?"),
        ("Is it due on 3/4/2025?", "Is it due on 4/3/2025?"),
        ("Does it run on Python 3.1?", "Does it run on Python 3.10?"),
        ("Is account 48213000000001 open?", "Is account 48213000000002 open?"),
        ("Is a link of 100 Mb fast?", "Is a link of 100 MB fast?"),
        ("Is 5 mW safe?", "Is 5 MW safe?"),
        ("Is a fee of 50 cents due?", "Is a fee of 50 dollars due?"),
        ("Is 5 A$ the fee?", "Is 5 US$ the fee?"),
        ("Is 5-10 days the term?", "Is 5-15 days the term?"),
        ("Is it paid next week?", "Is it paid last week?"),
        ("Is the notice due by Friday?", "Is the notice due by Monday?"),
        ("Is the call at 7pm EST?", "Is the call at 7pm PST?"),
        ("Who leads the second team?", "Who leads the third team?"),
        ("Is a single room free?", "Is a double room free?"),
        ("Is DE89 3704 0044 0532 0130 00 valid?", "Is DE89 3704 0044 0532 0130 01 valid?"),
        ("Is 4111 1111 1111 1111 valid?", "Is 4111 1111 1111 1112 valid?"),
        ("What does `rm` do to a file?", "What does `mv` do to a file?"),
        ("How are flights to the US taxed?", "How are flights to us taxed?"),
        ("Is www.example.com down?", "Is www.example.org down?"),
        ("What does config.yaml hold?", "What does config.toml hold?"),
    ],
)
def test_what_differs_is_refused(one: str, two: str) -> None:
    for question, cached in ((one, two), (two, one)):
        assert not compare(read(question), read(cached)).passed


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("What happens to a claim of 1.200,50 EUR?", "What happens to a claim of €1,200.50?"),
        ("Is it due on 25/12/2025?", "Is it due on December 25, 2025?"),
        ("Is it 5-10 days?", "Is it 5 to 10 days?"),
        ("Is the call at half past seven?", "Is the call at 7:30?"),
        ("Can I call 0044 20 7946 0018 at night?", "Can I call +44 20 7946 0018 at night?"),
        ("Is version 2.1 safe?", "Is v2.1 safe?"),
        ("Is a notice of two weeks enough?", "Is a notice of a fortnight or 14 days enough?"),
        ("Is a fee of £0.50 due?", "Is a fee of 50p due?"),
        ("Do I need 10+ years of practice?", "Do I need 10 or more years of practice?"),
        ("Are flights to the U.S. taxed?", "Are flights to the United States taxed?"),
    ],
)
def test_what_is_equal_is_not_refused_by_slots(one: str, two: str) -> None:
    assert slots.check(read(one), read(two), Language.ENGLISH).passed, (found(one), found(two))


_AMOUNTS = st.decimals(min_value=Decimal("0.01"), max_value=Decimal(9_999_999), places=2)


@settings(max_examples=150, deadline=None)
@given(amount=_AMOUNTS)
def test_an_amount_has_one_form_in_every_notation(amount: Decimal) -> None:
    english = f"{amount:,.2f}"
    continental = english.translate(str.maketrans(",.", ".,"))
    swiss = english.replace(",", "'")
    forms = {
        frozenset(found(f"Is {written} due?")["amount"])
        for written in (f"{amount} EUR", f"€{english}", f"EUR {continental}", f"{swiss} euros")
    }
    assert len(forms) == 1


@settings(max_examples=150, deadline=None)
@given(amount=_AMOUNTS, other=_AMOUNTS)
def test_two_amounts_are_equal_only_if_they_are(amount: Decimal, other: Decimal) -> None:
    verdict = compare(read(f"Is a fee of {amount} EUR due?"), read(f"Is a fee of €{other:,.2f} due?"))
    assert verdict.passed == (amount == other)


_ONES = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
         "thirteen",
         "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def spelled(number: int) -> str:
    """An independent writer of English numbers."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        return f"{_TENS[number // 10]}{f'-{_ONES[number % 10]}' if number % 10 else ''}"
    if number < 1000:
        return f"{_ONES[number // 100]} hundred{f' and {spelled(number % 100)}' if number % 100 else ''}"
    return f"{spelled(number // 1000)} thousand{f' {spelled(number % 1000)}' if number % 1000 else ''}"


def spelled_in_chinese(number: int) -> str:
    """An independent writer of Chinese numbers below 100,000,000."""
    if number >= 10_000:
        high, low = divmod(number, 10_000)
        return (
            spelled_in_chinese(high)
            + "万"
            + ("零" if 0 < low < 1000 else "")
            + (spelled_in_chinese(low) if low else "")
        )
    written, gap = "", False
    for power, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, power)
        if digit:
            written += ("零" if gap and written else "") + "零一二三四五六七八九"[digit] + name
        gap = not digit
    return written


@settings(max_examples=200, deadline=None)
@given(number=st.integers(2, 999_999))
def test_english_numbers_round_trip(number: int) -> None:
    assert numbers.spelled_out(spelled(number)) == number


@settings(max_examples=200, deadline=None)
@given(number=st.integers(1, 99_999_999))
def test_chinese_numbers_round_trip(number: int) -> None:
    assert numbers.zh_value(spelled_in_chinese(number)) == number


@settings(max_examples=100, deadline=None)
@given(day=st.dates(date(1900, 1, 1), date(2100, 1, 1)))
def test_a_date_has_one_form(day: date) -> None:
    written = [f"{day:%Y-%m-%d}", f"{day:%Y/%m/%d}", f"{day:%d %B %Y}", f"{day:%B %d, %Y}", f"{day:%d %b %Y}"]
    forms = {frozenset(found(f"Is the shop shut on {text}?").get("date", set())) for text in written}
    assert len(forms) == 1
    assert forms != {frozenset()}


_PIECES = "5 10 two EUR $ kg days may 3/4/2025 7pm v2.1 US not more less than A B ½ 三天 ２ to - and"


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(_PIECES.split()), min_size=1, max_size=9), order=st.randoms())
def test_verdicts_are_symmetric_and_equal_texts_pass(words: list[str], order: Random) -> None:
    one = f"Is the {' '.join(words)}?"
    shuffled = list(words)
    order.shuffle(shuffled)
    two = f"Is the {' '.join(shuffled)}?"
    forth, back = compare(read(one), read(two)), compare(read(two), read(one))
    assert forth.passed == back.passed
    assert compare(read(one), read(one)).passed
