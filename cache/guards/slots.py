"""Slot guard: typed values with normalised contents.

A hard type (id, e-mail, phone, amount, quantity, date, ...) has to hold the same values on both sides; a value on
one side only is a veto too. Soft types (names, currencies without an amount, "one") count only where both sides
have some. Values are compared in base units: 1,200 EUR = 1200 euro, two weeks = 14 days, 50 mg is not 50 mcg.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Final

import regex

from cache.guards import dates, identifiers, lexicon, measures, names
from cache.guards.measures import BEFORE, IN_DIGITS, MARK, NUMBER
from cache.guards.numbers import ZH_NUMBER, alternatives, text, times, value
from cache.guards.signs import signs
from cache.guards.units import CURRENCIES, ORDINALS, TIMES, UNITS
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "slots"
SOFT: Final = frozenset({"currency", "unit number", "name", "times", "early ordinal"})

Slots = dict[str, set[str]]
Value = str | None | tuple[str, ...]

_NOT_IN_WORD: Final = r"(?![\p{Latin}\p{N}])"
_QUOTED: Final = regex.compile(
    r'"([^"\n]{1,200})"|\u201c([^\u201d\n]{1,200})\u201d|\u300c([^\u300d\n]{1,200})\u300d|\u300e([^\u300f\n]{1,200})\u300f'
    r"|`([^`\n]{1,200})`|\u300a([^\u300b\n]{1,200})\u300b|(?<!\w)'(?!s\s)([^\s'](?:[^'\n]{0,198}[^\s'])?)'(?!\w)"
)
_SPAN: Final = regex.compile(
    rf"百分之(?P<share>{ZH_NUMBER}|\d+(?:\.\d+)?)"
    r"|\b(?:within|after|than|under|over|least|most|for|in|about|of) an? "
    r"(?P<one>second|minute|hour|day|week|fortnight|month|year|decade)\b(?!'s)(?! (?:and a|or))"
    r"|\bhalf an? (?P<half>hour|day|year|mile|litre|liter|kilo|pound|kilometre)\b|半(?P<zhalf>小时|小時|天|年|个月)"
)
_END: Final = r"(?:(?P<ordinal>st|nd|rd|th)|s)?(?![\p{Latin}\d])"
_PLAIN: Final = regex.compile(f"{BEFORE}{NUMBER}{_END}")
_PLAIN_DIGITS: Final = regex.compile(rf"(?=\d){BEFORE}{IN_DIGITS}{_END}")
_RANGE: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.,/-])(?P<low>\d{1,4})\s?[-–]\s?(?P<high>\d{1,4})(?![\p{Latin}\p{N}/-])"
)
_ORDINAL: Final = regex.compile(rf"\b(?:{alternatives(ORDINALS)})\b|第(?P<zh>{ZH_NUMBER}|\d+)")
_TIMES: Final = regex.compile(rf"\b(?:{alternatives(TIMES)})\b")
_CURRENCY_NAME: Final = alternatives(
    name for name in CURRENCIES if len(name) > 2 and name not in ("won", "try", "rand", "block")
)
_BARE_CURRENCY: Final = regex.compile(rf"(?<![\p{{Latin}}])(?:{_CURRENCY_NAME}){_NOT_IN_WORD}")
_ZH_NO_NUMBER: Final = regex.compile(alternatives(lexicon.ZH_NO_NUMBER))
_WORD_OR_SIGN: Final = regex.compile(r"\w+|[^\w\s.,;:!?\"\u201c\u201d]")
# Units whose capitals change them: megabytes and megabits, milliwatts and megawatts.
CASED: Final = regex.compile(
    r"(?<=\d ?)(?:[MKGT]b(?:ps|/s)?|[MKGT]B(?:ps|/s)?|mW|MW|mV|MV|mAh|MAh|Mg|mA|MA|mPa|MPa)(?!\w)"
)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    ours, theirs = extract(question, language), extract(cached, language)
    for kind in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(kind, set()), theirs.get(kind, set())
        if mine == other or (kind in SOFT and not (mine and other)):
            continue
        if kind == "name":
            if names.differ(mine, other, question, cached):
                return veto(NAME, "name differs")
            continue
        if kind in SOFT and not (mine - other and other - mine):
            continue
        if kind == "quoted" and _quoted_plainly(mine, cached) and _quoted_plainly(other, question):
            continue
        return veto(NAME, f"{kind} differs" if mine and other else f"{kind} on one side only")
    cased, others = set(CASED.findall(question.source)), set(CASED.findall(cached.source))
    if cased and others and cased != others:
        return veto(NAME, "unit differs")
    return passed(NAME)


def extract(question: Text, language: Language) -> Slots:
    """The slots of a text by type, read once; what one type has read, the next do not see."""
    known = question.memo.get("slots")
    if isinstance(known, dict):
        return known
    slots: Slots = defaultdict(set)
    # Lower case once is several times faster than patterns that ignore case.
    rest, present = question.source.lower(), signs(question)
    if language is Language.CHINESE:
        # The sign is the yen's in English texts.
        rest = _ZH_NO_NUMBER.sub("\u2022", rest).replace("¥", "cny ")
    for kind, sign, pattern, read in _READERS:
        if sign in present:
            rest = _take(rest, kind, pattern, read, slots)
    if "number" in present:
        rest, measured = measures.read(rest, spelled="spelled" in present)
        for kind, single in measured:
            slots[kind].add(single)
    for kind, sign, pattern, read in _LATER_READERS:
        if sign in present:
            rest = _take(rest, kind, pattern, read, slots)
    if language is Language.ENGLISH:
        slots["name"] = names.names(question)
        slots["acronym"] = names.acronyms(question)
        slots["number"] |= names.roman(question)
    found = {kind: values for kind, values in slots.items() if values}
    question.memo["slots"] = found
    return found


def _take(
    rest: str, kind: str, pattern: regex.Pattern[str], read: Callable[[regex.Match[str]], Value], slots: Slots
) -> str:
    def keep(match: regex.Match[str]) -> str:
        found = read(match)
        if found is None:
            return str(match.group())
        for single in (found,) if isinstance(found, str) else found:
            slots[_kind(kind, single, match)].add(single)
        # What stands in quotes is read by the other types as well: the other text may have it without quotes.
        return str(match.group()) if kind == "quoted" else MARK

    return str(pattern.sub(keep, rest))


def _kind(kind: str, single: str, match: regex.Match[str]) -> str:
    """ "One" is often an article, and "first" and "second" are often adverbs or units."""
    if kind == "number":
        return "unit number" if single == "1" else "ordinal" if match.groupdict().get("ordinal") else kind
    if kind == "ordinal":
        return "early ordinal" if single in ("1", "2") and not match["zh"] else kind
    return kind


def _span(match: regex.Match[str]) -> Value:
    if digits := match["share"]:
        number = value(digits, None, None, None) if digits[0].isascii() else value(None, None, None, digits)
        return f"ratio {text(number if isinstance(number, str) else times(number, 0.01))}"
    name = match["one"] or match["half"] or match["zhalf"]
    if name not in UNITS:
        return None
    dimension, factor = UNITS[name]
    return f"{dimension} {text(times(Decimal(1) if match['one'] else Decimal('0.5'), factor))}"


def _plain(match: regex.Match[str]) -> Value:
    number = value(match["digits"], match["scale"] or " ".join(match["zs"] or ""), match["spelled"], match["zh"])
    # 3.1 and 3.10 are one amount, but two versions.
    return text(number) if isinstance(number, str) or match["scale"] or match["zs"] else f"{number:f}"


def _range(match: regex.Match[str]) -> Value:
    return (str(int(match["low"])), str(int(match["high"])))


def _quoted(match: regex.Match[str]) -> str:
    return _words(next(group for group in match.groups() if group is not None))


def _words(plain: str) -> str:
    """Without punctuation: sentences put theirs inside quotes or behind them."""
    return " ".join(_WORD_OR_SIGN.findall(plain.casefold()))


def _ordinal(match: regex.Match[str]) -> str:
    if match["zh"]:
        return text(value(None, None, None, match["zh"]) if not match["zh"].isascii() else match["zh"]).strip("'")
    return str(ORDINALS[match.group()])


_Reader = tuple[str, str, regex.Pattern[str], Callable[[regex.Match[str]], Value]]

_READERS: Final[tuple[_Reader, ...]] = (
    ("quoted", "quotes", _QUOTED, _quoted),
    ("e-mail", "@", identifiers.EMAIL, identifiers.plainly),
    ("url", ".", identifiers.URL, identifiers.url),
    ("file", ".", identifiers.FILE, identifiers.plainly),
    ("address", ".", identifiers.ADDRESS, identifiers.plainly),
    ("account", "mixed", identifiers.IBAN, identifiers.iban),
    ("card", "many digits", identifiers.CARD, identifiers.card),
    ("date", "date", dates.DATE, dates.date),
    ("time", "time", dates.TIME, dates.time),
    ("version", "digits", identifiers.VERSION, identifiers.version),
    ("phone", "many digits", identifiers.PHONE, identifiers.phone),
    ("relative date", "relative", dates.RELATIVE, dates.relative),
    ("date", "day", dates.WEEKDAY, dates.weekday),
    ("date", "month", dates.BARE_MONTH, dates.month),
    ("quantity", "quantity", _SPAN, _span),
)
_LATER_READERS: Final[tuple[_Reader, ...]] = (
    ("id", "mixed", identifiers.ID, identifiers.identifier),
    ("number", "dash", _RANGE, _range),
    ("ordinal", "ordinal", _ORDINAL, _ordinal),
    ("number", "spelled", _PLAIN, _plain),
    ("number", "in digits", _PLAIN_DIGITS, _plain),
    ("times", "times", _TIMES, lambda match: str(TIMES[match.group()])),
    ("currency", "currency", _BARE_CURRENCY, lambda match: CURRENCIES[match.group()]),
)


def _quoted_plainly(quoted: set[str], other: Text) -> bool:
    plain = _words(other.source)
    return all(single in plain for single in quoted)
