"""Nested data as text that a person can read: a line a value, indented below the name that it belongs to.

name: Ana
address:
  city: Oslo
hobbies:
  - reading
"""

from __future__ import annotations

import re
from typing import Final

from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure

MAX_INDENT: Final = 16
"""Levels. What is deeper stands no further to the right."""
MAX_DEPTH: Final = 500
MAX_BLOB: Final = 512
"""Characters of base64 that a value may have; longer ones are pictures and the like."""

_BLOB = re.compile(r"(?:data:[\w.+-]+/[\w.+-]+;base64,)?[A-Za-z0-9+/=_\s-]+")


class Outline:
    """Lines of one block after another, bounded as a whole."""

    def __init__(self, building: Building, max_characters: int) -> None:
        self._building = building
        self._left = max_characters
        self._lines: list[str] = []
        self.removed = False
        """Whether embedded binary data was left out."""

    def line(self, depth: int, name: str, value: str | None = None) -> None:
        """A name with its value, or above what it holds. Raises `ParseFailure` ("too_large")."""
        self._add(depth, f"{name}:" if value is None else f"{name}: {self._shown(value)}")

    def item(self, depth: int, value: str | None = None) -> None:
        """An element of a list, or the line above what it holds."""
        self._add(depth, "-" if value is None else f"- {self._shown(value)}")

    def bare(self, value: str) -> None:
        self._add(0, self._shown(value))

    def _add(self, depth: int, text: str) -> None:
        if depth > MAX_DEPTH:
            raise ParseFailure("too_large", f"is nested more than {MAX_DEPTH} deep", remedy="flatten it")
        text = "  " * min(depth, MAX_INDENT) + text.rstrip()
        self._left -= len(text) + 1
        if self._left < 0:
            raise ParseFailure("too_large", "written out is longer than a document may be", remedy="split the file")
        self._lines.append(text)

    def end(self, place: str | None = None) -> None:
        """The lines so far are a block."""
        if self._lines and place is not None:
            self._building.place(place)
        self._building.add("\n".join(self._lines))
        self._lines = []

    def _shown(self, value: str) -> str:
        if len(value) > MAX_BLOB and _BLOB.fullmatch(value) and value.count(" ") < len(value) // 50:
            self.removed = True
            return ""
        return " ".join(value.split()) if "\n" not in value.strip() else value.strip()
