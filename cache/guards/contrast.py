"""Contrast guard: content words that stand on one side only.

A word that has no spelling variant, inflection or synonym on the other side is a substitution ("rice" against
"quinoa") or an added qualifier ("joint account" against "account"); both change the answer. Free rewordings are
refused with it. Measured on the development pairs, letting pairs of little overlap pass (0.2, 0.3, 0.5 of the
content words shared) kept 4, 8 and 17 points more of the same but let through 4, 8 and 11 times as many traps:
telling those apart takes a learned score.
"""

from __future__ import annotations

from cache.guards import lexicon
from cache.guards.polarity import opposite
from cache.guards.units import CURRENCIES, MONTHS, MULTIPLIERS, NUMBER_WORDS, UNITS, WEEKDAYS, ZH_DIGITS, ZH_POWERS
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "contrast"

_ROMAN = frozenset("ivxlcdm")
_GROUP: dict[str, frozenset[int]] = {}
for _number, _line in enumerate(lexicon.SYNONYMS.strip().splitlines()):
    for _word in _line.split():
        _GROUP[stem(_word)] = _GROUP.get(stem(_word), frozenset()) | {_number}


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    ours, theirs = unmatched(question, cached), unmatched(cached, question)
    if ours and theirs:
        return veto(NAME, "another word in its place")
    if ours or theirs:
        return veto(NAME, "a qualifier on one side only")
    return passed(NAME)


def _check_chinese(question: Text, cached: Text) -> Verdict:
    """Characters are the units, and one is a qualifier: a deputy (副经理) is not the manager (经理)."""
    ours = {unit for unit in question.content if unit not in cached.content and not _is_number(unit)}
    theirs = {unit for unit in cached.content if unit not in question.content and not _is_number(unit)}
    if ours and theirs:
        return veto(NAME, "another word in its place")
    if ours or theirs:
        return veto(NAME, "a qualifier on one side only")
    return passed(NAME)


def unmatched(text: Text, other: Text) -> list[str]:
    """Distinct content words of `text` without a counterpart; polarity and slots judge their own words."""
    stems = set(other.stems.values())
    groups = frozenset().union(*(_GROUP.get(found, frozenset()) for found in stems))
    return [
        word
        for word in dict.fromkeys(text.content)
        if text.stems[word] not in stems
        and _GROUP.get(text.stems[word], frozenset()).isdisjoint(groups)
        and not _judged_elsewhere(word, text, other)
        and not any(misspelt(word, candidate) for candidate in other.content)
        and not _joined(word, other)
    ]


def _judged_elsewhere(word: str, text: Text, other: Text) -> bool:
    """Negators, antonyms and typed values: polarity and slots decide about them."""
    return (
        word in lexicon.EN_NEGATORS
        or word in WEEKDAYS
        or (word in MONTHS and word not in ("may", "march"))
        or _is_number(word)
        or ((word in UNITS or word in CURRENCIES) and _beside_number(word, text))
        or any(opposite(word, text, candidate, other) for candidate in other.stems)
    )


def _is_number(word: str) -> bool:
    if word in NUMBER_WORDS or word in MULTIPLIERS or word in ZH_DIGITS or word in ZH_POWERS:
        return True
    return any(character.isdigit() for character in word)


def _beside_number(word: str, text: Text) -> bool:
    position = text.words.index(word)
    return any(_is_number(beside) for beside in text.words[max(0, position - 1) : position + 2] if beside != word)


def _joined(word: str, other: Text) -> bool:
    """ "part-timers" and "part time", "paypal" and "pay pal"."""
    plain = word.replace("-", "")
    neighbours = {first + second for first, second in zip(other.words, other.words[1:], strict=False)}
    return plain in neighbours or any(plain == candidate.replace("-", "") for candidate in other.words)


def misspelt(word: str, other: str) -> bool:
    """Whether the two are one edit apart (insert, delete, replace, swap of neighbours).

    Only for words of five letters and more with the same first and last letter, so that "Mary" and "Mark" or
    "moral" and "amoral" stay apart, and for no Roman numerals.
    """
    if min(len(word), len(other)) < 5 or abs(len(word) - len(other)) > 1 or word == other:
        return False
    if _ROMAN.issuperset(word) and _ROMAN.issuperset(other):
        return False
    if word[0] != other[0] or word[-1] != other[-1]:
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    a, b = word[start:], other[start:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
