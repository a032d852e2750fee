"""Polarity guard: negators by parity, antonyms by pair.

One flip between the two texts reverses the answer. Two flips cancel out only where one of them is a negator or
a degree ("more impatient" = "less patient", "not brave" = "cowardly"); two independent antonyms do not.
"""

from __future__ import annotations

from cache.guards import lexicon
from cache.guards.verdict import Verdict, passed, veto
from cache.guards.words import Language, Text, stem

NAME = "polarity"
_DEGREES = frozenset(
    (a, b) for x, y in (("more", "less"), ("most", "least"), ("more", "fewer")) for a, b in ((x, y), (y, x))
)

_ANTONYMS = frozenset((stem(a), stem(b)) for a, b in lexicon.EN_ANTONYMS)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        negators = abs(_zh_negators(question.source) - _zh_negators(cached.source))
        antonyms, degrees = _zh_antonyms(question.source, cached.source), 0
    else:
        negators = abs(_en_negators(question) - _en_negators(cached))
        antonyms, degrees = _en_antonyms(question.words, cached.words)
    if antonyms == 0 and degrees == 0:
        return veto(NAME, "negation differs") if negators % 2 else passed(NAME)
    if antonyms == degrees + negators:
        return passed(NAME)
    return veto(NAME, "opposite words")


def _en_negators(text: Text) -> int:
    return sum(word in lexicon.EN_NEGATORS for word in text.words)


def _en_antonyms(question: tuple[str, ...], cached: tuple[str, ...]) -> tuple[int, int]:
    """How many antonym pairs and how many degree pairs stand against each other."""
    ours = [word for word in dict.fromkeys(question) if word not in cached and word not in lexicon.EN_NEGATORS]
    theirs = [word for word in dict.fromkeys(cached) if word not in question and word not in lexicon.EN_NEGATORS]
    antonyms = degrees = 0
    for a in ours:
        for b in theirs:
            if (a, b) in _DEGREES:
                degrees += 1
            elif opposite(a, b):
                antonyms += 1
                theirs.remove(b)
                break
    return antonyms, degrees


def opposite(word: str, other: str) -> bool:
    return (stem(word), stem(other)) in _ANTONYMS or _negated(word, other) or _negated(other, word)


def _negated(word: str, other: str) -> bool:
    """Whether `other` is `word` behind a negative prefix, or `word` ends in -ful where `other` ends in -less."""
    if len(word) < 3:
        return False
    if word.endswith("ful") and other == word[:-3] + "less":
        return True
    return len(other) > len(word) and any(
        other == prefix + word or other == f"{prefix}-{word}" for prefix in lexicon.EN_NEGATIVE_PREFIXES
    )


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
