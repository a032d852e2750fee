"""Numbers with what stands beside them: amounts of money, quantities with a unit, ranges of both.

The numbers are found first and what is beside each is looked up in tables: patterns of every unit and currency would
cost many times as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import regex

from cache.guards.numbers import DIGITS, SCALES, SPELLED, ZH_NUMBER, ZH_SCALE, text, times, value
from cache.guards.units import AMOUNT_SUFFIXES, CENTS, CURRENCIES, UNITS

MARK: Final = " \u2022 "
"""Stands where something was read."""
BEFORE: Final = r"(?<![\p{Latin}\p{N}.,_])"
_SCALED: Final = rf"(?P<digits>{DIGITS})(?:(?: ?(?P<scale>{SCALES})(?![\p{{Latin}}\p{{N}}]))|(?P<zs>{ZH_SCALE}+))?"
NUMBER: Final = rf"(?:{_SCALED}|(?P<spelled>\b(?:{SPELLED})\b)|(?P<zh>{ZH_NUMBER}))"
IN_DIGITS: Final = rf"(?:{_SCALED}|(?P<spelled>(?!))|(?P<zh>(?!)))"
"""The same for texts without numbers in words, which takes a quarter of the time behind `(?=\\d)`."""
_FREE: Final = r"(?<![\p{Latin}\p{N}.,_]|\d-)"
_BEHIND: Final = r"(?<=\d-)\d+(?:\.\d+)?"
_NUMBER: Final = regex.compile(f"{_FREE}{NUMBER}|{_BEHIND}")
_NUMBER_IN_DIGITS: Final = regex.compile(rf"(?=\d)(?:{_FREE}{IN_DIGITS}|{_BEHIND})")
_PLAIN_PART: Final = regex.compile(NUMBER)
# With blanks between the thousands: only where a unit or a currency stands beside it.
_WIDE: Final = regex.compile(r"[1-9]\d{0,2}(?: \d{3})+(?!\d)(?:[.,]\d{1,2}(?!\d))?")
_BESIDE: Final = regex.compile(
    r"\+?(?:\s(?:or|and)\s(?:more|over|above|less|fewer|under))?"
    r"[\s-]?(?:(?P<kind>sq(?:uare)?|cubic)[. ]\s?)?(?P<word>[%°℃$€£¥₹₩¢₺₽₪฿₿](?:[cf](?!\w))?|\p{Latin}+\$"
    r"|\p{Latin}+(?:/\p{Latin}+)?[23]?(?![\p{L}\d])|\p{Han}{1,4})"
)
_LEADING: Final = regex.compile(r"(?:\p{Latin}{0,3}[$€£¥₹₩₺₽₪฿₿]|(?<!\p{L})\p{Latin}{2,8}\.?|\p{Han}{2,3})\s?$")
_TO: Final = regex.compile(r"\s?[-–~至到]\s?|\s(?:to|or|and)\s")
_OLD: Final = regex.compile(r"[\s-]olds?\b|\sof\sage\b")
_AT_AGE: Final = regex.compile(r"\baged?(?: of)?\s$")
_YEARS: Final = frozenset({"year", "years", "yr", "yrs"})
_AGES: Final = frozenset({"岁", "歲", "周岁", "y/o", "yo"})
_POWERS: Final = {2: "area", 3: "cubic"}
# "over-18s" are people, and no seconds.
_OVER: Final = regex.compile(r"(?:over|under|aged)[\s-]$")
_MONEY_SCALE: Final = regex.compile(r" ?([mbt])(?![\p{L}\p{N}])")


@dataclass(frozen=True, slots=True)
class _Found:
    """A number from `start` to `end`, with the currency or unit that stands beside it, if any."""

    start: int
    end: int
    number: Decimal | str
    kind: str
    name: str
    factor: float


def read(rest: str, *, spelled: bool) -> tuple[str, list[tuple[str, str]]]:
    """What is left of a text in lower case, and the amounts, quantities and ages read from it, by type.

    `spelled`: it may hold numbers in words.
    """
    found = list(_numbers(rest, _NUMBER if spelled else _NUMBER_IN_DIGITS))
    values: list[tuple[str, str]] = []
    kept: list[str] = []
    last = 0
    for index, single in enumerate(found):
        beside = single
        if not single.kind:
            following = found[index + 1] if index + 1 < len(found) else None
            # "5 to 10 days", "$5-10": the unit of one bound is that of both.
            if following and following.kind and _TO.fullmatch(rest, single.end, following.start):
                beside = following
            elif (
                index and found[index - 1].kind == "amount" and _TO.fullmatch(rest, found[index - 1].end, single.start)
            ):
                beside = found[index - 1]
            else:
                continue
        values.append(_value(single.number, beside))
        kept += (rest[last : single.start], MARK)
        last = single.end
    return "".join((*kept, rest[last:])), values


def _value(number: Decimal | str, beside: _Found) -> tuple[str, str]:
    scaled = text(number if isinstance(number, str) or beside.factor == 1 else times(number, beside.factor))
    return beside.kind, scaled if beside.kind == "number" else f"{beside.name} {scaled}"


def _numbers(rest: str, pattern: regex.Pattern[str]) -> Iterator[_Found]:
    position = 0
    while match := pattern.search(rest, position):
        single = _wide(rest, match) or _beside(rest, match.start(), match.end(), _worth(match))
        position = max(single.end, match.end())
        yield single


def _worth(match: regex.Match[str]) -> Decimal | str:
    if not (match["digits"] or match["spelled"] or match["zh"]):
        return value(match.group(), None, None, None)
    return value(match["digits"], match["scale"] or " ".join(match["zs"] or ""), match["spelled"], match["zh"])


def _wide(rest: str, match: regex.Match[str]) -> _Found | None:
    wide = _WIDE.match(rest, match.start())
    if wide is None:
        return None
    found = _beside(rest, wide.start(), wide.end(), value(wide.group(), None, None, None))
    return found if found.kind else None


def _beside(rest: str, start: int, end: int, number: Decimal | str) -> _Found:
    """The number with its currency in front, or its unit or currency behind."""
    if (leading := _LEADING.search(rest, max(0, start - 9), start)) and (
        code := _currency(leading.group().strip(" ."))
    ):
        if scale := _MONEY_SCALE.match(rest, end):
            if not isinstance(number, str):
                number = times(number, AMOUNT_SUFFIXES[scale[1]])
            end = scale.end()
        # "EUR 5 EUR" and "$5 million" have been read so far; a name behind as well only repeats the one in front.
        behind = _BESIDE.match(rest, end)
        if behind and _currency(behind["word"]) == code:
            end = behind.end()
        return _Found(leading.start(), end, number, "amount", code, 1.0)
    behind = _BESIDE.match(rest, end)
    if behind is None:
        return _Found(start, end, number, "", "", 1.0)
    word, stop = behind["word"], behind.end()
    if word[0] >= "\u2e80":
        word = next((word[:length] for length in range(len(word), 0, -1) if _is_known(word[:length])), "")
        stop = behind.start("word") + len(word)
    elif behind["kind"] and UNITS.get(word, ("",))[0] == "length":
        power = 3 if behind["kind"] == "cubic" else 2
        return _Found(start, stop, number, "quantity", _POWERS[power], UNITS[word][1] ** power)
    elif word == "s" and _OVER.search(rest, max(0, start - 6), start):
        return _Found(start, stop, number, "number", "", 1.0)
    return _named(rest, start, end, stop, number, word)


def _named(rest: str, start: int, end: int, stop: int, number: Decimal | str, word: str) -> _Found:
    if word in CURRENCIES:
        return _Found(start, stop, number, "amount", CURRENCIES[word], 1.0)
    if word in CENTS or word == "p":
        return _Found(start, stop, number, "amount", CENTS.get(word, "GBP"), 0.01)
    if word in _AGES:
        return _Found(start, stop, number, "number", "", 1.0)
    if word in _YEARS and (old := _OLD.match(rest, stop)):
        return _Found(start, old.end(), number, "number", "", 1.0)
    if word in _YEARS and _AT_AGE.search(rest, max(0, start - 8), start):
        return _Found(start, stop, number, "number", "", 1.0)
    if word in UNITS:
        dimension, factor = UNITS[word]
        return _Found(start, stop, number, "quantity", dimension, factor)
    return _Found(start, end, number, "", "", 1.0)


def _currency(name: str) -> str | None:
    if found := CURRENCIES.get(name):
        return found
    # "人民币200": any of the last characters may end a name.
    return CURRENCIES.get(name[-1:]) if name[-1:] in "$€£¥₹₩₺₽₪฿₿" and name else None


def _is_known(word: str) -> bool:
    return word in UNITS or word in CURRENCIES or word in CENTS or word in _AGES
