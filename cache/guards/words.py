"""Words of a question, its language, and which of its words carry content.

Rules exist for English and Chinese. Every other language, and text that cannot be told, has none: the guards
abstain, which means a miss. So does text that can look like what it is not: controls that hide or turn letters, marks
without a letter, digits of other scripts, letters that only resemble English ones, and text beyond the bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Set
from enum import StrEnum
from typing import Final

import regex

from cache.guards import lexicon


class Language(StrEnum):
    ENGLISH = "en"
    CHINESE = "zh"
    UNKNOWN = "unknown"


class Text:
    """One question, read once for all guards; its words are told apart only where one of them asks.

    `source` is the question in the form that the guards read. `words` are lower-case with contractions spelled out
    ("don't" -> "do", "not"), for Chinese single characters; `cased` are the words as written; `content` are the words
    that carry content, in order. `stems` gives the stem of every word. Text that is not read (too long, or not safe to
    read) has no words. `memo` holds what the guards found in it, so that one question is read once for all candidates.
    """

    __slots__ = ("_readable", "cased", "content", "language", "memo", "source", "stems", "words")

    source: str
    language: Language
    words: tuple[str, ...]
    cased: tuple[str, ...]
    content: tuple[str, ...]
    stems: Mapping[str, str]
    memo: dict[str, object]

    def __init__(self, source: str, *, readable: bool) -> None:
        self.source = source
        self.memo = {}
        self._readable = readable

    def __getattr__(self, name: str) -> object:
        # Asked for a slot that is still empty, which all of them are until then. Two threads would fill in the same.
        if name not in _LATER:
            raise AttributeError(name)
        found = _told_apart(self.source) if self._readable else (Language.UNKNOWN, (), (), (), {})
        self.language, self.words, self.cased, self.content, self.stems = found
        return found[_LATER.index(name)]


_LATER: Final = ("language", "words", "cased", "content", "stems")
_Parts = tuple[Language, tuple[str, ...], tuple[str, ...], tuple[str, ...], Mapping[str, str]]

MAX_CHARACTERS: Final = 2_000
"""Longer questions have no guards and no semantic hits; embedding windows end far below."""

WORD: Final = r"[\p{L}\p{M}\p{N}]+(?:['\-][\p{L}\p{M}\p{N}]+)*"
_WORD = regex.compile(WORD)
_SMALL_DIGIT = regex.compile(r"(?<=\p{Nd})\p{No}")
# Controls, format characters and unassigned ones, but for what emoji are joined with; marks that NFKC left over; digits
# that are not 0 to 9; Latin letters that are no letters of a living orthography (IPA, small capitals, dotless i).
_UNREADABLE = regex.compile(
    r"[\p{C}--[\t\n\r\u200d]]|(?<![\p{So}\p{Sk}\ufe0f])\u200d|[\p{M}--[\ufe0e\ufe0f]]|[\p{Nd}--[0-9]]|[\p{No}\p{Nl}]"
    r"|[\p{Script=Latin}--[A-Za-z\u00c0-\u024f\u1e00-\u1eff]]|[\u0131\u0138\u0149\u0186\u0190\u0196\u01a6\u01c0-\u01c3\u01dd\u0237]",
    flags=regex.V1,
)
# Signs, and words that end in a point or a blank, in the form that the guards read; and what tells of them.
_PLAIN: Final = regex.compile(r"[\t\n\r\x20-\x7e]*")
_SIGNS: Final = regex.compile(
    r"№|``|''|(?<=\s)&(?=\s)|[\u00b5\u03bc](?=[glms]\b)|[\u03a9\u2126]|(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))"
    r"|[\u2018\u2019\u02bc\u2032`\u00b4\uff07](?=[\p{L}\s])|[\u2010\u2011\u2212](?=\w)"
)
_SIGNS_SHOW: Final = frozenset(
    "№`&\u00b5\u03bc\u03a9\u2126\u00a0\u2009\u202f\u2018\u2019\u02bc\u2032\u00b4\uff07\u2010\u2011\u2212"
)
_ABBREVIATED: Final = regex.compile(
    r"\b[Nn]o\.\s?(?=\d)|\bU\.\s?[SK]\.(?:A\.)?|\bw/o\b|\bw/(?=\s)|\bper cent\b"
    r"|\b[Uu]nited (?:[Ss]tates(?: of America)?|[Kk]ingdom)\b"
)
_ABBREVIATED_SHOW: Final = ("o.", "U.", "w/", "per cent", "nited ")
_INSTEAD: Final = {
    "№": "#", "``": '"', "''": '"', "w/o": "without", "w/": "with", "per cent": "percent", "&": "and",
    "\u00b5": "micro", "\u03bc": "micro",
    "\u03a9": " ohm", "\u2126": " ohm", "\u00a0": ",", "\u2009": ",", "\u202f": ",",
    "\u2010": "-", "\u2011": "-", "\u2212": "-",
}  # fmt: skip
_HAN = regex.compile(r"\p{Script=Han}")
_OTHER_SCRIPT = regex.compile(r"[\p{L}--\p{Script=Latin}--\p{Script=Han}--\p{Script=Common}]", flags=regex.V1)
_HAN_OR_WORD = regex.compile(r"\p{Script=Han}|[\p{Script=Latin}\p{N}]+(?:[.\-][\p{Script=Latin}\p{N}]+)*")
_ENDINGS: tuple[tuple[str, str, int], ...] = (
    ("ations", "", 4),
    ("ation", "", 4),
    ("ies", "y", 2),
    ("sses", "ss", 2),
    ("ings", "", 3),
    ("ing", "", 3),
    ("ed", "", 3),
    ("ly", "", 4),
    ("es", "", 3),
    ("s", "", 3),
)

_ZH_FIRST: Final = {word: line[0] for line in lexicon.ZH_SYNONYMS for word in line}
_ZH_SYNONYM: Final = regex.compile("|".join(sorted(map(regex.escape, _ZH_FIRST), key=len, reverse=True)))
# Questions of the form "能不能"; days of the week; the units of dates and clocks; percentages; ranges.
_ZH_NUMERAL: Final = "[0-9零一二三四五六七八九十两]"
_ZH_NOTATIONS: Final = (
    (regex.compile(r"(\p{Script=Han})[不没沒]\1"), r"\1"),
    (regex.compile(r"(?:星期|礼拜|禮拜|週)(?=[一二三四五六日天])"), "周"),
    (regex.compile(rf"(?:凌晨|早上|上午|中午|下午|傍晚|晚上)(?={_ZH_NUMERAL}{{1,3}}[点點:])"), ""),
    (
        regex.compile(
            rf"(?<={_ZH_NUMERAL})(?:[年月日号號分半]|[点點]半?)|百分之|%|(?<={_ZH_NUMERAL})[到至](?={_ZH_NUMERAL})"
        ),
        "",
    ),
)
_BY_LAST: Final = {
    last: tuple(entry for entry in _ENDINGS if entry[0][-1] == last)
    for last in {ending[-1] for ending, _, _ in _ENDINGS}
}


def read(source: str) -> Text:
    """Read a question. Full-width forms and typographic quotes are made plain first (NFKC).

    Raised and lowered digits and fractions keep apart from the digit before them: 10⁶ is not 106, 2½ not 21/2.
    """
    if len(source) > MAX_CHARACTERS:
        return Text(source, readable=False)
    apart = source
    if not _SIGNS_SHOW.isdisjoint(source) or "''" in source:
        apart = _SIGNS.sub(_rewrite, apart)
    if any(shown in source for shown in _ABBREVIATED_SHOW):
        apart = _ABBREVIATED.sub(_rewrite, apart)
    if not apart.isascii():
        apart = _SMALL_DIGIT.sub(r" \g<0>", apart)
    plain = (
        apart if apart.isascii() else unicodedata.normalize("NFKC", apart).replace("\u2019", "'").replace("\u2018", "'")
    )
    if len(plain) > MAX_CHARACTERS or (not _PLAIN.fullmatch(plain) and _UNREADABLE.search(plain)):
        return Text(plain, readable=False)
    return Text(plain, readable=True)


def _told_apart(plain: str) -> _Parts:
    """Language, words, words as written, content and stems of a text that is safe to read."""
    if not plain.isascii() and _HAN.search(plain):
        units = tuple(_HAN_OR_WORD.findall(_plain_chinese(plain.lower())))
        content = tuple(unit for unit in units if unit not in lexicon.ZH_FILLERS)
        return _language_with_han(plain, units), units, units, content, dict(zip(units, units, strict=True))
    cased = tuple(_WORD.findall(plain))
    words = tuple(part for word in cased for part in spell_out(word.lower()))
    other_script = not plain.isascii() and _OTHER_SCRIPT.search(plain)
    language = Language.UNKNOWN if other_script else _language_of_latin(words)
    # Small, they are what is left of "it's", "don't" and "I'd"; large, they name a class, a size or an annex.
    labels = {word.lower() for word in cased if word in ("S", "T", "D")}
    return language, words, cased, _content(words, labels), {word: stem(word) for word in words}


def _plain_chinese(plain: str) -> str:
    """Without what the slots read in another notation, and with one word for what has several."""
    for pattern, instead in _ZH_NOTATIONS:
        plain = pattern.sub(instead, plain)
    return str(_ZH_SYNONYM.sub(_same_word, plain))


def _same_word(match: regex.Match[str]) -> str:
    return _ZH_FIRST[match.group()]


def _rewrite(match: regex.Match[str]) -> str:
    """Signs and abbreviations in the form that the guards read."""
    found = match.group()
    if found in _INSTEAD:
        return _INSTEAD[found]
    if found[0] in "Nn":
        return "#"
    if found[0] in "Uu":
        return "US" if "s" in found.lower()[1:] else "UK"
    return "'"


def common_language(question: Text, cached: Text) -> Language:
    """The language whose rules hold for the pair; `UNKNOWN` where they differ or cannot be told.

    A text too short to hold a function word ("Track order 48213") follows the other one if that one is English
    and most of its words stand there too; so do two such texts that share nothing foreign and most of their words.
    """
    if question.language is cached.language:
        return question.language
    if {question.language, cached.language} != {Language.ENGLISH, Language.UNKNOWN}:
        return Language.UNKNOWN
    known, other = (question, cached) if question.language is Language.ENGLISH else (cached, question)
    if _HAN.search(other.source) or _OTHER_SCRIPT.search(other.source):
        return Language.UNKNOWN
    shared = sum(word in known.words for word in other.words)
    return Language.ENGLISH if other.words and 2 * shared >= len(other.words) else Language.UNKNOWN


def stem(word: str) -> str:
    """A light English stem, only good for comparing: plural, -ing, -ed, -ly and -ation are cut."""
    return _STEMS.get(word) or _stem(word)


def _stem(word: str) -> str:
    word = lexicon.IRREGULAR.get(word, word)
    for ending, replacement, shortest in _BY_LAST.get(word[-1:], ()):
        if word.endswith(ending) and len(word) - len(ending) >= shortest and not word.endswith("ss"):
            word = word[: len(word) - len(ending)] + replacement
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


def _language_with_han(plain: str, units: tuple[str, ...]) -> Language:
    if _OTHER_SCRIPT.search(plain):
        return Language.UNKNOWN
    han = len(_HAN.findall(plain))
    return Language.CHINESE if 2 * han >= len(units) else Language.UNKNOWN


def _language_of_latin(words: tuple[str, ...]) -> Language:
    english = foreign = 0
    for word in words:
        if word in lexicon.EN_FUNCTION:
            english += 1
        elif word in lexicon.FOREIGN_FUNCTION:
            foreign += 1
    return Language.ENGLISH if english > foreign else Language.UNKNOWN


def spell_out(word: str) -> tuple[str, ...]:
    """The words of one in lower case as it is written: "don't" -> "do", "not"."""
    if word in lexicon.CONTRACTIONS:
        return lexicon.CONTRACTIONS[word]
    if "'" not in word:
        return (word,)
    for ending, spelled in (("n't", "not"), ("'re", "are"), ("'ve", "have"), ("'ll", "will"), ("'m", "am")):
        if word.endswith(ending) and len(word) > len(ending):
            return word[: -len(ending)], spelled
    return (word.removesuffix("'s").removesuffix("'"),)


def _content(words: tuple[str, ...], labels: Set[str]) -> tuple[str, ...]:
    kept: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        if skipped := _filler_phrase(words, position):
            position += skipped
            continue
        if word in labels or (word not in lexicon.EN_FUNCTION and word not in lexicon.EN_FILLERS):
            kept.append(word)
        position += 1
    return tuple(kept)


def _filler_phrase(words: tuple[str, ...], position: int) -> int:
    """How many words of a phrase that changes nothing begin there."""
    for phrase in _FILLER_PHRASES.get(words[position], ()):
        if words[position : position + len(phrase)] == phrase:
            return len(phrase)
    return 0


_FILLER_PHRASES: Final[dict[str, list[tuple[str, ...]]]] = {}
for _phrase in sorted(lexicon.EN_FILLER_PHRASES, key=len, reverse=True):
    _FILLER_PHRASES.setdefault(_phrase[0], []).append(_phrase)

# Of the words of the rules, which are most of a question's; nothing that a tenant wrote is kept.
_STEMS: Final = {
    word: _stem(word)
    for word in {
        *lexicon.EN_FUNCTION,
        *lexicon.EN_FILLERS,
        *lexicon.SYNONYMS.split(),
        *(word for word, _ in lexicon.EN_ANTONYMS),
    }
}
