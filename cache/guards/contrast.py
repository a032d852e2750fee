"""Contrast guard: what stands on one side only.

Two questions that share most of their content words and differ in a few are either typed differently or ask
different things. A word that has no spelling variant, inflection or synonym on the other side is a substitution
("rice" against "quinoa") or an added qualifier ("joint account" against "account"); both change the answer.
Questions that share little are left to the similarity threshold.
"""

from __future__ import annotations

from cache.guards import lexicon
from cache.guards.units import NUMBER_WORDS
from cache.guards.verdict import Verdict, passed, veto
from cache.guards.words import Language, Text, stem

NAME = "contrast"
# Share of the longer question's content words that the other one has: from here on, differences count.
OVERLAP = 0.3

_GROUP: dict[str, frozenset[int]] = {}
for _number, _line in enumerate(lexicon.SYNONYMS.strip().splitlines()):
    for _word in _line.split():
        _GROUP[stem(_word)] = _GROUP.get(stem(_word), frozenset()) | {_number}
_POLAR = frozenset(stem(word) for pair in lexicon.EN_ANTONYMS for word in pair)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    ours, theirs = _unmatched(question, cached), _unmatched(cached, question)
    longer = max(len(set(question.content)), len(set(cached.content)))
    shared = longer - max(len(ours), len(theirs))
    if not ours and not theirs:
        return passed(NAME)
    if longer == 0 or shared / longer < OVERLAP:
        return passed(NAME)
    if ours and theirs:
        return veto(NAME, "another word in its place")
    return veto(NAME, "a qualifier on one side only")


def _check_chinese(question: Text, cached: Text) -> Verdict:
    """Characters are the units: more than word order and particles must not differ."""
    ours = set(question.content) - set(cached.content)
    theirs = set(cached.content) - set(question.content)
    if ours and theirs:
        return veto(NAME, "another word in its place")
    if len(ours | theirs) > 1:
        return veto(NAME, "a qualifier on one side only")
    return passed(NAME)


def _unmatched(text: Text, other: Text) -> list[str]:
    """Distinct content words of `text` without a counterpart; polarity and slots judge their own words."""
    stems = {stem(word) for word in other.words}
    groups = frozenset().union(*(_GROUP.get(found, frozenset()) for found in stems))
    return [
        word
        for word in dict.fromkeys(text.content)
        if stem(word) not in stems
        and not (_GROUP.get(stem(word), frozenset()) & groups)
        and not _judged_elsewhere(word)
        and not any(misspelt(word, candidate) for candidate in other.content)
        and not _joined(word, other)
    ]


def _judged_elsewhere(word: str) -> bool:
    return (
        word in lexicon.EN_NEGATORS
        or word in NUMBER_WORDS
        or stem(word) in _POLAR
        or any(character.isdigit() for character in word)
    )


def _joined(word: str, other: Text) -> bool:
    """ "part-timers" and "part time", "paypal" and "pay pal"."""
    plain = word.replace("-", "")
    neighbours = {first + second for first, second in zip(other.words, other.words[1:], strict=False)}
    return plain in neighbours or any(plain == candidate.replace("-", "") for candidate in other.words)


def misspelt(word: str, other: str) -> bool:
    """Whether the two are one edit apart (insert, delete, replace, swap of neighbours).

    Only for words of five letters and more with the same first and last letter, so that "Mary" and "Mark" or
    "moral" and "amoral" stay apart.
    """
    if min(len(word), len(other)) < 5 or abs(len(word) - len(other)) > 1 or word == other:
        return False
    if word[0] != other[0] or word[-1] != other[-1]:
        return False
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    a, b = word[start:], other[start:]
    return a[1:] == b or a == b[1:] or a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
