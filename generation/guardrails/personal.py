"""Personal data in text: e-mail addresses, telephone, account (IBAN) and card numbers, by their shape and check digits.

Text is looked through run by run: a run is a stretch that may hold one such item whole, and whether it ends is known
from the word behind it. So what is found does not depend on how a stream was cut. In doubt it counts: a masked order
number costs less than a number that leaves. What has no such shape (a name, a street, a telephone number of a few
digits without a word like "phone" before it) is not found: this is no anonymiser.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from generation.guardrails.folding import UNSPACED, Folded, fold
from tenancy.contract import PersonalKind

CONTEXT: Final = 24
"""Characters before a run that say what its number is ("phone: ")."""

_PART: Final = rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}@._%+'&/()-]"
_PIECE: Final = regex.compile(rf"(?P<word>(?:{_PART})+)|(?P<gap>\s+)|(?P<stop>.)", regex.DOTALL)
_GAP: Final = regex.compile(r"[^\S\n]*\n?[^\S\n]*")
_LONGEST_GAP: Final = 3
_DIGIT: Final = regex.compile(r"\d")
_BLANK: Final = "\0"
_OPENING: Final = regex.compile(r"[+(]+")
_NUMERIC: Final = regex.compile(r"\d|\A[+(]")
_HINT: Final = regex.compile(r"[\d@]")
_HINT_OPENING: Final = regex.compile(r"[\d+(]")

_LATIN: Final = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{M}\p{N}"
_AT: Final = regex.compile(r"@")
# Backwards from the sign: from every letter on, forwards, would take the square of a long word.
_LOCAL: Final = regex.compile(rf"(?r)[{_LATIN}._%+'&/-]+")
_DOMAIN: Final = regex.compile(rf"(?:[{_LATIN}_-]+\.)+\p{{L}}[{_LATIN}-]*(?<!-)")
_IBAN_HEAD: Final = regex.compile(r"[a-z]{2}\d{2}")
_IBAN: Final = regex.compile(r"[a-z]{2}\d{2}(?:[\s.-]?[a-z0-9]){11,30}")
_IBAN_GROUPED: Final = regex.compile(r"(?<![\p{L}\p{N}])[a-z]{2}\d{2}(?:[\s.-][a-z0-9]{0,3}\d[a-z0-9]{0,3}){3,7}")
_SHORT: Final = regex.compile(r"[a-z0-9]{1,4}[.)]?")
_NUMBER: Final = regex.compile(r"\d+")
_BETWEEN: Final = regex.compile(r"[\s.-]{1,3}")
_DATE: Final = regex.compile(
    r"(?<!\d)\d{1,2}([./-])\d{1,2}\1(?:19|20)\d{2}(?!\d)|(?<!\d)(?:19|20)\d{2}([./-])\d{1,2}\2\d{1,2}(?!\d)"
)
_SHORT_DATE: Final = regex.compile(r"\(?\d{1,2}([./-])\d{1,2}\1\d{2}\)?")
_SEP: Final = r"[\s.()/-]"
_TELEPHONE: Final = regex.compile(
    rf"(?<!\p{{N}})(?:\+\s?|00(?=[1-9]))\(?\d(?:{_SEP}{{0,4}}\d){{6,14}}(?!\d)"  # international
    rf"|(?<![\p{{N}}.,+-])\(?0\d{{1,5}}\)?{_SEP}{{1,3}}\d(?:[\s./-]{{0,3}}\d){{3,10}}(?!\d)"  # with its zero
    r"|(?<![\p{N}.,+-])0[1-9]\d{8,10}(?!\d)"
    r"|(?<![\p{N}.,+-])1[3-9]\d[\s-]?\d{4}[\s-]?\d{4}(?!\d)"  # Chinese mobile
    r"|(?<![\p{N}.,+-])(?:1[\s.-])?(?:\([2-9]\d{2}\)\s?|[2-9]\d{2}[.-])\d{3}[\s.-]\d{4}(?!\d)"  # NANP
)
_NAMED: Final = regex.compile(
    r"(?:(?<!\p{L})(?:(?:tele)?phone|tel|fax|mobile?|cell|handy|telefon|rufnummer|whatsapp)|电话|手机|传真|座机)"
    r"(?:\s?(?:no|nr|number|nummer|号码?))?[\s.:：=#(-]{0,4}(?:(?:is|ist|lautet|是|为)\s?)?\Z"
)
_NAMED_NUMBER: Final = regex.compile(r"(?<!\d)\(?\d(?:[\s./()-]{0,3}\d){4,14}(?!\d)")


@dataclass(frozen=True, slots=True)
class Item:
    """One item: `start` and `end` are its place in the text, `value` what is equal however it is written."""

    kind: PersonalKind
    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of a folded text."""

    start: int
    end: int


