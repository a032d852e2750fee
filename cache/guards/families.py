"""Families guard: markers that exclude one another, and kinds of one thing.

"and" against "or", "all" against "some", "used to be" against "is", "for my mother" against for oneself, a
lizard against a monkey. Each family of `data/en.toml` and `data/zh.toml` holds values; a text has none, one or several
of them. Two texts differ where each has a value that the other has not, and, in a family that counts on one side too,
where only one has. Where both ask about the kind as a whole ("is it normal for animals"), an example's member is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.numbers import alternatives
from cache.guards.rules import Family
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "families"
CLASS: Final = -1
"""The value that stands for the kind as a whole."""
_POINTING: Final = frozenset({"this", "that", "these", "those", "the", "which", "what", "my", "your", "our"})
_BE: Final = frozenset({"is", "are", "was", "were", "be", "been", "being", "am", "get", "getting", "got"})

# Family -> value -> stems of the words that show it.
Found = Mapping[int, Mapping[int, frozenset[str]]]
_Phrase = tuple[tuple[str, ...], int, int]


def _entries(families: tuple[Family, ...]) -> Iterator[tuple[str, int, int]]:
    """Each phrase with the numbers of its family and value."""
    for family, rules in enumerate(families):
        for number, line in enumerate(rules.values):
            value = CLASS if line.startswith("class:") else number
            for phrase in line.removeprefix("class:").split(","):
                yield phrase.strip(), family, value


def _by_first_word(families: tuple[Family, ...], *, inflected: bool) -> dict[str, list[_Phrase]]:
    """Phrases by their first word, the longest first; or single words of inflected families by their stem."""
    found: dict[str, list[_Phrase]] = {}
    for phrase, family, value in _entries(families):
        first, *rest = phrase.split(" ")
        if inflected == (families[family].inflected and not rest and value != CLASS):
            found.setdefault(stem(first) if inflected else first, []).append((tuple(rest), family, value))
    for phrases in found.values():
        phrases.sort(key=lambda entry: -len(entry[0]))
    return found


_ENGLISH: Final = _by_first_word(lexicon.EN_FAMILIES, inflected=False)
_INFLECTED: Final = _by_first_word(lexicon.EN_FAMILIES, inflected=True)
_CHINESE: Final[dict[str, list[tuple[int, int]]]] = {}
for _phrase, _family, _value in _entries(lexicon.ZH_FAMILIES):
    _CHINESE.setdefault(_phrase, []).append((_family, _value))
_ZH_PATTERNS: Final = tuple(
    (
        family,
        regex.compile(alternatives(phrase for phrase, number, _ in _entries(lexicon.ZH_FAMILIES) if number == family)),
    )
    for family in range(len(lexicon.ZH_FAMILIES))
)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    families = lexicon.ZH_FAMILIES if language is Language.CHINESE else lexicon.EN_FAMILIES
    ours, theirs = found(question, language), found(cached, language)
    for number in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(number, {}), theirs.get(number, {})
        if mine.keys() == other.keys() or (CLASS in mine and CLASS in other):
            continue
        family = families[number]
        more, less = mine.keys() - other.keys() - {CLASS}, other.keys() - mine.keys() - {CLASS}
        if more and less:
            return veto(NAME, f"{family.name} differs")
        if family.one_sided and (_stands_alone(more, mine, cached) or _stands_alone(less, other, question)):
            return veto(NAME, f"{family.name} on one side only")
    return passed(NAME)


def _stands_alone(values: Set[int], shown: Mapping[int, frozenset[str]], other: Text) -> bool:
    """Whether some value has no word of its kind in the other text: "stolen" is there in "did she steal it"."""
    stems = set(other.stems.values())
    return any(stems.isdisjoint(shown[value]) for value in values)


def is_example(word: str, question: Text, cached: Text) -> bool:
    """Whether `word` is a member of a kind that both English texts ask about as a whole."""
    ours, theirs = found(question, Language.ENGLISH), found(cached, Language.ENGLISH)
    whole = {number for number, values in ours.items() if CLASS in values and CLASS in theirs.get(number, ())}
    return any(not rest and family in whole for rest, family, _ in _phrases_at(word))


def found(text: Text, language: Language) -> Found:
    """The values of each family that the text has, read once."""
    known = text.memo.get("families")
    if isinstance(known, dict):
        return known
    values: dict[int, dict[int, set[str]]] = {}
    for family, value, root in _chinese(text) if language is Language.CHINESE else _english(text):
        values.setdefault(family, {}).setdefault(value, set()).add(root)
    fixed = {
        family: {value: frozenset(roots) for value, roots in members.items()} for family, members in values.items()
    }
    text.memo["families"] = fixed
    return fixed


def _english(text: Text) -> Iterator[tuple[int, int, str]]:
    words = text.words
    for position, word in enumerate(words):
        if word in ("used", "use") and _is_habit(words, position):
            yield *_HABITS, "used to"
        phrases = _phrases_at(word, text.stems[word])
        read: set[int] = set()
        for rest, family, value in phrases:
            # A longer phrase of the same family covers the shorter ones at its place.
            if family in read or (rest and words[position + 1 : position + 1 + len(rest)] != rest):
                continue
            read.add(family)
            if value == CLASS and position and words[position - 1] in _POINTING:
                continue
            yield family, value, text.stems[word]


def _phrases_at(word: str, root: str = "") -> Sequence[_Phrase]:
    exact, inflected = _ENGLISH.get(word, ()), _INFLECTED.get(root or stem(word), ())
    return [*exact, *inflected] if exact and inflected else exact or inflected


def _is_habit(words: tuple[str, ...], position: int) -> bool:
    """ "She used to run it" and "did she use to run it", not "what is it used to do"."""
    if words[position + 1 : position + 2] != ("to",):
        return False
    before = words[max(0, position - 6) : position]
    return "did" in before if words[position] == "use" else not _BE & set(before[-2:])


def _chinese(text: Text) -> Iterator[tuple[int, int, str]]:
    plain = text.source.lower()
    for family, pattern in _ZH_PATTERNS:
        for phrase in set(pattern.findall(plain)):
            for number, value in _CHINESE[phrase]:
                if number == family:
                    yield family, value, phrase


_HABITS: Final = next((family, value) for phrase, family, value in _entries(lexicon.EN_FAMILIES) if phrase == "habit:")
