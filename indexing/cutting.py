"""Where a document's text is cut into chunks; see `indexing.chunk`."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing.outline import Outline
from indexing.room import letters

_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"""[.!?…]["'”’)\]]*(?=\s)|[。！？｡．؟।۔]["'”’）」』】]*""")
_LINE = re.compile(r"\n")
_WORD = re.compile(r"\s")
_VISIBLE = re.compile(r"\S")
_RESUMES = re.compile(_SENTENCE.pattern + r"|\n")
_PROSE: Final = (_PARAGRAPH, _SENTENCE, _LINE, _WORD)
_LINES: Final = (_PARAGRAPH, _LINE, _SENTENCE, _WORD)


@dataclass(frozen=True, slots=True)
class Limits:
    """Room of a chunk, and what it may repeat of the one before: in letters, and in tokens where these are known."""

    letters: int
    overlap_letters: int
    tokens: int
    overlap_tokens: int


class Cutter:
    """`tokens` (len(text),) counts the tokens that begin at each character, None where letters decide."""

    def __init__(
        self,
        text: str,
        outline: Outline,
        anchors: Sequence[int],
        limits: Limits,
        tokens: npt.NDArray[np.uint8] | None,
    ) -> None:
        self._text = text
        self._outline = outline
        self._headings = [heading.start for heading in outline.headings]
        self._parted = sorted({*self._headings, *outline.walls})
        self._anchors = anchors
        self._limits = limits
        self._tokens = tokens

    def spans(self) -> Iterator[tuple[int, int]]:
        covered = start = self._visible(0)
        while start < len(self._text):
            cut = self._cut(start, covered)
            end = start + len(self._text[start:cut].rstrip())
            yield start, end
            following = self._visible(cut)
            if following >= len(self._text):
                return
            start = self._resume(start, cut, following)
            covered = following

    def _cut(self, start: int, covered: int) -> int:
        """Where the chunk that begins at `start` ends; beyond the character `covered`, which is the first new one."""
        after = bisect_right(self._anchors, max(covered, start))
        stop = self._anchors[after] if after < len(self._anchors) else len(self._text)
        latest = self._reach(start, 1.0)
        if latest >= stop:
            return stop
        earliest = min(max(self._reach(start, 0.5) + 1, covered + 1), latest)
        # What is left of the piece is shared out where that costs no better place, so that its end is no scrap.
        shared = max(self._reach(start, 0.75), earliest) if self._reach(start, 1.5) >= stop else latest
        heading = bisect_right(self._headings, latest) - 1
        if heading >= 0 and self._headings[heading] >= earliest:
            return self._headings[heading]
        for pattern in _PROSE if self._outline.line_block(latest - 1) is None else _LINES:
            cut = self._last(pattern, earliest, shared) or self._last(pattern, shared, latest)
            if cut is not None:
                return cut
        # From the end backwards, not into the middle of a visible character unless it fills the chunk.
        return next((cut for cut in range(latest, earliest, -1) if self._is_boundary(cut)), latest)

    def _reach(self, start: int, share: float) -> int:
        """How far the text from `start` on fits into `share` of a chunk; at least one character."""
        most = int(self._limits.letters * share)
        room = np.cumsum(letters(self._text[start : start + most]))
        reached = int(np.searchsorted(room, most, side="right"))
        if self._tokens is not None:
            counted = np.cumsum(self._tokens[start : start + reached], dtype=np.int64)
            reached = int(np.searchsorted(counted, int(self._limits.tokens * share), side="right"))
        return start + max(reached, 1)

    def _last(self, pattern: re.Pattern[str], earliest: int, latest: int) -> int | None:
        """The last place from `earliest` to `latest` that `pattern` ends at; a blank may also follow it there."""
        ends = [
            match.start() if match.group().isspace() else match.end()
            for match in pattern.finditer(self._text, earliest, min(latest + 2, len(self._text)))
        ]
        return max((end for end in ends if earliest <= end <= latest), default=None)

    def _resume(self, start: int, cut: int, following: int) -> int:
        """Where the next chunk begins: before `cut` by the overlap, or at the `following` visible character."""
        parted = bisect_left(self._parted, cut)
        if parted < len(self._parted) and self._parted[parted] <= following:
            return following
        floor = self._floor(start, cut)
        block = self._outline.line_block(following)
        patterns: tuple[re.Pattern[str], ...] = (_RESUMES, _WORD)
        if block is not None:
            # A table's row, or an item, is repeated as a whole; and only of the same block.
            patterns, floor = (_LINE,), max(floor, block.start)
        if floor >= cut:
            return following
        found = None
        for pattern in patterns:
            found = pattern.search(self._text, floor, cut)
            begin = self._visible(found.end()) if found else cut
            if begin < cut:
                return begin
        if found or block is not None:
            return following
        whole = (begin for begin in range(floor, cut) if self._is_boundary(begin))
        return next(whole, following)

    def _floor(self, start: int, cut: int) -> int:
        """As far before `cut` as the overlap has room."""
        overlap = self._limits.overlap_letters
        first = max(start + 1, cut - overlap)
        room = np.cumsum(letters(self._text[first:cut])[::-1])
        count = int(np.searchsorted(room, overlap, side="right"))
        if self._tokens is not None and count:
            counted = np.cumsum(self._tokens[cut - count : cut][::-1], dtype=np.int64)
            count = int(np.searchsorted(counted, self._limits.overlap_tokens, side="right"))
        return cut - count

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
