"""The structure of a document's text as chunking needs it: headings, tables, what is cut by lines, what is hidden.

From the blocks of its parser; headings of a text without blocks are read from its Markdown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from indexing.parse.model import Block, Kind

MAX_HEADING: Final = 200
MAX_PATH: Final = 200
PATH_MARK: Final = " > "
"""Between the headings of a path."""

MAX_HEADER: Final = 400

_MARKS = re.compile(r"^ {0,3}(?:(`{3,}|~{3,})|(?=(#{1,6})[ \t]+\S)([^\n]{1,400}))", re.MULTILINE)
_BY_LINES: Final = frozenset({Kind.LIST, Kind.TABLE, Kind.CODE})


class Heading(NamedTuple):
    start: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Outline:
    """`by_lines` are blocks that are cut between lines only; `walls` are offsets over which no chunk reaches and that
    none repeats text of: where visible text and hidden text meet.
    """

    headings: tuple[Heading, ...]
    by_lines: tuple[Block, ...]
    hidden: tuple[Block, ...]
    walls: tuple[int, ...]

    @classmethod
    def of(cls, text: str, blocks: Sequence[Block] = ()) -> Outline:
        headings = [
            Heading(block.start, max(block.level, 1), _title(text[block.start : block.end]))
            for block in blocks
            if block.kind is Kind.HEADING and not block.hidden
        ]
        hidden = tuple(block for block in blocks if block.hidden)
        if len(hidden) == len(blocks):
            # Nothing but what is hidden is known of it: headings are those of its Markdown that can be seen.
            headings = [heading for heading in _marked(text) if _around(hidden, heading.start) is None]
        return cls(
            tuple(headings),
            tuple(block for block in blocks if block.kind in _BY_LINES),
            hidden,
            _walls(text, hidden),
        )

    def nearest(self, position: int) -> str | None:
        """The last heading that begins at `position` or before."""
        found = bisect_right(self.headings, position, key=lambda heading: heading.start) - 1
        return self.headings[found].text or None if found >= 0 else None

    def line_block(self, position: int) -> Block | None:
        """The block around the character `position` that is cut between lines only, if there is one."""
        return _around(self.by_lines, position)

    def header(self, position: int) -> str | None:
        """The header of the table that `position` is in, behind that header."""
        block = _around(self.by_lines, position)
        return None if block is None or position == block.start or not block.header else block.header[:MAX_HEADER]

    def is_hidden(self, start: int, end: int) -> bool:
        """Whether some text from `start` to `end` is hidden."""
        found = bisect_right(self.hidden, end - 1, key=lambda block: block.start) - 1
        return found >= 0 and self.hidden[found].end > start


class Paths:
    """The headings that stand above ascending positions."""

    def __init__(self, headings: Sequence[Heading]) -> None:
        self._headings = headings
        self._next = 0
        self._open: list[Heading] = []

    def above(self, position: int) -> str | None:
        """The headings above the text at `position`, outermost first, without one that begins right there."""
        while self._next < len(self._headings) and self._headings[self._next].start <= position:
            heading = self._headings[self._next]
            while self._open and self._open[-1].level >= heading.level:
                self._open.pop()
            self._open.append(heading)
            self._next += 1
        names = [heading.text for heading in self._open if heading.start < position and heading.text]
        while len(names) > 1 and sum(map(len, names)) > MAX_PATH:
            # The nearest ones say most about the text.
            names.pop(0)
        return PATH_MARK.join(names)[:MAX_PATH] or None


def _around(blocks: Sequence[Block], position: int) -> Block | None:
    found = bisect_right(blocks, position, key=lambda block: block.start) - 1
    return blocks[found] if found >= 0 and position < blocks[found].end else None


def _walls(text: str, hidden: Sequence[Block]) -> tuple[int, ...]:
    """Where hidden text begins, and where visible text begins again."""
    walls: list[int] = []
    for block in hidden:
        if walls and not text[walls[-1] : block.start].strip():
            walls.pop()
        else:
            walls.append(block.start)
        walls.append(block.end)
    return tuple(walls)


def _title(line: str) -> str:
    return " ".join(line.strip("# \t\r\n").split())[:MAX_HEADING].rstrip()


def _marked(text: str) -> list[Heading]:
    """Markdown headings ("# ...") outside fenced code, in order."""
    headings: list[Heading] = []
    fence = ""
    for match in _MARKS.finditer(text):
        mark, hashes, line = match.groups()
        if mark:
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = ""
        elif not fence:
            headings.append(Heading(match.start(), len(hashes), _title(line)))
    return headings
