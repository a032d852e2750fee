"""A document's text cut into chunks: passages that fit the embedding window, with exact character offsets.

A chunk ends before a heading, or else after a paragraph, a sentence, a line, a word, whichever of these comes
first in this order in the second half of its room; a text without any of them is cut between characters.
The next chunk begins a little earlier, at a sentence or word, so that no statement is split for good.

Room is measured in Latin letters, since embedding models cut text into word pieces: about 4.5 letters of English
make one, but one Chinese character does too. The default model's window holds 254 pieces. With the default of 900
all chunks of XQuAD's English passages and of the policies tried fit, 99.7 % of its Chinese and 99 % of SciFact's, but
half of its German ones run over by up to a third, since that model spells German out.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tenancy.errors import InvalidInput

CHUNKER_REVISION: Final = "chunk-1"
"""Changes whenever the same file would give other chunks, by parsing or by cutting; documents of another revision are
then read again."""

MIN_TARGET: Final = 64
MAX_HEADING: Final = 200

# Weight in Latin letters of the characters of other scripts, by measurement with the default model's tokenizer.
_WEIGHTS: Final = (
    (0x0370, 0x1DFF, 3),  # Greek, Cyrillic, Hebrew, Arabic, Indic, Thai: 1.3 to 1.8 characters a piece
    (0x1F00, 0x1FFF, 3),
    (0x1100, 0x11FF, 4),  # Hangul letters
    (0x2E80, 0xA4CF, 4),  # Chinese, Japanese, Yi: one a piece
    (0xA4D0, 0xABFF, 3),
    (0xAC00, 0xD7AF, 6),  # Hangul syllables, which are taken apart into letters
    (0xF900, 0xFAFF, 4),
    (0xFF00, 0xFFEF, 4),
    (0x1F000, 0x1FAFF, 4),  # emoji
    (0x20000, 0x3FFFF, 4),
)
_MAX_WEIGHT: Final = 6

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]]*(?=\s)|[。！？｡．؟।۔]["'”’）」』】]*""")
_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s")
_VISIBLE = re.compile(r"\S")
_RESUMES = re.compile(_SENTENCE.pattern + r"|\n")
_MARKS = re.compile(r"^ {0,3}(?:(`{3,}|~{3,})|(?=#{1,6}[ \t]+\S)([^\n]{1,400}))", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Chunking:
    """`target_chars`: room of a chunk; `overlap_chars`: what it repeats of the one before; both in Latin letters."""

    target_chars: int = 900
    overlap_chars: int = 120

    def __post_init__(self) -> None:
        if self.target_chars < MIN_TARGET:
            raise InvalidInput(f"must be at least {MIN_TARGET}", item="target_chars")
        if not 0 <= self.overlap_chars <= self.target_chars // 4:
            raise InvalidInput("must be from 0 to a quarter of target_chars", item="overlap_chars")


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text` is the document's text from `start` to `end`, in characters; `heading` is the nearest one above."""

    ordinal: int
    start: int
    end: int
    text: str
    heading: str | None = None


def chunk(text: str, window: Chunking | None = None) -> list[Chunk]:
    """Cut `text`. Every character that is not white space is in some chunk; blank text gives none.

    Linear in the length of the text, whatever is in it, and the same for the same text on every machine.
    """
    headings = _headings(text)
    spans = _Cutter(text, [heading.start for heading in headings], window or Chunking()).spans()
    return [
        Chunk(ordinal, start, end, text[start:end], _heading_at(headings, start))
        for ordinal, (start, end) in enumerate(spans)
    ]


def weigh(text: str) -> int:
    """The room that `text` takes, in Latin letters."""
    return int(_weights(text).sum())


class _Heading(NamedTuple):
    start: int
    text: str


class _Cutter:
    def __init__(self, text: str, headings: list[int], window: Chunking) -> None:
        self._text = text
        self._headings = headings
        self._window = window

    def spans(self) -> Iterator[tuple[int, int]]:
        covered = 0
        start = self._visible(0)
        while start < len(self._text):
            cut = self._cut(start, covered)
            end = start + len(self._text[start:cut].rstrip())
            yield start, end
            following = self._visible(cut)
            if following >= len(self._text):
                return
            start = self._resume(start, cut, following)
            covered = cut

    def _cut(self, start: int, covered: int) -> int:
        """Where the chunk that begins at `start` ends; beyond `covered`, so that every chunk brings new text."""
        target = self._window.target_chars
        room = np.cumsum(_weights(self._text[start : start + target]))
        latest = start + int(np.searchsorted(room, target, side="right"))
        if latest >= len(self._text):
            return len(self._text)
        half = start + int(np.searchsorted(room, target // 2, side="left")) + 1
        earliest = min(max(half, covered + 1), latest)
        heading = bisect_right(self._headings, latest) - 1
        if heading >= 0 and self._headings[heading] >= earliest:
            return self._headings[heading]
        for pattern in (_PARAGRAPH, _SENTENCE, _LINE, _WORD):
            cut = self._last(pattern, earliest, latest)
            if cut is not None:
                return cut
        # From the end backwards, not into the middle of a visible character unless it fills the chunk.
        return next((cut for cut in range(latest, earliest, -1) if self._is_boundary(cut)), latest)

    def _last(self, pattern: re.Pattern[str], earliest: int, latest: int) -> int | None:
        """The last place from `earliest` to `latest` that `pattern` ends at; a blank may also follow it there."""
        ends = [
            match.start() if match.group().isspace() else match.end()
            for match in pattern.finditer(self._text, earliest, min(latest + 2, len(self._text)))
        ]
        return max((end for end in ends if earliest <= end <= latest), default=None)

    def _resume(self, start: int, cut: int, following: int) -> int:
        """Where the next chunk begins: before `cut` by the overlap, or at the `following` visible character."""
        overlap = self._window.overlap_chars
        at_heading = bisect_left(self._headings, cut)
        if not overlap or (at_heading < len(self._headings) and self._headings[at_heading] <= following):
            return following
        # Backwards from the cut: how many characters the overlap has room for.
        tail = self._text[max(start + 1, cut - overlap) : cut]
        room = np.cumsum(_weights(tail)[::-1])
        floor = cut - int(np.searchsorted(room, overlap, side="right"))
        for pattern in (_RESUMES, _WORD):
            found = pattern.search(self._text, floor, cut)
            begin = self._visible(found.end()) if found else cut
            if begin < cut:
                return begin
        if found:
            return following
        whole = (begin for begin in range(floor, cut) if self._is_boundary(begin))
        return next(whole, following)

    def _is_boundary(self, position: int) -> bool:
        """Whether no visible character has parts on both sides: combining marks and joiners stay where they belong."""
        return not _joins(self._text[position]) and self._text[position - 1] != "\u200d"

    def _visible(self, position: int) -> int:
        found = _VISIBLE.search(self._text, position)
        return found.start() if found else len(self._text)


def _joins(character: str) -> bool:
    """Whether a character belongs to the one before it."""
    return (
        unicodedata.category(character)[0] == "M" or character == "\u200d" or "\U0001f3fb" <= character <= "\U0001f3ff"
    )


def _weight_table() -> npt.NDArray[np.uint8]:
    table = np.ones(0x110000, dtype=np.uint8)
    for first, last, weight in _WEIGHTS:
        table[first : last + 1] = weight
    return table


_TABLE: Final = _weight_table()


def _weights(text: str) -> npt.NDArray[np.int64]:
    """One weight a character: (len(text),)."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    weights: npt.NDArray[np.int64] = _TABLE[points].astype(np.int64)
    return weights


def _headings(text: str) -> list[_Heading]:
    """Markdown headings ("# ...") outside fenced code, in order."""
    headings: list[_Heading] = []
    fence = ""
    for match in _MARKS.finditer(text):
        mark, line = match.groups()
        if mark:
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        elif not fence:
            headings.append(_Heading(match.start(), line.strip("# \t\r")[:MAX_HEADING].rstrip()))
    return headings


def _heading_at(headings: list[_Heading], position: int) -> str | None:
    """The last heading that begins at `position` or before."""
    found = bisect_right(headings, position, key=lambda heading: heading.start) - 1
    return headings[found].text or None if found >= 0 else None
