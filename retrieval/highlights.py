"""Where a passage speaks of the question: the words that both share, and the stretch of text with most of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from generation.evidence import asked_words, rarity
from generation.sentences import sentences
from generation.words import spans, words
from retrieval.passage import Passage

SNIPPET_CHARS: Final = 240
MAX_HIGHLIGHTS: Final = 100

Span = tuple[int, int]
"""Offsets of characters in the document's text."""


@dataclass(frozen=True, slots=True)
class Shown:
    """`snippet` lies in the passage, and each of `highlights` too, in order and apart from each other."""

    snippet: Span
    highlights: tuple[Span, ...]


def shown(question: str, passages: Sequence[Passage]) -> list[Shown]:
    """What to show of each passage. Words are compared folded and stemmed; function words are not marked."""
    asked = asked_words(question)
    if not passages:
        return []
    rare = rarity(asked, [words(passage.text) for passage in passages])
    return [_shown(rare, passage) for passage in passages]


class _Found(NamedTuple):
    """A word of the question in a passage's text; `rare` is its weight."""

    start: int
    end: int
    word: str
    rare: float


def _shown(rare: dict[str, float], passage: Passage) -> Shown:
    found = [_Found(start, end, word, rare[word]) for start, end, word in spans(passage.text) if word in rare]
    begin, end = _snippet(passage.text, found)
    marked = tuple((passage.start + start, passage.start + stop) for start, stop in _joined(found))
    return Shown((passage.start + begin, passage.start + end), marked[:MAX_HIGHLIGHTS])


def _snippet(text: str, found: Sequence[_Found]) -> Span:
    """From the beginning of a sentence, at most `SNIPPET_CHARS` that hold the most of what was asked."""
    starts = [sentence.start for sentence in sentences(text)] or [0]
    firsts = [one.start for one in found]
    best, best_weight = starts[0], 0.0
    for start in starts:
        held = found[bisect_left(firsts, start) : bisect_right(firsts, start + SNIPPET_CHARS)]
        # Each word counts once; a sentence that repeats one says no more.
        weight = sum({word: rare for _, end, word, rare in held if end <= start + SNIPPET_CHARS}.values())
        # Of equal stretches the last: it begins with the sentence itself, not with what stands before.
        if weight and weight >= best_weight:
            best, best_weight = start, weight
    if len(text) - best <= SNIPPET_CHARS:
        return best, len(text)
    end = text.rfind(" ", best + SNIPPET_CHARS // 2, best + SNIPPET_CHARS)
    return best, end if end > 0 else best + SNIPPET_CHARS


def _joined(found: Sequence[_Found]) -> list[Span]:
    """Bigrams of one word overlap: they are one highlight."""
    joined: list[Span] = []
    for start, end, _, _ in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined
