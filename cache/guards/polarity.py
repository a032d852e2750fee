"""Polarity guard: negators by parity, antonyms by pair.

One flip between the two texts reverses the answer. Two flips cancel out only where one of them is a negator or
a degree ("more impatient" = "less patient", "not brave" = "cowardly"); two independent antonyms do not.
"""

from __future__ import annotations

from cache.guards import lexicon
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "polarity"
_DEGREES = frozenset(
    (a, b) for x, y in (("more", "less"), ("most", "least"), ("more", "fewer")) for a, b in ((x, y), (y, x))
)

_OPPOSITES: dict[str, set[str]] = {}
for _one, _other in lexicon.EN_ANTONYMS:
    _OPPOSITES.setdefault(stem(_one), set()).add(stem(_other))


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        negators = abs(_zh_negators(question.source) - _zh_negators(cached.source))
        antonyms, degrees = _zh_antonyms(question.source, cached.source), 0
    else:
        negators = abs(_en_negators(question) - _en_negators(cached))
        antonyms, degrees = _en_antonyms(question, cached)
    if antonyms == 0 and degrees == 0:
        return veto(NAME, "negation differs") if negators % 2 else passed(NAME)
    if antonyms == degrees + negators:
        return passed(NAME)
    return veto(NAME, "opposite words")


def _en_negators(text: Text) -> int:
    return sum(word in lexicon.EN_NEGATORS for word in text.words)


def _en_antonyms(question: Text, cached: Text) -> tuple[int, int]:
    """How many antonym pairs and how many degree pairs stand against each other."""
    ours, theirs = _own_words(question, cached), _own_words(cached, question)
    antonyms = degrees = 0
    for a in ours:
        for b in theirs:
            if (a, b) in _DEGREES:
                degrees += 1
            elif opposite(a, question, b, cached):
                antonyms += 1
                theirs.remove(b)
                break
    return antonyms, degrees


def _own_words(text: Text, other: Text) -> list[str]:
    return [word for word in text.stems if word not in other.stems and word not in lexicon.EN_NEGATORS]


def opposite(word: str, text: Text, candidate: str, other: Text) -> bool:
    """Whether `word` of `text` is an antonym of `candidate` of `other`."""
    if other.stems[candidate] in _OPPOSITES.get(text.stems[word], ()):
        return True
    return _negated(word, candidate) or _negated(candidate, word)


def _negated(word: str, other: str) -> bool:
    """Whether `other` is `word` behind a negative prefix, or `word` ends in -ful where `other` ends in -less."""
    if len(word) < 3:
        return False
    if other.endswith(word):
        return other[: -len(word)].removesuffix("-") in lexicon.EN_NEGATIVE_PREFIXES
    return word.endswith("ful") and other == word[:-3] + "less"


def _zh_negators(text: str) -> int:
    for harmless in lexicon.ZH_NO_NEGATION:
        text = text.replace(harmless, "")
    return sum(text.count(negator) for negator in lexicon.ZH_NEGATORS)


def _zh_antonyms(question: str, cached: str) -> int:
    """Pairs that stand against each other; a longer word covers the shorter ones inside it."""
    pairs = sorted(
        ((a, b) for a, b in lexicon.ZH_ANTONYMS if a in question and b in cached), key=lambda pair: -len(pair[0])
    )
    flips = 0
    for a, b in pairs:
        if a in question and b in cached and a not in cached and b not in question:
            flips += 1
            question, cached = question.replace(a, ""), cached.replace(b, "")
    return flips
