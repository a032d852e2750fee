"""Dates, times of day and relative dates, in one form for each.

A date is `year-month-day` with what is missing left out. Where day and month cannot be told apart ("3/4/2025") the
text equals itself alone, and neither of its readings.
"""

from __future__ import annotations

from typing import Final

import regex

from cache.guards.numbers import alternatives
from cache.guards.rules import VALUES
from cache.guards.units import MONTHS, NUMBER_WORDS, ORDINALS, WEEKDAYS

_MONTH: Final = alternatives(MONTHS)
_ORDINAL: Final = alternatives([*ORDINALS, "thirteenth", "fourteenth", "fifteenth", "twentieth", "thirtieth"])
_MORE_ORDINALS: Final = ORDINALS | {
    "thirteenth": 13,
    "fourteenth": 14,
    "fifteenth": 15,
    "twentieth": 20,
    "thirtieth": 30,
}

DATE: Final = regex.compile(
    rf"(?<![\p{{Latin}}\p{{N}}.-])(?:(?P<y>\d{{4}})[-/.](?P<m>\d{{1,2}})[-/.](?P<d>\d{{1,2}})(?![\d/])(?:t\d\d:\d\d(?::\d\d)?z?)?"
    rf"|(?:the\s+)?(?P<d1>\d{{1,2}}|\b(?:{_ORDINAL})\b)(?:st|nd|rd|th)?[\s-]+(?:of\s+)?(?P<m1>{_MONTH})\b\.?(?:(?:\s?,|[\s-])\s*(?P<y1>\d{{4}})\b)?"
    rf"|\b(?P<m2>{_MONTH})\.?\s+(?:the\s+)?(?P<d2>\d{{1,2}}|(?:{_ORDINAL})\b)(?:st|nd|rd|th)?(?![\d:])\b(?:(?:\s?,)?\s+(?P<y2>\d{{4}})\b)?"
    rf"|(?P<y3>\d{{4}})年(?:(?P<m3>\d{{1,2}})月(?:(?P<d3>\d{{1,2}})[日号號])?)?|(?P<m4>\d{{1,2}})月(?:(?P<d4>\d{{1,2}})[日号號])?"
    rf"|(?P<zm>[一二三四五六七八九十]{{1,2}})月(?:(?P<zd>[一二三四五六七八九十]{{1,3}})[日号號])"
    rf"|\b(?P<m5>{_MONTH})[\s-]+(?:of\s+)?(?P<y5>\d{{4}})\b|(?P<y6>\d{{4}})-(?P<m6>0[1-9]|1[0-2])(?![\d-])"
    rf"|(?P<n1>\d{{1,2}})(?P<sign>[/.-])(?P<n2>\d{{1,2}})(?P=sign)(?P<n3>\d{{4}}|\d{{2}})(?![\d/.-])|(?P<slash>\d{{1,2}}/\d{{1,2}})(?![\d/]))"
)
_HALVES: Final = {
    "in the morning": "a", "this morning": "a", "tomorrow morning": "a", "in the afternoon": "p", "this afternoon": "p",
    "in the evening": "p", "this evening": "p", "tonight": "p", "at night": "p",
}  # fmt: skip
_HOUR: Final = alternatives(word for word, number in NUMBER_WORDS.items() if 1 <= number <= 12)
TIME: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.:/])(?:(?P<h>\d{1,2}):(?P<m>\d{2})(?::\d{2})?(?:\s?(?P<half>[ap])\.?m\b\.?)?"
    rf"|(?P<h2>\d{{1,2}}|\b(?:{_HOUR})\b)(?:[.:](?P<m2>\d{{2}}))?\s?(?P<half2>[ap])\.?m\b\.?"
    rf"|(?P<h3>\d{{1,2}}|\b(?:{_HOUR})\b)(?:\s?o'?\s?clock)?\s(?P<half3>{alternatives(_HALVES)})\b"
    rf"|(?P<part>half past|quarter past|quarter to)\s(?P<h4>\d{{1,2}}|(?:{_HOUR})\b)(?:\s?(?P<half4>[ap])\.?m\b)?"
    r"|(?P<word>noon|midday|midnight)\b)"
    r"|(?P<zhalf>凌晨|早上|上午|中午|下午|傍晚|晚上)?(?P<zh>\d{1,2}|[一二三四五六七八九十两]{1,3})[点點](?![零一二三四五六七八九]?[个個])(?P<zm>半|\d{1,2}分?)?"
)
WEEKDAY: Final = regex.compile(rf"\b(?:{alternatives(WEEKDAYS)})\b(?:'s)?|(?:星期|周|週|礼拜|禮拜)([一二三四五六日天])")
# "may" and "march" are verbs too, "mar", "sep", "dec" and "jan" parts of other things.
_PLAIN_MONTH: Final = alternatives(MONTHS.keys() - {"may", "march", "mar", "sep", "dec", "jan"})
BARE_MONTH: Final = regex.compile(
    rf"\b(?:{_PLAIN_MONTH})\b|(?<=\b(?:in|by|since|until|of|from|this|last|next) )(?:may|march)\b"
    r"|(?P<zh>[一二三四五六七八九十]{1,2})月(?!份额)"
)
_SPAN: Final = "week|month|year|quarter|weekend|semester|term|season|fiscal year|financial year"
RELATIVE: Final = regex.compile(
    r"\b(?P<day>the day after tomorrow|the day before yesterday|today|tonight|tomorrow|yesterday)\b"
    rf"|\b(?P<which>next|coming|following|last|past|previous|this|current)\s(?P<span>{_SPAN}|{alternatives(WEEKDAYS)})\b"
    rf"|(?P<zh>{alternatives(VALUES.zh_relative)})"
)
_DAYS: Final = {
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
    "yesterday": -1,
    "the day after tomorrow": 2,
    "the day before yesterday": -2,
}
_WHICH: Final = {
    "next": 1,
    "coming": 1,
    "following": 1,
    "last": -1,
    "past": -1,
    "previous": -1,
    "this": 0,
    "current": 0,
}
_ZH: Final = VALUES.zh_relative
_ZH_NUMBERS: Final = {word: number for number, word in enumerate("一二三四五六七八九", 1)} | {"两": 2}
_AFTERNOON: Final = ("下午", "傍晚", "晚上")


