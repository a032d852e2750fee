"""What a cell of SpreadsheetML shows: its cached value under its format (ECMA-376 part 1, 18.3.1.4 and 18.8)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from indexing.parse.package import Element, attribute, child, children, local

# Formats that Excel has without naming them; those of 27 to 58 are dates in East Asian editions.
_BUILT_IN_DATES: Final = frozenset({14, 15, 16, 17, 22, *range(27, 32), 36, *range(50, 59)})
_BUILT_IN_TIMES: Final = frozenset({18, 19, 20, 21, 32, 33, 34, 35, 45, 46, 47})
_BUILT_IN_PERCENT: Final = frozenset({9, 10})
_LITERALS = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]|am/pm|a/p', re.IGNORECASE)
_EPOCH: Final = datetime(1899, 12, 30)
_EPOCH_1904: Final = datetime(1904, 1, 1)
_DAY_S: Final = 86_400
_MAX_DAY: Final = 2_958_466
"""The first day of the year 10000."""


class Format(NamedTuple):
    """What a number stands for: `date`, `time` or both, the time of day or a duration; or a share."""

    date: bool = False
    time: bool = False
    duration: bool = False
    percent: bool = False


class Styles(NamedTuple):
    formats: Sequence[Format]
    since_1904: bool = False


def read_styles(root: Element | None, *, since_1904: bool) -> Styles:
    """The format of each style index that cells refer to."""
    own: dict[int, Format] = {}
    for item in children(child(root, "numFmts"), "numFmt"):
        identifier = attribute(item, "numFmtId") or ""
        if identifier.isdecimal():
            own[int(identifier)] = format_of(attribute(item, "formatCode") or "")
    formats = []
    for item in children(child(root, "cellXfs"), "xf"):
        identifier = attribute(item, "numFmtId") or "0"
        number = int(identifier) if identifier.isdecimal() else 0
        formats.append(own.get(number) or _built_in(number))
    return Styles(formats, since_1904)


def format_of(code: str) -> Format:
    """What a format code makes of a number; only its first section counts, that for positive numbers."""
    bare = _LITERALS.sub("", code.partition(";")[0]).lower()
    if bare in {"", "general", "@"}:
        return Format()
    duration = "[h" in bare or "[m" in bare or "[s" in bare
    time = duration or "h" in bare or "s" in bare
    date = not duration and ("d" in bare or "y" in bare or ("m" in bare and not time) or bare.count("m") > 2)
    return Format(date, time, duration, "%" in bare and not (date or time))


def _built_in(number: int) -> Format:
    date, time = number in _BUILT_IN_DATES, number in _BUILT_IN_TIMES
    return Format(date, time or number == 22, number == 46, number in _BUILT_IN_PERCENT)


def shown(kind: str, text: str, style: int, strings: Sequence[str], styles: Styles) -> str:
    """The text of a value `text` of a cell of the type `kind` ("n", "s", "str", "b", "e", "d")."""
    if kind == "s":
        return strings[int(text)] if text.isdecimal() and int(text) < len(strings) else ""
    if kind == "b":
        return "TRUE" if text.strip() in {"1", "true"} else "FALSE"
    if kind == "d":
        return text.strip().replace("T", " ").removesuffix(" 00:00:00")
    if kind != "n":
        return text
    try:
        value = float(text)
    except ValueError:
        return text
    return number(value, styles.formats[style] if 0 <= style < len(styles.formats) else Format(), styles.since_1904)


def number(value: float, style: Format, since_1904: bool) -> str:
    """A number as its format has it: dates and times as in ISO 8601, with a blank between them."""
    if not math.isfinite(value):
        return ""
    if style.duration:
        minutes, seconds = divmod(round(value * _DAY_S), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"
    if (style.date or style.time) and 0 <= value < _MAX_DAY:
        return _moment(value, style, since_1904)
    return f"{_plain(value * 100)}%" if style.percent else _plain(value)


def _moment(value: float, style: Format, since_1904: bool) -> str:
    # Excel counts a 29 February 1900, so that the days before it are one off.
    days = value + 1 if not since_1904 and 0 < value < 60 and style.date else value
    moment = (_EPOCH_1904 if since_1904 else _EPOCH) + timedelta(seconds=round(days * _DAY_S))
    clock = moment.strftime("%H:%M:%S") if moment.second else moment.strftime("%H:%M")
    if not style.date or (value < 1 and style.time):
        return clock
    return f"{moment:%Y-%m-%d} {clock}" if style.time and clock != "00:00" else f"{moment:%Y-%m-%d}"


def _plain(value: float) -> str:
    """Without the digits that no double holds: 0.1 + 0.2 is "0.3"."""
    if value == round(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.15g}"


def rich_text(element: Element) -> str:
    """The text of a shared or inline string, without readings (`rPh`)."""
    pieces = []
    for item in element:
        name = local(item)
        if name == "t":
            pieces.append(item.text or "")
        elif name == "r":
            pieces.extend(part.text or "" for part in item if local(part) == "t")
    return "".join(pieces)
