"""A passage that search returned: one chunk of one document version, readable by the caller."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """`text` is the document's text from `start` to `end` (characters); `score` orders passages of one search.

    `chunk` outlives edits elsewhere in the document, `chunk_id` is of this version alone. `context` are the headings
    above the text and the header of its table, `place` is where it begins ("page 3"), `turns` are the offsets of places
    that begin inside of it, `hidden` says that a person who opens the file does not see it.
    """

    document: str
    document_id: int
    title: str
    version: str
    chunk: str
    chunk_id: int
    start: int
    end: int
    text: str
    score: float
    context: str | None = None
    place: str | None = None
    turns: tuple[tuple[int, str], ...] = ()
    hidden: bool = False

    def place_at(self, offset: int) -> str | None:
        """Where in the document the character `offset` is found."""
        found = bisect_right(self.turns, offset, key=lambda turn: turn[0]) - 1
        return self.turns[found][1] if found >= 0 else self.place
