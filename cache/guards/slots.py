"""Slot guard: typed values with normalised contents.

A hard type (id, e-mail, phone, amount, quantity, date, ...) has to hold the same values on both sides; a value on
one side only is a veto too. Soft types (names, currencies without an amount, "one") count only where both sides
have some. Values are compared in base units: 1,200 EUR = 1200 euro, two weeks = 14 days, 50 mg is not 50 mcg.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation

import regex

from cache.guards import lexicon
from cache.guards.units import (
    CURRENCIES,
    MONTHS,
    MULTIPLIERS,
    NUMBER_WORDS,
    SUFFIXES,
    UNITS,
    WEEKDAYS,
    ZH_DIGITS,
    ZH_POWERS,
)
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "slots"
SOFT = frozenset({"currency", "unit number", "name"})

Slots = dict[str, set[str]]


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(regex.escape(word) for word in sorted(words, key=len, reverse=True))


_PARTED = regex.compile(r"[1-9]\d{0,2}\.\d{3}")
_UNSURE = Decimal("1e-9")
_DIGITS = r"\d{1,3}(?:[,\u00a0\u202f]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_NUMBER_WORD = _alternatives([*NUMBER_WORDS, *MULTIPLIERS])
_SPELLED = rf"(?:{_NUMBER_WORD})(?:[\s-]+(?:and\s+)?(?:{_NUMBER_WORD}))*"
_SCALE = _alternatives([*SUFFIXES, *MULTIPLIERS])
_ZH_NUMBER = rf"[{''.join([*ZH_DIGITS, *ZH_POWERS])}]+"
_NUMBER = (
    rf"(?<![\p{{Latin}}\p{{N}}.,])(?:(?P<digits>{_DIGITS})(?:\s?(?P<scale>{_SCALE})\b)?"
    rf"|(?P<spelled>\b{_SPELLED}\b)|(?P<zh>{_ZH_NUMBER}))"
)
_XNUMBER = _NUMBER.replace("?P<", "?P<x")
_NOT_IN_WORD = r"(?![\p{Latin}\p{N}])"
_MONTH = _alternatives(MONTHS)
_CURRENCY = _alternatives(CURRENCIES)
_UNIT = _alternatives(UNITS)

_QUOTED = regex.compile(
    r'"([^"\n]{1,200})"|\u201c([^\u201d\n]{1,200})\u201d|\u300c([^\u300d\n]{1,200})\u300d|\u300e([^\u300f\n]{1,200})\u300f'
)
_EMAIL = regex.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = regex.compile(r"(?:https?://|www\.)[^\s<>\"]+")
_PHONE = regex.compile(
    r"(?<![\p{Latin}\p{N}.])(?:\+\d[\d\s().-]{6,}\d|\(?0\d{1,4}\)?[\s.-]\d[\d\s.-]{4,}\d|1[3-9]\d{9}(?!\d))"
)
_DATE = regex.compile(
    rf"(?<![\p{{Latin}}\p{{N}}.-])(?:(?P<y>\d{{4}})-(?P<m>\d{{1,2}})-(?P<d>\d{{1,2}})(?!\d)"
    rf"|(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?(?P<m1>{_MONTH})\b\.?(?:,?\s+(?P<y1>\d{{4}}))?"
    rf"|\b(?P<m2>{_MONTH})\.?\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:])\b(?:,?\s+(?P<y2>\d{{4}}))?"
    rf"|(?P<y3>\d{{4}})年(?:(?P<m3>\d{{1,2}})月(?:(?P<d3>\d{{1,2}})[日号號])?)?|(?P<m4>\d{{1,2}})月(?:(?P<d4>\d{{1,2}})[日号號])?"
    rf"|\b(?P<m5>{_MONTH})\s+(?P<y5>\d{{4}})\b|(?P<slash>\d{{1,4}}/\d{{1,2}}(?:/\d{{2,4}})?)(?![\d/]))"
)
_TIME = regex.compile(
    r"(?<![\p{Latin}\p{N}.:])(?:(?P<h>\d{1,2}):(?P<m>\d{2})(?:\s?(?P<half>[ap])\.?m\b\.?)?|(?P<h2>\d{1,2})(?:\.(?P<m2>\d{2}))?\s?(?P<half2>[ap])\.?m\b\.?|(?P<word>noon|midday|midnight)\b)"
)
_VERSION = regex.compile(r"(?<![\p{Latin}\p{N}.])(?:v\d+(?:\.\d+)*|\d+\.\d+\.\d+(?:[.-]\w+)*)\b")
_AMOUNT = regex.compile(rf"(?P<before>{_CURRENCY})\s?{_NUMBER}|{_XNUMBER}\s?(?P<after>{_CURRENCY}){_NOT_IN_WORD}")
_QUANTITY = regex.compile(rf"{_NUMBER}[\s-]?(?P<unit>{_UNIT})(?![\p{{Latin}}\p{{N}}])")
_ID = regex.compile(
    r"(?<![\p{Latin}\p{N}])(?:#\s?\w+|(?=[\w-]*\d)(?=[\w-]*[\p{Latin}])[\p{Latin}\d]+(?:-[\p{Latin}\d]+)*|0\d{4,}|\d+(?:-\d+)+)(?![\p{Latin}\p{N}])"
)
_PLAIN = regex.compile(rf"{_NUMBER}(?P<ordinal>st|nd|rd|th)?(?![\p{{Latin}}\d])")
_DAY = regex.compile(rf"\b(?:{_alternatives(WEEKDAYS)})\b|(?:星期|周|週|礼拜)([一二三四五六日天])")
# "may" and "march" are verbs too, "mar", "sep", "dec" and "jan" parts of other things.
_PLAIN_MONTH = _alternatives(MONTHS.keys() - {"may", "march", "mar", "sep", "dec", "jan"})
_BARE_MONTH = regex.compile(
    rf"\b(?:{_PLAIN_MONTH})\b|(?<=\b(?:in|by|since|until|of|from|this|last|next) )(?:may|march)\b"
)
_CURRENCY_NAME = _alternatives(name for name in CURRENCIES if len(name) > 2 and name != "won")
_BARE_CURRENCY = regex.compile(rf"(?<![\p{{Latin}}])(?:{_CURRENCY_NAME}){_NOT_IN_WORD}")
_QUOTES = frozenset('"\u201c\u300c\u300e')
_NUMBER_PARTS = NUMBER_WORDS.keys() | MULTIPLIERS.keys() | ZH_DIGITS.keys() | ZH_POWERS.keys()
_HOURS = frozenset({"noon", "midday", "midnight"})
_DAYS = WEEKDAYS.keys() | frozenset("周週期拜")
_CURRENCY_SYMBOLS = frozenset(letter for name in CURRENCIES for letter in name if letter == "$" or not letter.isascii())
_SENTENCE = regex.compile(r"(?:^|[.?!:]\s+|\n)\W*(\w)")
_CAPITALISED = regex.compile(r"(?<![\w'])\p{Lu}[\p{L}\p{M}]*(?:['-][\p{L}\p{M}]+)*")


def check(question: Text, cached: Text, language: Language) -> Verdict:
    ours, theirs = extract(question, language), extract(cached, language)
    for kind in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(kind, set()), theirs.get(kind, set())
        if mine == other or (kind in SOFT and not (mine and other)):
            continue
        if kind == "name":
            if _absent(mine, cached) and _absent(other, question):
                return veto(NAME, "name differs")
            continue
        if kind == "quoted" and _quoted_plainly(mine, cached) and _quoted_plainly(other, question):
            continue
        return veto(NAME, f"{kind} differs" if mine and other else f"{kind} on one side only")
    return passed(NAME)


def extract(text: Text, language: Language) -> Slots:
    """The slots of a text by type; what one type has read, the next do not see."""
    slots: Slots = defaultdict(set)
    # Lower case once is several times faster than patterns that ignore case.
    rest, present = text.source.lower(), _present(text)
    for kind, sign, pattern, value in _READERS:
        if sign in present:
            rest = _take(rest, kind, pattern, value, slots)
    if language is Language.ENGLISH:
        slots["name"] = _names(text)
    return {kind: values for kind, values in slots.items() if values}


def _present(text: Text) -> set[str]:
    """Which cheap signs the text shows; a pattern runs only where its sign is."""
    present = {sign for sign in ("@", "/", "www.") if sign in text.source}
    words = text.stems.keys()
    digits = any(character.isdigit() for character in text.source)
    months = not words.isdisjoint(MONTHS)
    if not _QUOTES.isdisjoint(text.source):
        present.add("quotes")
    if digits:
        present.add("digits")
    if digits or any(not _NUMBER_PARTS.isdisjoint(word.split("-")) for word in words):
        present.add("number")
    if digits or months:
        present |= {"date", "month"}
    if digits or not words.isdisjoint(_HOURS):
        present.add("time")
    if not words.isdisjoint(_DAYS):
        present.add("day")
    if not _CURRENCY_SYMBOLS.isdisjoint(text.source) or any(word.strip("0123456789k") in CURRENCIES for word in words):
        present |= {"currency", "amount"}
    return present


def _take(
    rest: str, kind: str, pattern: regex.Pattern[str], value: Callable[[regex.Match[str]], str | None], slots: Slots
) -> str:
    def keep(match: regex.Match[str]) -> str:
        found = value(match)
        if found is None:
            return str(match.group())
        slots["unit number" if kind == "number" and found == "1" else kind].add(found)
        # What stands in quotes is read by the other types as well: the other text may have it without quotes.
        return str(match.group()) if kind == "quoted" else " \u2022 "

    return str(pattern.sub(keep, rest))


def _number(match: regex.Match[str], prefix: str = "") -> Decimal | None:
    groups = match.groupdict()
    if digits := groups.get(f"{prefix}digits"):
        value = _decimal(digits)
        scale = groups.get(f"{prefix}scale")
        if value is not None and scale:
            value *= SUFFIXES.get(scale.lower(), MULTIPLIERS.get(scale.lower(), 1))
        return value
    if spelled := groups.get(f"{prefix}spelled"):
        return Decimal(_spelled(spelled))
    if zh := groups.get(f"{prefix}zh"):
        return Decimal(_zh_number(zh))
    return None


def _decimal(digits: str) -> Decimal | None:
    """ "1,200.50" and "1200.5" are equal; a single comma before other than three digits is a decimal point.

    A point before three digits parts thousands in some countries: "1.200" equals itself alone.
    """
    plain = regex.sub(r"[\u00a0\u202f]", "", digits)
    plain = regex.sub(r",(?=\d{3}(?:\D|$))", "", plain).replace(",", ".")
    try:
        return Decimal(plain) + (_UNSURE if _PARTED.fullmatch(digits) else 0)
    except InvalidOperation:
        return None


def _spelled(words: str) -> int:
    total = current = 0
    for word in regex.split(r"[\s-]+", words.lower()):
        if word in NUMBER_WORDS:
            current += NUMBER_WORDS[word]
        elif word == "hundred":
            current = max(current, 1) * 100
        elif word in MULTIPLIERS:
            total += max(current, 1) * MULTIPLIERS[word]
            current = 0
    return total + current


def _zh_number(text: str) -> int:
    if not any(character in ZH_POWERS for character in text):
        return int("".join(str(ZH_DIGITS[character]) for character in text))
    total = section = digit = 0
    for character in text:
        if character in ZH_DIGITS:
            digit = ZH_DIGITS[character]
        elif ZH_POWERS[character] >= 10_000:
            total += (section + digit or 1) * ZH_POWERS[character]
            section = digit = 0
        else:
            section += (digit or 1) * ZH_POWERS[character]
            digit = 0
    return total + section + digit


def _text(value: Decimal | float) -> str:
    return f"{float(value):.12g}"


def _amount(match: regex.Match[str]) -> str | None:
    currency = match["before"] or match["after"]
    value = _number(match) if match["before"] else _number(match, "x")
    return None if value is None else f"{CURRENCIES[currency.lower()]} {_text(value)}"


def _quantity(match: regex.Match[str]) -> str | None:
    value = _number(match)
    dimension, factor = UNITS[match["unit"].lower()]
    return None if value is None else f"{dimension} {_text(float(value) * factor)}"


def _plain(match: regex.Match[str]) -> str | None:
    value = _number(match)
    return None if value is None else _text(value)


def _date(match: regex.Match[str]) -> str:
    if match["slash"]:
        return str(match["slash"])
    year = match["y"] or match["y1"] or match["y2"] or match["y3"] or match["y5"] or ""
    month = match["m"] or match["m1"] or match["m2"] or match["m3"] or match["m4"] or match["m5"] or ""
    day = match["d"] or match["d1"] or match["d2"] or match["d3"] or match["d4"] or ""
    number = MONTHS.get(month.lower()) or int(month or 0)
    return f"{year}-{number or ''}-{int(day) if day else ''}"


def _time(match: regex.Match[str]) -> str:
    if match["word"]:
        return "0:0" if match["word"].lower() == "midnight" else "12:0"
    hour, minute = int(match["h"] or match["h2"]), int(match["m"] or match["m2"] or 0)
    half = (match["half"] or match["half2"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour}:{minute}"


def _weekday(match: regex.Match[str]) -> str:
    if match[1]:
        return f"weekday {'一二三四五六日'.find(match[1].replace('天', '日')) + 1}"
    return f"weekday {WEEKDAYS[match.group().lower()]}"


def _same(match: regex.Match[str]) -> str:
    return str(match.group()).casefold().strip("# ")


def _first_group(match: regex.Match[str]) -> str:
    return " ".join(next(group for group in match.groups() if group is not None).casefold().split())


def _phone(match: regex.Match[str]) -> str:
    return "".join(filter(str.isdigit, match.group()))


def _month(match: regex.Match[str]) -> str:
    return f"-{MONTHS[match.group().lower()]}-"


def _currency(match: regex.Match[str]) -> str:
    return CURRENCIES[match.group().lower()]


_READERS: tuple[tuple[str, str, regex.Pattern[str], Callable[[regex.Match[str]], str | None]], ...] = (
    ("quoted", "quotes", _QUOTED, _first_group),
    ("e-mail", "@", _EMAIL, _same),
    ("url", "/", _URL, _same),
    ("url", "www.", _URL, _same),
    ("date", "date", _DATE, _date),
    ("time", "time", _TIME, _time),
    ("version", "digits", _VERSION, lambda match: match.group().lower().removeprefix("v")),
    ("phone", "digits", _PHONE, _phone),
    ("amount", "amount", _AMOUNT, _amount),
    ("quantity", "number", _QUANTITY, _quantity),
    ("id", "digits", _ID, _same),
    ("number", "number", _PLAIN, _plain),
    ("date", "day", _DAY, _weekday),
    ("date", "month", _BARE_MONTH, _month),
    ("currency", "currency", _BARE_CURRENCY, _currency),
)


def _names(text: Text) -> set[str]:
    """Capitalised words that do not begin a sentence; none where capitals say nothing (ALL CAPS, Title Case)."""
    letters = [word for word in text.cased if word[0].isalpha()]
    capitals = sum(word[0].isupper() for word in letters)
    if len(letters) > 3 and capitals > 0.7 * len(letters):
        return set()
    starts = {match.start(1) for match in _SENTENCE.finditer(text.source)}
    return {
        word
        for match in _CAPITALISED.finditer(text.source)
        if match.start() not in starts
        and (word := match.group().casefold().removesuffix("'s")) not in lexicon.EN_FUNCTION
        and word not in MONTHS
        and word not in WEEKDAYS
        and word not in CURRENCIES
    }


def _absent(names: set[str], other: Text) -> bool:
    return any(name not in other.words for name in names)


def _quoted_plainly(quoted: set[str], other: Text) -> bool:
    plain = " ".join(other.source.casefold().split())
    return all(value in plain for value in quoted)
