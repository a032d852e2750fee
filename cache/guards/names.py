"""Names: capitalised words, acronyms and Roman numerals of an English text."""

from __future__ import annotations

from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.units import CURRENCIES, MONTHS, WEEKDAYS
from cache.guards.words import Text, stem

_SENTENCE: Final = regex.compile(r"(?:^|[.?!:]\s+|\n)\W*(\w)")
_CAPITALISED: Final = regex.compile(r"(?<![\w'])\p{Lu}[\p{L}\p{M}]*(?:['-][\p{L}\p{M}]+)*")
LETTERS: Final = regex.compile(r"(?<![\w'])[\p{L}\p{M}]+(?:['-][\p{L}\p{M}]+)*")
_GOES_ON: Final = lexicon.EN_FUNCTION - {"of", "and", "or", "in", "for", "on", "at", "to", "with"}
_ROMAN: Final = dict(zip("ivxlcdm", (1, 5, 10, 50, 100, 500, 1000), strict=True))
_CANONICAL_ACRONYMS: Final = frozenset(lexicon.ALIASES.get(word, "") for word in lexicon.ACRONYMS) - {""}
_NUMERAL_SIGN: Final = regex.compile(r"(?<=\w\s)[IVXL]+\b")
_NUMERAL: Final = regex.compile(r"(?=[ivxl])x{0,3}l?x{0,3}(?:ix|iv|v?i{0,3})")
_NO_NAME: Final = (
    lexicon.EN_FUNCTION | lexicon.EN_FILLERS | MONTHS.keys() | WEEKDAYS.keys() | CURRENCIES.keys() - {"block"}
)


def names(text: Text) -> set[str]:
    """Capitalised words that do not begin a sentence; none where capitals say nothing (ALL CAPS, Title Case)."""
    if not capitals_tell(text):
        return set()
    starts = sentence_starts(text)
    return {
        lexicon.ALIASES.get(word, word)
        for match in _CAPITALISED.finditer(text.source)
        if match.start() not in starts and (word := match.group().casefold().removesuffix("'s")) not in _NO_NAME
    }


def sentence_starts(text: Text) -> set[int]:
    """Where in the source sentences begin."""
    return {match.start(1) for match in _SENTENCE.finditer(text.source)}


def capitals_tell(text: Text) -> bool:
    """Not in a text of capitals alone, and not where function words have them too; told once."""
    known = text.memo.get("capitals")
    if not isinstance(known, bool):
        known = text.memo["capitals"] = _capitals_tell(text)
    return known


def _capitals_tell(text: Text) -> bool:
    letters = [word for word in text.cased[1:] if word[0].isalpha() and word != "I"]
    capitals = [word for word in letters if word[0].isupper()]
    if len(letters) > 2 and all(word.isupper() for word in letters):
        return False
    return len(capitals) <= 0.7 * len(letters) or not any(word.lower() in lexicon.EN_FUNCTION for word in capitals)


def differ(ours: set[str], theirs: set[str], question: Text, cached: Text) -> bool:
    """Whether each text names something that the other has in no form."""
    return _absent(ours, theirs, cached) and _absent(theirs, ours, question)


def _absent(names_: set[str], others: set[str], other: Text) -> bool:
    present = {lexicon.ALIASES.get(word, word) for word in other.words}
    present |= {one + two for one, two in zip(other.words, other.words[1:], strict=False)}
    roots = {root(word) for word in present}
    return any(name not in present and root(name) not in roots and not _abbreviates(name, others) for name in names_)


def root(name: str) -> str:
    """Of a name, its genitive or plural, and the word for its people: "India", "India's", "Indians"."""
    root = stem(name)
    if root.endswith("ian") and len(root) > 5:
        return root[:-1]
    return root


def _abbreviates(name: str, others: set[str]) -> bool:
    """ "nyc" beside "new", "york", "city": as many names as letters, with these initials."""
    return 2 <= len(name) <= 6 and len(others) >= len(name) and sorted(name) == sorted(word[0] for word in others)


def acronyms(text: Text) -> set[str]:
    """Words that capitals make another word ("US" against "us"), and their aliases; none in a text of capitals."""
    if not any(word.islower() for word in text.cased):
        return set()
    known = {word.lower() for word in text.cased if word.isupper() and word.lower() in lexicon.ACRONYMS}
    known |= {
        word for word in text.words if lexicon.ALIASES.get(word) in _CANONICAL_ACRONYMS and word not in lexicon.ACRONYMS
    }
    return {lexicon.ALIASES.get(word, word) for word in known}


def roman(text: Text) -> set[str]:
    """Roman numerals in capitals, as numbers: "World War II" is "World War 2". A single letter needs its noun."""
    found: set[str] = set()
    if _NUMERAL_SIGN.search(text.source) is None:
        return found
    for before, word, after in zip(text.cased, text.cased[1:], [*text.cased[2:], ""], strict=False):
        numeral = word.lower()
        if not word.isupper() or not _NUMERAL.fullmatch(numeral):
            continue
        # "What type I should buy": where the text goes on with a verb, "I" is a person.
        if len(word) > 1 or (before.lower() in lexicon.NUMBERED and after not in _GOES_ON):
            found.add(str(_roman_value(numeral)))
    return found


def _roman_value(numeral: str) -> int:
    values = [_ROMAN[letter] for letter in numeral]
    return sum(-now if now < after else now for now, after in zip(values, [*values[1:], 0], strict=True))