def find(text: str, kinds: Collection[PersonalKind]) -> list[Item]:
    """The items of `kinds` in `text`, in order; none overlaps another."""
    folded = fold(text)
    found: list[Item] = []
    if not _HINT.search(folded.text):
        return found
    for run in runs(folded, 0, complete=True)[0]:
        found += items(folded, run, kinds)
    return found


def runs(folded: Folded, begin: int, *, complete: bool) -> tuple[list[Run], int]:
    """The runs from `begin` on whose end is known, and where the first one begins whose end is not."""
    text = folded.text if complete else folded.text[: folded.sure]
    found: list[Run] = []
    start, so_far, gap = begin, _NOTHING, ""

    def end(at: int) -> None:
        nonlocal start, so_far, gap
        if at > start:
            found.append(Run(start, at))
        start, so_far, gap = at, _NOTHING, ""

    for piece in _PIECE.finditer(text, begin):
        word = piece["word"]
        if word:
            open_word = not complete and piece.end() == len(text)
            joins = so_far.goes_on(gap) if open_word else so_far.goes_on_with(gap, word)
            if so_far is not _NOTHING and not joins:
                end(piece.start())
            if open_word:
                # More letters may follow, so that nothing is known of this word.
                if so_far is _NOTHING:
                    end(piece.start())
                return found, start
            so_far, gap = _so_far(word, so_far.account), ""
        elif piece["gap"] and so_far is not _NOTHING:
            gap = piece.group()
        else:
            end(piece.end())
    if complete or not so_far.goes_on(gap):
        end(len(text))
    return found, start


@dataclass(frozen=True, slots=True)
class _SoFar:
    """Of an open run, whether its last word may be part of a number, and whether an account number began in it."""

    numeric: bool
    account: bool

    def goes_on(self, gap: str) -> bool:
        """Whether an item may go on behind `gap`: a few spaces, or one line break."""
        if not (self.numeric or self.account):
            return False
        return gap == " " or (len(gap) <= _LONGEST_GAP and bool(_GAP.fullmatch(gap)))

    def goes_on_with(self, gap: str, word: str) -> bool:
        """Likewise with `word`; in an account number also the letters of a bank ("GB82 WEST 1234")."""
        if not self.goes_on(gap):
            return False
        return bool(_NUMERIC.search(word)) or (self.account and bool(_SHORT.fullmatch(word)))


_NOTHING: Final = _SoFar(numeric=False, account=False)
_WORD: Final = _SoFar(numeric=False, account=False)
_NUMBER_WORD: Final = _SoFar(numeric=True, account=False)
_ACCOUNT: Final = _SoFar(numeric=True, account=True)


def _so_far(word: str, account: bool) -> _SoFar:
    if account:
        return _ACCOUNT
    if not _HINT_OPENING.search(word):
        return _WORD
    if _IBAN_HEAD.search(word):
        return _ACCOUNT
    return _NUMBER_WORD if _DIGIT.search(word) or _OPENING.fullmatch(word) else _WORD


def items(folded: Folded, run: Run, kinds: Collection[PersonalKind]) -> list[Item]:
    """The items in one run, at their places in the raw text."""
    if not _HINT.search(folded.text, run.start, run.end):
        return []
    text = folded.text[run.start : run.end]
    before = folded.text[max(0, run.start - CONTEXT) : run.start]
    taken = _taken(text, before)
    return [
        Item(
            kind,
            folded.raw_start(run.start + start),
            folded.raw_end(run.start + end),
            _value(kind, text[start:end]),
        )
        for kind, start, end in sorted(taken, key=lambda found: found[1])
        if kind in kinds
    ]


