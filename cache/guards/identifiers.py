"""Identifiers: e-mail, address on the network, account and card with check digits, telephone, version, file, id."""

from __future__ import annotations

from typing import Final

import regex

EMAIL: Final = regex.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")
_TOP: Final = (
    "com|org|net|edu|gov|io|co|ai|app|dev|info|biz|eu|uk|us|de|fr|es|it|nl|pl|cn|jp|kr|in|au|ca|ch|at|se|no|dk|br|mx|ru"
)
URL: Final = regex.compile(
    rf"(?:https?://|www\.)[^\s<>\"'。，？！、；）]+|(?<![\w@.-])(?:[a-z0-9][a-z0-9-]{{0,62}}\.){{1,4}}(?:{_TOP})(?![\p{{Latin}}\p{{N}}-])(?!\.\w)(?:/[^\s<>\"'。，？！]*)?"
)
ADDRESS: Final = regex.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2}|:\d{1,5})?(?![\w.]\d)")
FILE: Final = regex.compile(
    r"(?<![\w/.])(?:[\w-]+\.)+(?:py|js|ts|json|toml|ya?ml|xml|csv|xlsx?|docx?|pptx?|pdf|txt|md|png|jpe?g|gif|svg|exe|dll|sh|bat|sql|html?|css|zip|gz|tar|conf|cfg|ini|log|env|java|cpp|rs|go)(?![\p{Latin}\p{N}-])(?!\.\w)"
)
IBAN: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}])[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){2,7}(?: ?[a-z0-9]{1,3})?(?![\p{Latin}\p{N}])"
)
CARD: Final = regex.compile(
    r"(?<![\p{L}\p{N}.,-])(?:\d{4}([ -]?)\d{4}\1\d{4}\1\d{1,7}|\d{4}([ -]?)\d{6}\2\d{5})(?![\p{Latin}\p{N}-])"
)
VERSION: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.])(?:(?:version|ver\.?|release|v)\s?\.?\s?(?P<named>\d{1,6}(?:\.\d{1,6}){0,4}(?:[.-][a-z]{1,8}\.?\d{0,4})?)|(?!\d{1,3}(?:\.\d{3})+(?![\d.]))(?P<bare>\d{1,6}\.\d{1,6}\.\d{1,6}(?:[.-]\w{1,12}){0,3}))(?![\w.]\d)(?![\p{Latin}\p{N}])"
)
PHONE: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}.])(?:(?:\+|00)[1-9]\d{0,2}[ ().-]{0,2}(?:\(0\))?\d(?:[ ().-]{0,2}\d){5,13}"
    r"|\(?0\d{1,4}\)?[ .-]\d(?:[ .-]?\d){4,9}"
    r"|1[3-9]\d{9}|(?:1[ .-])?\(\d{3}\) ?\d{3}[ .-]\d{4}|(?:1[ .-])?\d{3}[.-]\d{3}[.-]\d{4})(?![\p{Latin}\p{N}])"
)
ID: Final = regex.compile(
    r"(?<![\p{Latin}\p{N}])(?:# ?\w+(?:-\w+)*"
    r"|(?=[\p{Latin}\d_-]{0,40}\d)(?=[\d_-]{0,40}\p{Latin})[\p{Latin}\d]+(?:[-_/][\p{Latin}\d]+)*"
    r"|0\d{4,}|\d+(?:-\d+){2,}|\d+[-/]\d{5,}|\d{5,}[-/]\d+)(?![\p{Latin}\p{N}])"
)
# "90th", "1990s", "18s" are numbers; "5pm" and "3rd" have readers of their own.
_NO_ID: Final = regex.compile(
    r"\d+(?:st|nd|rd|th|s|k)|(?:\d+[-/])?\d{1,4}-(?:years?|year-olds?|days?|months?|weeks?|hours?|minutes?|mins?|people|person|star|bed|bedroom)(?:-old|-olds)?"
)


def plainly(match: regex.Match[str]) -> str:
    return str(match.group()).casefold().strip("# .")


def url(match: regex.Match[str]) -> str:
    """Without scheme, `www.` and what a sentence puts behind it."""
    found = regex.sub(r"^https?://|^www\.", "", match.group())
    return str(regex.sub(r"^www\.", "", found)).rstrip("/.,;:!?)'")


def iban(match: regex.Match[str]) -> str | None:
    """ISO 13616: the remainder modulo 97 is 1. Without it, only what holds no plain words is an account."""
    groups = match.group().split()
    plain = "".join(groups)
    moved = plain[4:] + plain[:4]
    if 15 <= len(plain) <= 34 and int("".join(str(int(letter, 36)) for letter in moved)) % 97 == 1:
        return plain
    return plain if all(any(letter.isdigit() for letter in group) for group in groups) else None


def card(match: regex.Match[str]) -> str | None:
    """Luhn's sum (ISO/IEC 7812-1). Digits in groups are one number also where the sum is wrong: a slip in a digit."""
    plain = match.group().replace(" ", "").replace("-", "")
    total = 0
    for position, digit in enumerate(reversed(plain)):
        number = int(digit) * (1 + position % 2)
        total += number - 9 if number > 9 else number
    return plain if total % 10 == 0 or len(plain) < len(match.group()) else None


def phone(match: regex.Match[str]) -> str:
    """Digits, with "+" for the prefix of a country; a national number equals no international one."""
    written = match.group().replace("(0)", "")
    digits = "".join(filter(str.isdigit, written))
    return "+" + digits.removeprefix("00") if written[0] == "+" or written.startswith("00") else digits


def version(match: regex.Match[str]) -> str:
    return str(match["named"] or match["bare"])


def identifier(match: regex.Match[str]) -> str | None:
    return None if _NO_ID.fullmatch(match.group()) else plainly(match)
