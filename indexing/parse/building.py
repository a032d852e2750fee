"""A document's text, put together block by block, so that blocks and places refer to the clean text."""

from __future__ import annotations

from typing import Final

from indexing.parse.failure import ParseFailure
from indexing.parse.model import Block, Kind, Place, clean

_GAP: Final = "\n\n"


class Building:
    """Blocks are divided by an empty line; blank ones are left out."""

    def __init__(self, max_characters: int) -> None:
        self._max = max_characters
        self._parts: list[str] = []
        self._length = 0
        self._blocks: list[Block] = []
        self._places: list[Place] = []
        self._place: str | None = None

    @property
    def is_empty(self) -> bool:
        return not self._parts

    @property
    def hidden(self) -> bool:
        """Whether any block is hidden."""
        return any(block.hidden for block in self._blocks)

    def place(self, label: str) -> None:
        """What is added from now on is found at `label`."""
        self._place = " ".join(clean(label).split())

    def add(
        self, text: str, kind: Kind = Kind.PARAGRAPH, *, level: int = 0, header: str | None = None, hidden: bool = False
    ) -> None:
        """Add a block. A heading gets its "#" here. Raises `ParseFailure` ("too_large") beyond `max_characters`."""
        text = clean(text).strip("\n").rstrip()
        if not text or text.isspace():
            return
        if kind is Kind.HEADING:
            text = "#" * min(max(level, 1), 6) + " " + " ".join(text.split())
        start = self._length + (len(_GAP) if self._parts else 0)
        end = start + len(text)
        if end > self._max:
            raise ParseFailure("too_large", f"holds more than {self._max} characters", remedy="split the file")
        if self._place is not None and (not self._places or self._places[-1].label != self._place):
            self._places.append(Place(start, self._place))
        self._parts.append(text)
        self._length = end
        self._blocks.append(Block(start, end, kind, level, clean(header) if header else None, hidden))

    def text(self) -> str:
        return _GAP.join(self._parts)

    def blocks(self) -> tuple[Block, ...]:
        return tuple(self._blocks)

    def places(self) -> tuple[Place, ...]:
        return tuple(self._places)
