"""Labels guard: single letters that name one of several things.

"Plan A" and "plan B", "vitamin C" and "vitamin D", "schedule A" and "a schedule": the letter is an identifier, also
where it looks like an article or a pronoun. It counts by the noun before it: another letter there, or none, is another
thing; a letter that the other text has somewhere else ("a class C licence", "a licence of class C") is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import regex

from cache.guards import lexicon, names
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "labels"

# No initial of a person ("J. Doe"), no part of "R&D", "and/or", "it's".
_LETTER: Final = regex.compile(r"(?P<noun>\p{L}[\p{L}'-]+)\s+#?(?P<letter>[A-Za-z])(?![\w'&/+#-]|\.\s?\w)")
_WORDS_TOO: Final = frozenset("ai")
_PROSE: Final = lexicon.EN_FUNCTION | lexicon.EN_FILLERS


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is not Language.ENGLISH:
        return passed(NAME)
    ours, theirs = _labels(question), _labels(cached)
    if ours == theirs:
        return passed(NAME)
    if _differs(ours, theirs, cached) or _differs(theirs, ours, question):
        return veto(NAME, "letter differs")
    return passed(NAME)


def _differs(ours: Mapping[str, str], theirs: Mapping[str, str], other: Text) -> bool:
    """Whether some noun of both has a letter that the other text has nowhere as one."""
    shown = set(theirs.values()) | {word for word in other.words if len(word) == 1 and word not in _WORDS_TOO}
    return any(letter not in shown and noun in other.stems.values() for noun, letter in ours.items())


def _labels(text: Text) -> Mapping[str, str]:
    """The letter behind each noun, by the noun's stem, read once."""
    known = text.memo.get("labels")
    if isinstance(known, dict):
        return known
    found: dict[str, str] = {}
    told = names.capitals_tell(text)
    for match in _LETTER.finditer(text.source):
        noun, letter = match["noun"].casefold().removesuffix("'s"), match["letter"]
        if noun in _PROSE or noun not in text.stems:
            continue
        if letter.casefold() not in _WORDS_TOO or _names(noun, letter, text.source[match.end() :], told=told):
            found[text.stems[noun]] = letter.casefold()
    text.memo["labels"] = found
    return found


def _names(noun: str, letter: str, rest: str, *, told: bool) -> bool:
    """Whether an "a" or "i" is a label: a capital "A" inside a sentence, an "I" with nothing of a sentence behind it.

    In small letters only behind a noun that has labels, and only at the end: "the price of plan a".
    """
    after = rest.strip(" ?!.,;:")
    if letter == "A":
        return told
    if letter == "I":
        return noun in lexicon.LABELLED and not after
    return letter == "a" and noun in lexicon.LABELLED and not after
