"""How far the words of a question are found in sources: one number, from those sources alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import regex

from generation.sentences import sentences
from generation.words import content_words, words

_NAME_WEIGHT = 1.5
_NAME = regex.compile(r"(?<!^)(?<![.!?:\"“]\s)\b(?:\p{Lu}[\p{L}\p{M}]+|\d[\d.,]*)")


def asked_words(question: str) -> list[str]:
    """The question's content words, each once, in order."""
    return list(dict.fromkeys(content_words(question)))


def rarity(asked: Sequence[str], texts: Sequence[Sequence[str]]) -> dict[str, float]:
    """IDF (Robertson and Spärck Jones 1976) of each asked word over `texts`, each a list of words.

    A word in none of them weighs as one in a single text.
    """
    frequency = Counter(word for text in texts for word in set(text))
    return {word: math.log(1 + (len(texts) + 0.5) / (max(1, frequency[word]) + 0.5)) for word in asked}


def cover(question: str, texts: Sequence[str], titles: Sequence[str] = ()) -> float:
    """The weighted share of the question's content words in the one text that has most of it, in [0, 1].

    Rare words weigh more, and names and numbers of the question more again: a text without them is hardly about it.
    `titles`, if given, belong to `texts` one by one.
    """
    asked = asked_words(question)
    by_text = [[words(sentence.text) for sentence in sentences(text)] for text in texts]
    weights = rarity(asked, [sentence for text in by_text for sentence in text])
    named = {word for match in _NAME.finditer(question) for word in words(match.group())}
    weights = {word: weight * (_NAME_WEIGHT if word in named else 1.0) for word, weight in weights.items()}
    whole = sum(weights.values())
    best = 0.0
    for number, text in enumerate(by_text):
        held = {word for sentence in text for word in sentence}
        held.update(words(titles[number]) if titles else ())
        best = max(best, sum(weight for word, weight in weights.items() if word in held))
    return best / whole if whole else 0.0
