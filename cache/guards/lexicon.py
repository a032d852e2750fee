"""The word lists behind the guards, as the guards use them. From `data/en.toml` and `data/zh.toml`."""

from __future__ import annotations

from itertools import product
from typing import Final

from cache.guards.rules import CHINESE, ENGLISH, Family, read_lines


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    """`a/b c/d` -> both directions of each pair."""
    single = [tuple(pair.split("/")) for pair in text.split()]
    return frozenset((a, b) for x, y in single for a, b in ((x, y), (y, x)))


def _grouped(lines: list[str]) -> frozenset[tuple[str, str]]:
    """`a b | c d` -> every word of one side against every word of the other, both directions."""
    return frozenset(
        pair
        for left, right in (line.split("|") for line in lines)
        for a, b in product(left.split(), right.split())
        for pair in ((a, b), (b, a))
    )


def _compared(pairs: frozenset[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The pairs and their comparatives and superlatives, where both words are short enough to have them."""
    return pairs | {
        (_form(a, ending), _form(b, ending)) for a, b in pairs if max(len(a), len(b)) <= 5 for ending in ("er", "est")
    }


def _form(word: str, ending: str) -> str:
    """ "tall" -> "taller", "safe" -> "safer", "easy" -> "easier", "big" -> "bigger"."""
    if word.endswith("e"):
        return word[:-1] + ending
    if word.endswith("y") and len(word) > 2 and word[-2] not in "aeiou":
        return word[:-1] + "i" + ending
    doubled = len(word) <= 4 and word[-1:] not in "aeiouwxy" and word[-2:-1] in "aeiou" and word[-3:-2] not in "aeiou"
    return word + (word[-1:] if doubled else "") + ending


def split_phrases(line: str) -> tuple[tuple[str, ...], ...]:
    """ "at least, up to" -> the words of each phrase, the longest phrase first."""
    phrases = (tuple(phrase.split()) for phrase in line.split(",") if phrase.strip())
    return tuple(sorted(phrases, key=lambda phrase: (-len(phrase), phrase)))


def _phrases(lines: list[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(line.split()) for line in lines)


EN_FUNCTION: Final = _set(ENGLISH.function)
FOREIGN_FUNCTION: Final = _set(ENGLISH.foreign) - EN_FUNCTION
CONTRACTIONS: Final = {written: tuple(meant.split()) for written, meant in ENGLISH.contractions.items()}
IRREGULAR: Final = {
    form: base for base, *forms in (line.split() for line in ENGLISH.irregular.strip().splitlines()) for form in forms
}
EN_FILLERS: Final = _set(ENGLISH.fillers)
EN_FILLER_PHRASES: Final = _phrases(ENGLISH.filler_phrases)
EN_NEGATORS: Final = _set(ENGLISH.negators)
EN_WEAK_NEGATORS: Final = _set(ENGLISH.weak_negators)
EN_NEGATING_PHRASES: Final = _phrases(ENGLISH.negating_phrases)
EN_NO_NEGATION: Final = _phrases(ENGLISH.no_negation)
EN_ANTONYMS: Final = _compared(
    _pairs(ENGLISH.antonyms) | _grouped(ENGLISH.antonym_groups) | _pairs(" ".join(read_lines("antonyms.txt")))
)
# A word with one of these in front is its opposite ("unlock", "inactive"); checked only when both words occur.
EN_NEGATIVE_PREFIXES: Final = frozenset({"un", "in", "im", "il", "ir", "dis", "non", "de", "mis", "self"})
# "overpaid" and "underpaid", "hypertension" and "hypotension": the same word behind these is an opposite.
OPPOSED_BEGINNINGS: Final = _pairs(ENGLISH.opposed_beginnings)
# Plurals with a meaning of their own -> their singulars: everywhere, not before a noun, only before "of" or "and", only
# against a singular without an article.
PLURALS, PLURALS_ALONE, PLURALS_OF, PLURALS_MASS = (
    {plural: single for single, plural in (pair.split("/") for pair in pairs.split())}
    for pairs in (ENGLISH.plurals, ENGLISH.plurals_alone, ENGLISH.plurals_of, ENGLISH.plurals_mass)
)
CONFUSABLES: Final = _pairs(ENGLISH.confusables)
JUDGEMENTS: Final = _set(ENGLISH.judgements)
# Nouns that a single letter behind them names: "plan b".
LABELLED: Final = _set(ENGLISH.labelled) | _set(ENGLISH.numbered)
SYNONYMS: Final = ENGLISH.synonyms
SYMMETRIC: Final = _set(ENGLISH.symmetric)
# Each name of a thing -> the one that stands for all.
ALIASES: Final = {name: line.split()[0] for line in ENGLISH.names for name in line.split()}
ACRONYMS: Final = _set(ENGLISH.acronyms)
NUMBERED: Final = _set(ENGLISH.numbered)
MODALITY: Final = {phrase: kind for kind, line in ENGLISH.modality.items() for phrase in split_phrases(line)}
ASKS: Final = {phrase: kind for kind, line in ENGLISH.asks.items() for phrase in split_phrases(line)}
BOUNDS: Final = tuple(ENGLISH.bounds)
EN_FAMILIES: Final[tuple[Family, ...]] = tuple(ENGLISH.families)

ZH_FILLERS: Final = frozenset(CHINESE.fillers)
ZH_NEGATORS: Final = tuple(CHINESE.negators.split())
ZH_NO_NEGATION: Final = tuple(CHINESE.no_negation.split())
ZH_NO_NUMBER: Final = tuple(CHINESE.no_number.split())
ZH_ANTONYMS: Final = _pairs(CHINESE.antonyms)
ZH_SYNONYMS: Final = tuple(tuple(line.split()) for line in CHINESE.synonyms.strip().splitlines())
ZH_FAMILIES: Final[tuple[Family, ...]] = tuple(CHINESE.families)
