"""Two statements in nearly the same words: where one has a name, has the other that name in its place?

"Ana trained Bo in 1998" and "Cy trained Bo in 1998" have almost all words in common, and "Bo trained Ana in 1998" has
all of them. The guards compare what is named; this compares where. Both texts are laid side by side word by word. Where
words stand instead of others and one of them is a name, another one is spoken of; and where exchanging two names of one
text gives the other, they have each other's part. Nothing is said of statements in other words: there words stand in
another's place for good reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import combinations, pairwise
from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.names import capitals_tell, root, sentence_starts
from cache.guards.units import CURRENCIES, MONTHS, WEEKDAYS
from cache.guards.words import Text

NEAR: Final = 0.6
"""How much of two texts has to be the same in the same order, as `difflib` counts it."""

EXCHANGED: Final = 0.95
"""The same for a text whose two names were exchanged."""

_MOST_WORDS: Final = 120
_MOST_NAMES: Final = 12

# "Jean-Luc" and "Miller–Rabin" are two words here: one of them may be another.
_WORD: Final = regex.compile(r"\p{Han}|[\p{L}\p{M}\p{N}]+(?:'[\p{L}\p{M}]+)?")
_TITLES: Final = frozenset(
    ["mr", "mrs", "ms", "miss", "dr", "prof", "professor", "sir", "st", "saint", "president", "king", "queen"]
)
# These are compared as dates and amounts.
_VALUES: Final = MONTHS.keys() | WEEKDAYS.keys() | CURRENCIES.keys()
_LISTED: Final = frozenset({"and", "or", "with", "und", "和", "与", "與", "及", "或"})
_HAN: Final = regex.compile(r"\p{Han}")

_Words = list[str]


def names_differ(fresh: Text, stored: Text) -> bool:
    """Whether two texts in nearly the same words speak of others, or give two names each other's part."""
    ours, theirs = _words(fresh), _words(stored)
    if not ours or not theirs or max(len(ours), len(theirs)) > _MOST_WORDS:
        return False
    names = _names(fresh) | _names(stored)
    if not names:
        return False
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < NEAR:
        return False
    for kind, first, end, begin, last in matcher.get_opcodes():
        mine, other = ([word for word in side if _counts(word)] for side in (ours[first:end], theirs[begin:last]))
        if kind == "replace" and _are_others(mine, other, names):
            return True
    return _exchanged(ours, theirs, names, matcher.ratio())


def _words(text: Text) -> _Words:
    return [_plain(match.group()) for match in _WORD.finditer(text.source)]


def _plain(word: str) -> str:
    if word.isupper() and word.lower() in lexicon.ACRONYMS:
        # "US" is not "us".
        return word
    return word.casefold().removesuffix("'s").removesuffix("s'")


def _names(text: Text) -> set[str]:
    """Words with a capital that begins no sentence; among Chinese characters every word of Latin letters."""
    if _HAN.search(text.source):
        return {word for word in _words(text) if not _HAN.match(word) and word[0].isalpha()}
    if not capitals_tell(text):
        return set()
    starts = sentence_starts(text)
    return {
        word
        for match in _WORD.finditer(text.source)
        if match.group()[0].isupper() and match.start() not in starts and _may_be_name(word := _plain(match.group()))
    }


def _may_be_name(word: str) -> bool:
    return word not in lexicon.EN_FUNCTION and word not in lexicon.EN_FILLERS and word not in _VALUES


def _are_others(mine: Sequence[str], other: Sequence[str], names: set[str]) -> bool:
    """Whether each side has something of its own in the other's place, and one of `names` is among it."""
    known, said = ({root(_one(word)) for word in words} for words in (other, mine))
    own = [word for word in mine if root(_one(word)) not in known]
    others = [word for word in other if root(_one(word)) not in said]
    if not own or not others or _initials(mine, other) or _initials(other, mine):
        return False
    return any(word in names for word in (*own, *others))


def _counts(word: str) -> bool:
    return not (word in lexicon.EN_FUNCTION or word in _TITLES or word[0].isdigit() or word in CURRENCIES)


def _one(word: str) -> str:
    return lexicon.ALIASES.get(word, word)


def _initials(short: Sequence[str], long: Sequence[str]) -> bool:
    """ "EU" beside "European Union"."""
    return len(short) == 1 and len(short[0]) == len(long) > 1 and all(map(str.startswith, long, short[0]))


def _exchanged(ours: _Words, theirs: _Words, names: set[str], ratio: float) -> bool:
    """Whether two names of one text, exchanged, give the other. In a list their order says nothing."""
    runs = _runs(ours, names)[:_MOST_NAMES]
    for (first, end), (begin, last) in combinations(runs, 2):
        one, two, between = ours[first:end], ours[begin:last], ours[end:begin]
        if one == two or all(word in _LISTED or word in names for word in between):
            continue
        turned = [*ours[:first], *two, *between, *one, *ours[last:]]
        close = SequenceMatcher(None, turned, theirs, autojunk=False).ratio()
        if close >= EXCHANGED and close > ratio:
            return True
    return False


def _runs(words: _Words, names: set[str]) -> list[tuple[int, int]]:
    """Names of one word and more, by position."""
    edges = [0, *(at for at, (one, two) in enumerate(pairwise(words), 1) if (one in names) != (two in names))]
    return [(first, end) for first, end in zip(edges, [*edges[1:], len(words)], strict=True) if words[first] in names]
