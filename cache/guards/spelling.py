"""Spelling guard: words that look alike and are not the same, and slips of the pen that change nothing.

A word may be another one written wrongly only where they are one edit apart and not both words of their own:
"contract" and "contact", "lessor" and "lesser" are one edit apart as well. Those pairs are data
(`data/lookalikes.txt.gz`, from WordNet's lemmas and their regular forms), and two questions that differ in one are two.
"""

from __future__ import annotations

from typing import Final

from cache.guards import lexicon
from cache.guards.rules import read_lines
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "spelling"

_ROMAN: Final = frozenset("ivxlcdm")
_LOOKALIKES: Final = frozenset(read_lines("lookalikes.txt.gz"))
# Word, plural, and stem where it is not another word's too -> the words of pairs that it may be.
_BASES: Final[dict[str, tuple[str, ...]]] = {}
for _word in sorted({word for pair in lexicon.CONFUSABLES for word in pair}):
    for _form in dict.fromkeys((_word, f"{_word}s")):
        _BASES[_form] = (_word,)
for _word in sorted({word for pair in lexicon.CONFUSABLES for word in pair}):
    if (_root := stem(_word)) not in _BASES:
        _BASES[_root] = (_word,)
_ENDINGS: Final = ("s", "es", "d", "ed", "ing")


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is not Language.ENGLISH:
        return passed(NAME)
    if _confused(question, cached):
        return veto(NAME, "another word that is often taken for it")
    ours = [word for word in question.content if word not in cached.stems and len(word) > 4]
    theirs = [word for word in cached.content if word not in question.stems and len(word) > 4]
    alike = any(
        word[0] == other[0]
        and word[-1] == other[-1]
        and question.stems[word] != cached.stems[other]
        and both_are_words(word, other)
        for word in ours
        for other in theirs
    )
    return veto(NAME, "another word that looks alike") if alike else passed(NAME)


def _confused(question: Text, cached: Text) -> bool:
    """Whether each text has one of a pair ("ensure", "insure") that the other has not."""
    ours, theirs = _confusable(question, cached), _confusable(cached, question)
    return bool(ours and theirs) and any((one, two) in lexicon.CONFUSABLES for one in ours for two in theirs)


def _confusable(text: Text, other: Text) -> list[str]:
    """The words of pairs that only `text` has, in their base form."""
    own = [word for word in text.content if word not in other.stems]
    return [base for word in own for base in (_BASES.get(word) or _BASES.get(text.stems[word], ()))]


def misspelt(word: str, other: str) -> bool:
    """Whether the two are one edit apart (insert, delete, replace, swap of neighbours).

    Only for words of five letters and more with the same first and last letter, so that "Mary" and "Mark" or
    "moral" and "amoral" stay apart, for no Roman numerals, and for no two words of the language.
    """
    if word[:1] != other[:1] or word[-1:] != other[-1:] or word == other:
        return False
    if min(len(word), len(other)) < 5 or abs(len(word) - len(other)) > 1:
        return False
    if _ROMAN.issuperset(word) and _ROMAN.issuperset(other):
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    a, b = word[start:], other[start:]
    near = a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
    return near and not both_are_words(word, other)


def both_are_words(word: str, other: str) -> bool:
    """Whether the two, or what stands before the same ending, are a pair of different words."""
    one, two = sorted((word, other))
    if f"{one} {two}" in _LOOKALIKES:
        return True
    return any(
        one.endswith(ending) and two.endswith(ending) and f"{one[: -len(ending)]} {two[: -len(ending)]}" in _LOOKALIKES
        for ending in _ENDINGS
    )
