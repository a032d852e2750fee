"""Paragraphs, cells and notes of an RTF file, gathered into blocks."""

from __future__ import annotations

from typing import Final, NamedTuple

from indexing.parse.model import Kind

_MAX_CELLS: Final = 1_000


class Piece(NamedTuple):
    """What `Building.add` takes."""

    text: str
    kind: Kind
    level: int = 0
    header: str | None = None
    hidden: bool = False


class Flow:
    """The body of a document, or a note, header or footer of it. `kind` is that of its paragraphs."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._pieces: list[Piece] = []
        self._seen: list[str] = []
        self._hidden: list[str] = []
        self._items: list[str] = []
        self._cells: list[str] = []
        self._rows: list[str] = []
        self._later: list[Piece] = []
        """Notes, and hidden text of cells: after the paragraph, list or table in which they stand."""

    def text(self, text: str, *, hidden: bool) -> None:
        (self._hidden if hidden else self._seen).append(text)

    def end_paragraph(self, level: int, *, listed: bool) -> None:
        """`level` of a heading from 1 on, or 0."""
        seen, hidden = _taken(self._seen), _taken(self._hidden)
        self._end_rows()
        if listed and seen and not level:
            self._items.append("- " + seen)
        elif seen:
            self._end_items()
            kind = Kind.HEADING if level and self.kind is Kind.PARAGRAPH else self.kind
            self._pieces.append(Piece(seen, kind, level))
        if hidden:
            self._later.append(Piece(hidden, self.kind, hidden=True))
        if not self._items:
            self._end_later()

    def end_cell(self) -> None:
        self._end_items()
        hidden = _taken(self._hidden)
        if hidden:
            self._later.append(Piece(hidden, self.kind, hidden=True))
        cell = " ".join(_taken(self._seen).split())
        if len(self._cells) < _MAX_CELLS:
            self._cells.append(cell)

    def end_row(self) -> None:
        if any(self._cells):
            self._rows.append(" | ".join(self._cells))
        self._cells.clear()

    def note(self, flow: Flow) -> None:
        """What a note or comment holds, to stand after the paragraph that is being read."""
        self._later.extend(flow.pieces())

    def pieces(self) -> list[Piece]:
        """All that was gathered; the flow ends."""
        self.end_paragraph(0, listed=False)
        self._end_items()
        self._end_later()
        return self._pieces

    def _end_items(self) -> None:
        if self._items:
            kind = Kind.LIST if self.kind is Kind.PARAGRAPH else self.kind
            self._pieces.append(Piece("\n".join(self._items), kind))
            self._items.clear()
            self._end_later()

    def _end_rows(self) -> None:
        self.end_row()
        if self._rows:
            self._pieces.append(Piece("\n".join(self._rows), Kind.TABLE, header=self._rows[0]))
            self._rows.clear()
            self._end_later()

    def _end_later(self) -> None:
        self._pieces.extend(self._later)
        self._later.clear()


def _taken(parts: list[str]) -> str:
    """The text of `parts`, which are emptied. `\\u` gives characters beyond the first plane as two halves."""
    text = "".join(parts).strip()
    parts.clear()
    if any("\ud800" <= character <= "\udfff" for character in text) if not text.isascii() else False:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
