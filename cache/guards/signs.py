"""Which readers of slots can find anything in a text, by what is cheap to see: a pattern runs only where its sign is.

A sign is what every match of its reader holds. Leaving one out costs time alone; one that asks for too much would lose
values, so a text that is not plain ASCII is asked for less.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

import regex

from cache.guards.numbers import WORDS_OF_NUMBERS
from cache.guards.units import CURRENCIES, MONTHS, ORDINALS, TIMES, WEEKDAYS
from cache.guards.words import Language, Text

_DIGIT: Final = regex.compile(r"\d")
_QUOTES: Final = frozenset('"\u201c\u300c\u300e\u300a`')
_CLOCK: Final = frozenset(
    ["morning", "afternoon", "evening", "tonight", "night", "am", "pm", "a", "p", "o", "clock", "o'clock", "点", "點"]
)
_HOURS: Final = frozenset({"noon", "midday", "midnight", "past", "quarter"})
_DAYS: Final = WEEKDAYS.keys() | frozenset("周週期拜")
_RELATIVE: Final = frozenset(
    [
        "today",
        "tonight",
        "tomorrow",
        "yesterday",
        "next",
        "coming",
        "following",
        "last",
        "past",
        "previous",
        "this",
        "current",
        "天",
        "日",
        "周",
        "週",
        "月",
        "年",
        "季",
    ]
)
_SPANS: Final = frozenset(
    {"hour", "day", "week", "fortnight", "month", "year", "decade", "second", "minute", "半", "百"}
)
_MONTH_SIGN: Final = MONTHS.keys() | {"月"}
_SYMBOLS: Final = frozenset(letter for name in CURRENCIES for letter in name if letter == "$" or not letter.isascii())

# The fewest digits of a telephone number; cards have more.
_MANY: Final = 7
# A digit beside a letter or one of `_/-`, or the first of five: every id and every account has one.
_MIXED: Final = regex.compile(r"\d(?:[\p{Latin}_/-]|\d{4}|(?<=[\p{Latin}_/-]\d))|#")
_PARTED: Final = regex.compile(r"\d[-/.]\d")
_HALF: Final = regex.compile(r"m(?<=[\d\s][ap]\.?m)")
_OF_TIME: Final = (":", "morning", "noon", "evening", "night", "past", "quarter", "midday")
# What stands in every name of a month, and in few other words.
_OF_MONTHS: Final = tuple(name for name in MONTHS if not any(other != name and other in name for other in MONTHS))


def signs(question: Text) -> set[str]:
    """The signs that a text shows, of those that `slots` gives its readers."""
    source = question.source
    words: Set[str] = question.stems.keys()
    if question.language is Language.CHINESE:
        words = words | set(source)
    digits = len(_DIGIT.findall(source))
    shown = {sign for sign in ("@", ".") if sign in source}
    if not _QUOTES.isdisjoint(source) or " '" in source:
        shown.add("quotes")
    if not words.isdisjoint(_SPANS):
        shown.add("quantity")
    if not words.isdisjoint(_DAYS):
        shown.add("day")
    if not words.isdisjoint(_RELATIVE):
        shown.add("relative")
    if not words.isdisjoint(ORDINALS) or "第" in source:
        shown.add("ordinal")
    if not words.isdisjoint(TIMES):
        shown.add("times")
    if not _SYMBOLS.isdisjoint(source) or not words.isdisjoint(CURRENCIES):
        shown.add("currency")
    spelled = not words.isdisjoint(WORDS_OF_NUMBERS) or ("-" in source and _has_compound(words))
    if digits or not words.isdisjoint(_MONTH_SIGN):
        shown |= {"date", "month"}
    if digits or not words.isdisjoint(_HOURS) or (spelled and not words.isdisjoint(_CLOCK)):
        shown.add("time")
    if digits:
        shown |= {"digits", "mixed", "many digits"}
    if digits and ("-" in source or not source.isascii()):
        shown.add("dash")
    if source.isascii():
        shown -= _out_of_the_question(source.lower(), digits)
    if digits or spelled:
        # Where a reader takes something out, or an apostrophe stands, a pattern may see words that are none here.
        sure = source.isascii() and not spelled and "mixed" not in shown and "'" not in source and "@" not in source
        shown |= {"number", "in digits" if sure else "spelled"}
    return shown


def _out_of_the_question(lower: str, digits: int) -> set[str]:
    """Signs that an ASCII text cannot show, whatever its words are."""
    no: set[str] = set()
    if digits < _MANY:
        no.add("many digits")
    if _MIXED.search(lower) is None:
        no.add("mixed")
    if not any(name in lower for name in _OF_MONTHS):
        no.add("month")
        if _PARTED.search(lower) is None:
            no.add("date")
    if not any(part in lower for part in _OF_TIME) and _HALF.search(lower) is None:
        no.add("time")
    return no


def _has_compound(words: Set[str]) -> bool:
    """ "two-week", "twenty-five"."""
    return any(not WORDS_OF_NUMBERS.isdisjoint(word.split("-")) for word in words if "-" in word)
