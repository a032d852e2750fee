"""Numbers as people write them, in digits and in words, and what they are worth."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, InvalidOperation
from typing import Final

import regex

from cache.guards.units import (
    MULTIPLIERS,
    NUMBER_WORDS,
    SUFFIXES,
    ZH_DIGITS,
    ZH_POWERS,
)

_EXACT: Final = Context(prec=80)
_LONGEST: Final = 60
"""Digits beyond which a number is compared as it is written."""


def alternatives(words: Iterable[str]) -> str:
    """A pattern of any of the words, the longest first."""
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


# A point before three digits parts thousands in some countries: "1.200" equals itself alone.
_PARTED: Final = regex.compile(r"[1-9]\d{0,2}\.\d{3}")
_THOUSANDS: Final = regex.compile(r"[,'’](?=\d{2,3}(?:\D|$))")
_EUROPEAN: Final = regex.compile(r"\d{1,3}(?:\.\d{3})+,\d{1,2}|\d{1,3}(?:\.\d{3}){2,}")
DIGITS: Final = (
    r"\d{1,3}(?:[,']\d{3})+(?:\.\d+)?(?!\d)"  # 1,200.50 and 1'200.50
    r"|\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?(?!\d)"  # 1,20,000 as in India
    r"|\d{1,3}(?:\.\d{3})+,\d{1,2}(?!\d)|\d{1,3}(?:\.\d{3}){2,}(?![\d.])"  # 1.200,50 and 1.200.000
    r"|\d+(?:[.,]\d+)?"
)
_NUMBER_WORD: Final = alternatives([*NUMBER_WORDS, *MULTIPLIERS])
SPELLED: Final = rf"(?:{_NUMBER_WORD})(?:[\s-]+(?:and\s+)?(?:{_NUMBER_WORD}))*"
SCALES: Final = alternatives([*SUFFIXES, *MULTIPLIERS])
ZH_NUMBER: Final = rf"[{''.join([*ZH_DIGITS, *ZH_POWERS])}]+半?"
ZH_SCALE: Final = "[百千万萬亿億]"
WORDS_OF_NUMBERS: Final = NUMBER_WORDS.keys() | MULTIPLIERS.keys() | ZH_DIGITS.keys() | ZH_POWERS.keys()


def value(digits: str | None, scale: str | None, spelled: str | None, zh: str | None) -> Decimal | str:
    """What was written, as a number; as text where it is no number that can be told."""
    if digits:
        found = decimal(digits)
        factor = 1
        for letter in (scale or "").lower().split() or [""]:
            factor *= SUFFIXES.get(letter) or MULTIPLIERS.get(letter) or ZH_POWERS.get(letter) or 1
        return found if factor == 1 or isinstance(found, str) else times(found, factor)
    if spelled:
        return Decimal(spelled_out(spelled))
    return zh_value(zh or "")


def decimal(digits: str) -> Decimal | str:
    """ "1,200.50", "1.200,50" and "1200.5" are equal; a lone comma before other than three digits is a point."""
    if len(digits) > _LONGEST or _PARTED.fullmatch(digits):
        return digits
    plain = digits.replace(" ", "")
    if _EUROPEAN.fullmatch(plain):
        plain = plain.replace(".", "")
    plain = _THOUSANDS.sub("", plain) if plain.count(",") > 1 or _grouped(plain) else plain
    try:
        return Decimal(plain.replace(",", ".").replace("'", ""))
    except InvalidOperation:
        return digits


def _grouped(plain: str) -> bool:
    """Whether the only comma parts thousands."""
    before, comma, after = plain.partition(",")
    return bool(comma) and 1 <= len(before) <= 3 and len(after.partition(".")[0]) == 3


def times(number: Decimal, factor: Decimal | float) -> Decimal:
    return _EXACT.multiply(number, factor if isinstance(factor, Decimal) else Decimal(str(factor)))


def text(number: Decimal | str) -> str:
    """One form for equal numbers: 1200.50 and 1200.5, 1E+3 and 1000."""
    if isinstance(number, str):
        return f"'{number}'"
    plain = f"{number:f}"
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"


def spelled_out(words: str) -> int:
    """ "two hundred and fifty thousand" -> 250000. Words that follow one another like digits are joined: "nineteen
    eighty four" -> 1984."""
    total = current = 0
    for word in regex.split(r"[\s-]+", words.lower()):
        if word in NUMBER_WORDS:
            number = NUMBER_WORDS[word]
            joins = current % 100 == 0 or (current % 10 == 0 and current % 100 >= 20 and number < 10)
            current = current + number if joins else current * (100 if number >= 10 else 10) + number
        elif word == "hundred":
            current = max(current, 1) * 100
        elif word in MULTIPLIERS:
            total += max(current, 1) * MULTIPLIERS[word]
            current = 0
    return total + current


def zh_value(written: str) -> Decimal:
    """ "三百二十万" -> 3200000, "一万二" -> 12000, "两点五" is read with its digits, "三个半" by its unit."""
    half = Decimal("0.5") if written.endswith("半") else Decimal(0)
    plain = written.removesuffix("半")
    if not any(letter in ZH_POWERS for letter in plain):
        return (Decimal("".join(str(ZH_DIGITS[letter]) for letter in plain)) if plain else Decimal(0)) + half
    total = section = digit = 0
    last = 1
    for letter in plain:
        if letter in ZH_DIGITS:
            digit = ZH_DIGITS[letter]
            if digit == 0:
                last = 1
        elif (power := ZH_POWERS[letter]) >= 10_000:
            total = (total + section + digit or 1) * power if power >= 10**8 else total + (section + digit or 1) * power
            section = digit = 0
            last = power
        else:
            section += (digit or 1) * power
            digit = 0
            last = power
    # A digit at the end counts the next lower power: 三百五 is 350, 一万二 is 12,000.
    return Decimal(total + section + digit * (last // 10 if last > 10 else 1)) + half
