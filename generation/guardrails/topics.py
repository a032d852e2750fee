"""Blocked topics: words and phrases, found in the forms in which they are written.

A phrase is a sequence of words; signs and spaces between them do not matter. A word counts with the endings of English
and German inflection, and with "ae", "oe", "ue" for umlauts. In scripts without spaces every character is a word, so
that a phrase is found inside a sentence. What is written on purpose to hide a word (look-alike letters, spaces inside
of it, other words for it) is not found: this keeps a topic out of ordinary use, and does not judge meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import regex

from generation.guardrails.folding import UNSPACED, Folded, fold

_LETTER = rf"(?![{UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}]"
_WORD: Final = regex.compile(rf"[{UNSPACED}]\p{{M}}*|(?:{_LETTER})+(?:'(?:{_LETTER})+)*")
_ONE_WORD: Final = regex.compile(rf"(?:{_LETTER})*")
_UMLAUTS: Final = (("ä", "ae"), ("ö", "oe"), ("ü", "ue"))
_ENDINGS: Final = regex.compile(r"(?:'s|'|ings?|ed|es|e|en|em|ern?|n|s)\Z")
_SHORTEST: Final = 3
"""Letters that a word keeps at least when its ending is taken off."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Each of `words` is a set of keys, of which a word of the text must have one. `rank` decides between phrases that
    begin with the same word of a text: the shortest is complete first.
    """

    topic: str
    rank: tuple[int, int]
    words: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A phrase of `topic` begins at `at`, an index into the folded text."""

    topic: str
    at: int


@dataclass(frozen=True, slots=True)
class Scan:
    """`free` is the index up to which the folded text holds nothing blocked, whatever follows."""

    found: Found | None
    free: int


class Topics:
    """The phrases of one contract."""

    def __init__(self, blocked: Mapping[str, Sequence[str]]) -> None:
        self._by_word: dict[str, list[Phrase]] = {}
        self._count = 0
        for topic, phrases in blocked.items():
            for text in phrases:
                self._add(topic, text)

    def __bool__(self) -> bool:
        return bool(self._by_word)

    def of(self, text: str) -> str | None:
        """The topic of the first blocked phrase in `text`."""
        found = self.scan(fold(text), complete=True).found
        return None if found is None else found.topic

    def scan(self, folded: Folded, *, complete: bool) -> Scan:
        """Look through `folded`. Unless `complete`, its last word may go on."""
        text = folded.text if complete else folded.text[: folded.sure]
        matches = list(_WORD.finditer(text))
        known = len(text)
        if not complete and matches and text[matches[-1].end() :] in ("", "'"):
            known = matches.pop().start()
        words = [(_keys(match.group()), match.start()) for match in matches]
        free = known
        for number, (keys, at) in enumerate(words):
            for phrase in self._starting(keys):
                following = words[number : number + len(phrase.words)]
                if any(wanted.isdisjoint(has) for wanted, (has, _) in zip(phrase.words, following, strict=False)):
                    continue
                if len(following) == len(phrase.words):
                    # An earlier phrase that may yet be completed decides first.
                    return Scan(Found(phrase.topic, at), at) if free == known else Scan(None, free)
                if not complete:
                    free = min(free, at)
        return Scan(None, len(folded.text) if complete else free)

    def _starting(self, keys: frozenset[str]) -> list[Phrase]:
        found = {phrase.rank: phrase for key in keys for phrase in self._by_word.get(key, ())}
        return [found[rank] for rank in sorted(found)]

    def _add(self, topic: str, text: str) -> None:
        words = tuple(_forms(match.group()) for match in _WORD.finditer(fold(text).text))
        if not words:
            raise ValueError("a blocked phrase without a word in it")
        phrase = Phrase(topic, (len(words), self._count), words)
        self._count += 1
        for key in words[0]:
            self._by_word.setdefault(key, []).append(phrase)


def inside_word(text: str) -> bool:
    """Whether `text` is letters alone, of scripts with spaces: behind a word, nothing but more of that word."""
    return bool(_ONE_WORD.fullmatch(text))


def _forms(word: str) -> frozenset[str]:
    """The keys of a word of a phrase: as written, with umlauts spelt out, and with umlauts for what it spells out."""
    spelt, umlauts = word, word
    for umlaut, written in _UMLAUTS:
        spelt, umlauts = spelt.replace(umlaut, written), umlauts.replace(written, umlaut)
    return _keys(word) | _keys(spelt) | _keys(umlauts)


def _keys(word: str) -> frozenset[str]:
    """What two inflections of a word have in common: the word without its ending."""
    return frozenset({word, _stem(word)})


def _stem(word: str) -> str:
    if not word[:1].isalpha():
        return word
    if word.endswith(("ies", "ied")) and len(word) > _SHORTEST + 2:
        return word[:-3] + "y"
    ending = _ENDINGS.search(word)
    stem = word[: ending.start()] if ending and ending.start() >= _SHORTEST else word
    # "tipped" is "tip", and then so is "tipp".
    return stem[:-1] if len(stem) > _SHORTEST and stem[-1] == stem[-2] else stem
