"""The walk over WordprocessingML (ECMA-376 part 1, section 17) that gathers text in reading order.

Elements are told by their local name, so that the transitional and the strict namespaces both work, and so
do formulas and drawings, whose text elements are called `t` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from indexing.parse.model import Kind
from indexing.parse.package import Element, attribute, child, local

_SKIPPED: Final = frozenset(
    {"del", "moveFrom", "delText", "instrText", "delInstrText", "Fallback", "rt"}
    | {"pPr", "rPr", "tblPr", "tblGrid", "trPr", "tcPr", "sectPr", "sdtPr", "sdtEndPr"}
)
_FALSE: Final = frozenset({"0", "false", "off"})
_INLINE: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_NOTES: Final = {"footnoteReference": "footnote", "endnoteReference": "endnote", "commentReference": "comment"}
_TINY_HALF_POINTS: Final = 4
_MAX_INHERITED: Final = 16
_MAX_REPEATED: Final = 200
"""Characters of a merged cell that each row which it covers repeats, and columns that a cell may span."""


class Piece(NamedTuple):
    """What `Building.add` takes."""

    text: str
    kind: Kind = Kind.PARAGRAPH
    level: int = 0
    header: str | None = None
    hidden: bool = False


class Styles(NamedTuple):
    """Style ids: heading level by id, those whose paragraphs are list items, and those that hide their text."""

    headings: Mapping[str, int]
    lists: frozenset[str]
    hidden: frozenset[str]


@dataclass(slots=True)
class _Line:
    """A paragraph on its way: what is seen, what is hidden, and the blocks that follow it."""

    seen: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    after: list[Piece] = field(default_factory=list)


def read_styles(root: Element | None) -> Styles:
    """A style has what it says itself, and otherwise what the style that it is based on has."""
    headings: dict[str, int] = {}
    lists: set[str] = set()
    hidden: set[str] = set()
    bases: dict[str, str] = {}
    for style in root if root is not None else ():
        identifier = attribute(style, "styleId")
        if local(style) != "style" or identifier is None:
            continue
        bases[identifier] = _value(child(style, "basedOn")) or ""
        properties = child(style, "pPr")
        # The name is English in every language edition; the id is not.
        name = (_value(child(style, "name")) or "").lower()
        level = "1" if name == "title" else name.removeprefix("heading ") if name.startswith("heading ") else ""
        if level.isdecimal() and 1 <= int(level) <= 9:
            headings[identifier] = min(int(level), 6)
        elif _outline(properties):
            headings[identifier] = _outline(properties)
        if _is_numbered(properties):
            lists.add(identifier)
        if _conceals(child(style, "rPr")):
            hidden.add(identifier)
    for identifier in bases:
        ancestor = bases[identifier]
        for _ in range(_MAX_INHERITED):
            if identifier not in headings and ancestor in headings:
                headings[identifier] = headings[ancestor]
            lists |= {identifier} if ancestor in lists else set()
            hidden |= {identifier} if ancestor in hidden else set()
            ancestor = bases.get(ancestor, "")
    return Styles(headings, frozenset(lists - headings.keys()), frozenset(hidden))


class Story:
    """One part's text as pieces. `notes` gives the pieces of a note or comment by its kind and id, `imported` those of
    an altChunk."""

    def __init__(
        self,
        styles: Styles,
        notes: Mapping[tuple[str, str], list[Piece]],
        imported: Callable[[str], list[Piece]],
    ) -> None:
        self.used: set[tuple[str, str]] = set()
        """The notes that the text refers to."""
        self._styles = styles
        self._notes = notes
        self._imported = imported

    def pieces(self, element: Element, *, framed: bool = False) -> Iterator[Piece]:
        """Paragraphs, lists and tables below `element`, in order. `framed`: on a ground of unknown colour."""
        items: list[str] = []
        after: list[Piece] = []
        for piece in self._flat(element, framed):
            # Items that follow each other are one list; notes to them wait for its end.
            if piece.kind is Kind.LIST and not piece.hidden:
                items.append(piece.text)
            elif items and (piece.kind in {Kind.FOOTNOTE, Kind.COMMENT} or piece.hidden):
                after.append(piece)
            else:
                yield from _list(items, after)
                items, after = [], []
                yield piece
        yield from _list(items, after)

    def _flat(self, element: Element, framed: bool) -> Iterator[Piece]:
        for item in element:
            name = local(item)
            if name == "p":
                yield from self._paragraph(item, framed)
            elif name == "tbl":
                yield from self._table(item)
            elif name == "altChunk":
                yield from self._imported(attribute(item, "id") or "")
            elif name and name not in _SKIPPED:
                yield from self._flat(item, framed)

    def _table(self, table: Element) -> Iterator[Piece]:
        """The rows, then the notes to them and what is hidden in them."""
        rows: list[str] = []
        after: list[Piece] = []
        above: dict[int, str] = {}
        for row in _below(table, "tr"):
            cells: list[str] = []
            column = 0
            for cell in _below(row, "tc"):
                properties = child(cell, "tcPr")
                merged = child(properties, "vMerge")
                text = self._cell(cell, after)
                if merged is not None and _value(merged) in {None, "continue"}:
                    # What such a cell still holds, the one above it covers.
                    after += [Piece(text, hidden=True)] if text else []
                    text = above.get(column, "")
                above[column] = text if len(text) <= _MAX_REPEATED else ""
                cells.append(text)
                span = _value(child(properties, "gridSpan")) or "1"
                column += min(int(span), _MAX_REPEATED) if span.isdecimal() else 1
            if any(cells):
                rows.append(" | ".join(cells))
        if rows:
            yield Piece("\n".join(rows), Kind.TABLE, header=rows[0])
        yield from after

    def _cell(self, cell: Element, after: list[Piece]) -> str:
        texts = []
        for piece in self.pieces(cell, framed=True):
            if piece.hidden or piece.kind in {Kind.FOOTNOTE, Kind.COMMENT}:
                after.append(piece)
            else:
                texts.append(piece.text)
        return " ".join(" / ".join(texts).split())

    def _paragraph(self, paragraph: Element, framed: bool) -> Iterator[Piece]:
        """The paragraph, what is hidden in it, the text boxes anchored in it, the notes that it refers to."""
        properties = child(paragraph, "pPr")
        style = _value(child(properties, "pStyle")) or ""
        line = _Line()
        shaded = framed or child(properties, "shd") is not None
        self._inline(paragraph, line, hidden=style in self._styles.hidden, shaded=shaded)
        text = "".join(line.seen).strip()
        if text:
            level = self._styles.headings.get(style) or _outline(properties)
            if level:
                yield Piece(" ".join(text.split()), Kind.HEADING, level)
            elif _is_numbered(properties) or (style in self._styles.lists and not _is_unnumbered(properties)):
                indent = _value(child(properties, "numPr", "ilvl")) or "0"
                yield Piece("  " * min(int(indent) if indent.isdecimal() else 0, 8) + "- " + text, Kind.LIST)
            else:
                yield Piece(text)
        hidden = "".join(line.hidden).strip()
        if hidden:
            yield Piece(hidden, hidden=True)
        yield from line.after

    def _inline(self, element: Element, line: _Line, *, hidden: bool, shaded: bool) -> None:
        target = line.hidden if hidden else line.seen
        for item in element:
            name = local(item)
            if name == "t":
                target.append(item.text or "")
            elif name in _INLINE:
                target.append(_INLINE[name])
            elif name == "txbxContent":
                line.after.extend(
                    piece._replace(hidden=piece.hidden or hidden) for piece in self.pieces(item, framed=True)
                )
            elif name in _NOTES:
                key = (_NOTES[name], attribute(item, "id") or "")
                if key not in self.used:
                    self.used.add(key)
                    line.after.extend(self._notes.get(key, ()))
            elif name and name not in _SKIPPED:
                unseen = hidden or (name == "r" and self._is_hidden(item, shaded))
                self._inline(item, line, hidden=unseen, shaded=shaded)

    def _is_hidden(self, run: Element, shaded: bool) -> bool:
        properties = child(run, "rPr")
        if properties is None:
            return False
        if not shaded and child(properties, "shd") is None and child(properties, "highlight") is None:
            colour = (_value(child(properties, "color")) or "").lower()
            if colour == "ffffff":
                return True
        return _conceals(properties) or (_value(child(properties, "rStyle")) or "") in self._styles.hidden


def _list(items: list[str], after: list[Piece]) -> Iterator[Piece]:
    if items:
        yield Piece("\n".join(items), Kind.LIST)
    yield from after


def _below(element: Element, name: str) -> Iterator[Element]:
    """The nearest elements of that name, also in content controls and tracked insertions."""
    for item in element:
        if local(item) == name:
            yield item
        elif local(item) not in _SKIPPED:
            yield from _below(item, name)


def _value(element: Element | None) -> str | None:
    return None if element is None else attribute(element, "val")


def _is_numbered(properties: Element | None) -> bool:
    numbering = child(properties, "numPr")
    return numbering is not None and _value(child(numbering, "numId")) != "0"


def _is_unnumbered(properties: Element | None) -> bool:
    return _value(child(properties, "numPr", "numId")) == "0"


def _conceals(properties: Element | None) -> bool:
    """Whether run properties make text invisible: `vanish`, or a size of two points at most."""
    vanish = child(properties, "vanish")
    if vanish is not None and (_value(vanish) or "true").lower() not in _FALSE:
        return True
    size = _value(child(properties, "sz")) or ""
    return size.isdecimal() and int(size) <= _TINY_HALF_POINTS


def _outline(properties: Element | None) -> int:
    """The level of a paragraph that is a heading by its outline level (0 to 8; 9 is body text), or 0."""
    level = _value(child(properties, "outlineLvl")) or ""
    return min(int(level) + 1, 6) if level.isdecimal() and int(level) < 9 else 0