def date(match: regex.Match[str]) -> str | None:
    """The canonical date; `None` where the numbers are none."""
    if match["slash"]:
        return str(match["slash"])
    if match["n3"]:
        return _numeric(int(match["n1"]), int(match["n2"]), match["n3"], match["sign"])
    year = _first(match, "y", "y1", "y2", "y3", "y5", "y6")
    month = _first(match, "m", "m1", "m2", "m3", "m4", "m5", "m6")
    day = _first(match, "d", "d1", "d2", "d3", "d4")
    if match["zm"]:
        month, day = str(_zh_small(match["zm"])), str(_zh_small(match["zd"]))
    number = MONTHS.get(month) or int(month or 0)
    when = _MORE_ORDINALS.get(day) or int(day or 0)
    if number > 12 or when > 31:
        return None
    return f"{year}-{number or ''}-{when or ''}"


def _first(match: regex.Match[str], *groups: str) -> str:
    return next((match[group] for group in groups if match[group]), "")


def _numeric(first: int, second: int, year: str, sign: str) -> str | None:
    """ "25/12/2025" and "12/25/2025" have one reading, "3/4/2025" two: it stays as it is written, without zeros."""
    if max(first, second) > 31 or min(first, second) > 12 or 0 in (first, second):
        return None
    if max(first, second) <= 12 and first != second:
        return f"{first}{sign}{second}{sign}{year}"
    day, month = max(first, second), min(first, second)
    return f"{year if len(year) == 4 else '20' + year}-{month}-{day}"


def time(match: regex.Match[str]) -> str | None:
    """Hours and minutes on the clock of 24 hours."""
    if match["word"]:
        return "0:0" if match["word"] == "midnight" else "12:0"
    if match["zh"]:
        return _zh_time(match)
    hour = _first(match, "h", "h2", "h3", "h4")
    minute = int(match["m"] or match["m2"] or 0)
    number = NUMBER_WORDS.get(hour) or int(hour)
    if number > 24 or minute > 59:
        return None
    if match["part"]:
        minute = 30 if match["part"] == "half past" else 15 if match["part"] == "quarter past" else 45
        number -= match["part"] == "quarter to"
    half = match["half"] or match["half2"] or match["half4"] or _HALVES.get(match["half3"] or "")
    if half:
        number = number % 12 + (12 if half == "p" else 0)
    return f"{number}:{minute}"


def _zh_time(match: regex.Match[str]) -> str:
    hour = _zh_small(match["zh"])
    if match["zhalf"] in _AFTERNOON and hour < 12:
        hour += 12
    minutes = match["zm"] or ""
    return f"{hour}:{30 if minutes == '半' else int(minutes.removesuffix('分') or 0)}"


def _zh_small(written: str) -> int:
    """1 to 99 in Chinese characters or digits."""
    if written.isdigit():
        return int(written)
    tens, ten, ones = written.rpartition("十")
    return (_ZH_NUMBERS.get(tens, 1) * 10 if ten else 0) + _ZH_NUMBERS.get(ones, 0)


def weekday(match: regex.Match[str]) -> str:
    if match[1]:
        return f"weekday {'一二三四五六日'.find(match[1].replace('天', '日')) + 1}"
    return f"weekday {WEEKDAYS[match.group().removesuffix(chr(39) + 's')]}"


def month(match: regex.Match[str]) -> str:
    return f"-{_zh_small(match['zh']) if match['zh'] else MONTHS[match.group()]}-"


def relative(match: regex.Match[str]) -> str:
    if match["day"]:
        return f"day {_DAYS[match['day']]}"
    if match["zh"]:
        return _ZH[match["zh"]]
    span = match["span"]
    return f"{f'weekday {WEEKDAYS[span]}' if span in WEEKDAYS else span} {_WHICH[match['which']]}"
