"""Relations guard: what is asked, whether it must or may be, of whom, in which direction, and within which bounds.

The content words may be the same and the answer still another: "where" and "when", "must" and "may", "my" and
"your", "from X to Y", "at least five" and "at most five". Who does what to whom is for `roles`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.units import CURRENCIES, MONTHS, MULTIPLIERS, NUMBER_WORDS, ORDINALS, WEEKDAYS
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "relations"

# Signs that no word stands for: comparisons, a minus before a number, the marks of "C#" and "C++".
_SIGNS = regex.compile(r"[<>≤≥≠±]|(?<=\p{L})(?:#|\+{2})(?!\p{L})|(?<![\p{Latin}\p{N}.)]|\d )[-\u2212](?=\d)")
_PLUS: Final = regex.compile(r"(?<=\d)\+(?!\d)")
_PAST: Final = frozenset({"did", "was", "were", "had"})
_PRESENT: Final = frozenset({"do", "does", "is", "are", "am", "has", "have", "can", "may", "must", "should"})
_FUTURE: Final = frozenset({"will", "shall"})
_OWNERS: Final = {
    "my": 1, "our": 1, "mine": 1, "ours": 1, "your": 2, "yours": 2, "his": 3, "her": 4, "their": 5, "theirs": 5,
    "its": 6,
}  # fmt: skip
_SPEAKERS: Final = {
    "i": 1,
    "we": 1,
    "me": 1,
    "us": 1,
    "you": 2,
    "he": 3,
    "him": 3,
    "she": 4,
    "her": 4,
    "they": 5,
    "them": 5,
}
_BETWEEN: Final = frozenset(
    {"the", "a", "an", "of", "about", "around", "roughly", "approximately", "nearly", "another", "next", "age"}
)
_DATES: Final = (
    MONTHS.keys() | WEEKDAYS.keys() | ORDINALS.keys() | {"noon", "midnight", "midday", "tomorrow", "today", "yesterday"}
)
_NUMBERS: Final = NUMBER_WORDS.keys() | MULTIPLIERS.keys()
_UNSPECIFIC: Final = frozenset({"what", "which", "how"})


def _by_first(phrases: Iterable[tuple[tuple[str, ...], str]]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    found: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for phrase, name in sorted(phrases, key=lambda entry: -len(entry[0])):
        found.setdefault(phrase[0], []).append((phrase[1:], name))
    return found


_ASKS: Final = _by_first(lexicon.ASKS.items())
_MODALITY: Final = _by_first(lexicon.MODALITY.items())
_BEFORE: Final = _by_first(
    (phrase, bound.name) for bound in lexicon.BOUNDS for phrase in lexicon.split_phrases(bound.before)
)
_BEHIND: Final = _by_first(
    (phrase, bound.name) for bound in lexicon.BOUNDS for phrase in lexicon.split_phrases(bound.behind)
)
_HARD: Final = frozenset(bound.name for bound in lexicon.BOUNDS if bound.hard)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if set(_SIGNS.findall(question.source)) != set(_SIGNS.findall(cached.source)):
        return veto(NAME, "sign differs")
    if language is Language.CHINESE:
        return passed(NAME)
    asked, before = _asks(question), _asks(cached)
    if asked and before and asked != before:
        return veto(NAME, "question word differs")
    modality, other = _modality(question), _modality(cached)
    if modality and other and modality != other:
        return veto(NAME, "modality differs")
    if _tense_differs(question, cached):
        return veto(NAME, "tense differs")
    if _owner_differs(question, cached) or _persons_exchanged(question, cached):
        return veto(NAME, "person differs")
    mine, theirs = _bounds(question), _bounds(cached)
    if (mine - theirs and theirs - mine) or not _HARD.isdisjoint(mine ^ theirs):
        return veto(NAME, "bound differs")
    if _direction(question, cached):
        return veto(NAME, "direction reversed")
    return passed(NAME)


_TENSES: Final = ({"past", "future"}, {"past", "present"})


def _match(
    table: dict[str, list[tuple[tuple[str, ...], str]]], words: tuple[str, ...], position: int
) -> tuple[str, int] | None:
    """The name of the longest phrase that begins there, and where it ends."""
    for rest, name in table.get(words[position], ()):
        end = position + 1 + len(rest)
        if words[position + 1 : end] == rest:
            return name, end
    return None


def _asks(text: Text) -> str:
    """The first question word decides; "when" in the middle is usually a conjunction."""
    words = text.words
    for position, word in enumerate(words[:8]):
        if found := _match(_ASKS, words, position):
            return found[0]
        if word in _UNSPECIFIC or (position == 0 and word in _OPENERS):
            return ""
    return ""


_OPENERS: Final = frozenset(
    [
        "is",
        "are",
        "was",
        "were",
        "do",
        "does",
        "did",
        "can",
        "could",
        "may",
        "might",
        "must",
        "shall",
        "should",
        "will",
        "would",
        "has",
        "have",
        "am",
        "if",
    ]
)


def _modality(text: Text) -> str:
    """Of a question of yes or no, by its first words; of "who can" and "who must", by the word behind."""
    words = text.words
    start = 1 if words and words[0] in ("who", "which", "what") else 0
    if len(words) <= start:
        return ""
    found = _match(_MODALITY, words, start)
    if found and start == 0 and words[0] in ("can", "could") and words[1:2] == ("you",):
        # "Can you tell me" is a way to ask.
        return ""
    if found:
        return found[0]
    if (
        start == 0
        and words[0] in ("do", "does")
        and ({("have", "to"), ("need", "to")} & set(itertools.pairwise(words)))
    ):
        return "obliged"
    return ""


def _tense_differs(question: Text, cached: Text) -> bool:
    """Of questions of yes or no by their first word; of others where nothing else differs: "what was" and "what is" are
    often said for one another."""
    if {_tense(question.words[:1]), _tense(cached.words[:1])} in _TENSES:
        return True
    if {_tense(question.words[1:2]), _tense(cached.words[1:2])} not in _TENSES:
        return False
    return {question.stems[word] for word in question.content} == {cached.stems[word] for word in cached.content}


def _tense(words: tuple[str, ...]) -> str:
    for word in words:
        for tense, known in (("past", _PAST), ("present", _PRESENT), ("future", _FUTURE)):
            if word in known:
                return tense
    return ""


def _owner_differs(question: Text, cached: Text) -> bool:
    """ "my card" against "your card": the same thing of another owner."""
    ours, theirs = _owners(question), _owners(cached)
    return any(ours[thing].isdisjoint(theirs[thing]) for thing in ours.keys() & theirs.keys())


def _owners(text: Text) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for word, after in zip(text.words, text.words[1:], strict=False):
        if word in _OWNERS and after not in lexicon.EN_FUNCTION:
            found.setdefault(text.stems[after], set()).add(_OWNERS[word])
    return found


def _persons_exchanged(question: Text, cached: Text) -> bool:
    """ "Can I see your calendar" against "can you see my calendar"; a "you" that means anybody exchanges nothing."""
    ours, theirs = _persons(question), _persons(cached)
    return len(ours) == len(theirs) >= 2 and ours != theirs and sorted(ours) == sorted(theirs) and ours[0] != theirs[0]


def _persons(text: Text) -> list[int]:
    return [person for word in text.words if (person := _SPEAKERS.get(word) or _OWNERS.get(word))]


def _bounds(text: Text) -> frozenset[str]:
    """The bounds of the numbers and dates in a text."""
    known = text.memo.get("bounds")
    if isinstance(known, frozenset):
        return known
    found = frozenset(_find_bounds(text.words))
    if "+" in text.source and _PLUS.search(text.source):
        found |= {"at least"}
    text.memo["bounds"] = found
    return found


def _find_bounds(words: tuple[str, ...]) -> Iterator[str]:
    for position, word in enumerate(words):
        if word in _BEFORE and (match := _match(_BEFORE, words, position)):
            name, end = match
            following = next(
                (word for word in words[end : end + 3] if word not in _BETWEEN and word not in CURRENCIES), ""
            )
            # "over the years" and "by the shop" bound nothing.
            if is_number(following) or (name not in _HARD and following in _DATES):
                yield name
        numbered = word in _BEHIND and any(is_number(before) for before in words[max(0, position - 3) : position])
        if numbered and (match := _match(_BEHIND, words, position)):
            yield match[0]


def is_number(word: str) -> bool:
    return word[:1].isdigit() or word in _NUMBERS


def _direction(question: Text, cached: Text) -> bool:
    """ "from X ... to Y" against "from Y ... to X", also where only one of the two prepositions is repeated."""
    if not lexicon.SYMMETRIC.isdisjoint(question.words) and not lexicon.SYMMETRIC.isdisjoint(cached.words):
        return False
    for preposition, opposite in (("from", "to"), ("to", "from")):
        after = _followers(question.words, preposition)
        if after and after & _followers(cached.words, opposite) and not after & _followers(cached.words, preposition):
            return True
    return False


def _followers(words: tuple[str, ...], preposition: str) -> set[str]:
    followers: set[str] = set()
    for position, word in enumerate(words):
        if word == preposition:
            following = [word for word in words[position + 1 : position + 4] if word not in lexicon.EN_FUNCTION]
            followers.update(stem(word) for word in following[:1])
    return followers