def _value(kind: PersonalKind, text: str) -> str:
    return text if kind == "email" else "".join(character for character in text if character.isalnum())


def _taken(text: str, before: str) -> list[tuple[PersonalKind, int, int]]:
    """The items of every kind, whichever are wanted: the digits of a card are no telephone number. What one kind has
    taken is blank to the next.
    """
    taken: list[tuple[PersonalKind, int, int]] = []
    left = text

    def take(kind: PersonalKind, spans: Iterable[tuple[int, int]]) -> None:
        nonlocal left
        for start, end in spans:
            taken.append((kind, start, end))
            left = _blanked(left, start, end)

    take("email", _addresses(left))
    if _DIGIT.search(left):
        take("iban", _accounts(left))
        take("card", _cards(left))
        for date in list(_DATE.finditer(left)):
            left = _blanked(left, *date.span())
        take("phone", _telephones(left))
        take("phone", _named_numbers(left, before))
    return taken


def _blanked(text: str, start: int, end: int) -> str:
    return text[:start] + _BLANK * (end - start) + text[end:]


def _telephones(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _TELEPHONE.finditer(text) if not _SHORT_DATE.fullmatch(match.group()))


def _named_numbers(text: str, before: str) -> Iterator[tuple[int, int]]:
    """Fewer digits, behind a word that says what they are."""
    for match in _NAMED_NUMBER.finditer(text):
        if _NAMED.search((before + text[: match.start()])[-CONTEXT:]):
            yield match.span()


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    last = 0
    for sign in _AT.finditer(text):
        local, domain = _LOCAL.match(text, last, sign.start()), _DOMAIN.match(text, sign.end())
        if local and domain:
            last = domain.end()
            yield local.start(), last


def _accounts(text: str) -> Iterator[tuple[int, int]]:
    """ISO 13616: the remainder modulo 97 is 1. Written in groups with digits it counts with a slip as well."""
    last = 0
    for head in _IBAN_HEAD.finditer(text):
        longest = _IBAN.match(text, head.start())
        if longest is None or head.start() < last:
            continue
        places = range(head.start() + 15, longest.end() + 1)
        ends = [end for end in places if _ends(text, end)]
        valid = [end for end in ends if _mod97("".join(filter(str.isalnum, text[head.start() : end])))]
        grouped = _IBAN_GROUPED.match(text, head.start())
        if valid or grouped:
            last = max(valid) if valid or grouped is None else grouped.end()
            yield head.start(), last


def _ends(text: str, end: int) -> bool:
    """Whether an account may end there: behind a letter or digit, and not before more of the same group."""
    last, following = text[end - 1], text[end : end + 1]
    return last.isalnum() and (not following.isalnum() or (last.isdigit() and following.isalpha()))


def _mod97(account: str) -> bool:
    if not 15 <= len(account) <= 34 or not account.isascii():
        return False
    return int("".join(str(int(character, 36)) for character in account[4:] + account[:4])) % 97 == 1


def _cards(text: str) -> Iterator[tuple[int, int]]:
    """Digits in one or more groups that an issuer of cards could have given, with Luhn's check digit (ISO 7812-1)."""
    groups = [match.span() for match in _NUMBER.finditer(text)]
    number = 0
    while number < len(groups):
        best = number
        digits = ""
        for last in range(number, len(groups)):
            if last > number and not _BETWEEN.fullmatch(text, groups[last - 1][1], groups[last][0]):
                break
            digits += text[slice(*groups[last])]
            if len(digits) > 19:
                break
            if _card(digits) and _grouped([end - start for start, end in groups[number : last + 1]]):
                best = last + 1
        if best > number:
            yield groups[number][0], groups[best - 1][1]
        number = max(best, number + 1)


def _grouped(lengths: Sequence[int]) -> bool:
    """As cards are printed or spelt; figures of a table are not."""
    return all(length == 1 for length in lengths) or all(length >= 3 for length in lengths[:-1])


def _card(digits: str) -> bool:
    if len(digits) < 13 or not regex.match(r"3|4|5|6|2[2-7]", digits):
        return False
    doubled = [
        (digit, 2 * digit - 9 * (digit > 4))[place % 2] for place, digit in enumerate(map(int, reversed(digits)))
    ]
    return sum(doubled) % 10 == 0
