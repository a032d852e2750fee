"""From the pieces of a PDF's pages to headings, paragraphs, lists and tables."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from indexing.parse.building import Building
from indexing.parse.model import Kind
from indexing.parse.pdf_aligned import aligned
from indexing.parse.pdf_page import Page, Piece
from indexing.parse.pdf_tables import Table, grids, ruled

_BULLET = re.compile(r"^[●○•▪■□◦‣⁃❖➢✓\uf0b7\uf0a7]\s*")
_ITEM = re.compile(r"^(?:[-–*]|\(?(?:\d{1,3}|[a-zA-Z])[.)])\s+\S")
_LARGER: Final = 1.15
_MAX_HEADING: Final = 150
_COLUMN_POINTS: Final = 6.0
_REPEATS: Final = 3
"""Pages that a line has to stand on, at the top or bottom, to be a header or footer."""


class Line(NamedTuple):
    text: str
    x: float
    y: float
    size: float
    bold: bool
    hidden: bool


Item = Line | Table


class Style(NamedTuple):
    """Of the whole document: the size of most of its text, the larger sizes from the largest on, and whether most of
    it is bold."""

    body: float
    larger: tuple[float, ...]
    bold: bool
    pitch: float


def flow(page: Page) -> list[Item]:
    """The lines and tables of a page in the file's order; a table stands where its first cell does."""
    found: list[tuple[Table, list[Piece]]] = []
    rest = [piece for piece in page.pieces if not piece.hidden]
    for grid in grids(page.rules):
        inside = [piece for piece in rest if grid.holds(piece)]
        table = ruled(grid, inside)
        if table is not None:
            found.append((table, inside))
            taken = {id(piece) for piece in inside}
            rest = [piece for piece in rest if id(piece) not in taken]
    found.extend(aligned(rest))
    owner = {id(piece): index for index, (_, pieces) in enumerate(found) for piece in pieces}
    items: list[Item] = []
    placed: set[int] = set()
    run: list[Piece] = []
    for piece in page.pieces:
        index = owner.get(id(piece))
        if index is None:
            run.append(piece)
        elif index not in placed:
            items.extend(_lines(run))
            run = []
            items.append(found[index][0])
            placed.add(index)
    items.extend(_lines(run))
    return items


def _lines(pieces: Sequence[Piece]) -> Iterator[Line]:
    line: list[Piece] = []
    for piece in pieces:
        first, *others = piece.text.split("\n")
        line.append(piece._replace(text=first))
        for part in others:
            yield _line(line)
            line = [piece._replace(text=part)]
    yield _line(line)


def _line(pieces: Sequence[Piece]) -> Line:
    text = "".join(piece.text for piece in pieces).rstrip()
    written = [piece for piece in pieces if piece.text.strip()]
    if not written:
        return Line("", 0.0, 0.0, 0.0, False, False)
    sizes: Counter[float] = Counter()
    for piece in written:
        sizes[round(piece.size * 2) / 2] += len(piece.text.strip())
    total = sizes.total()
    hidden = sum(len(piece.text.strip()) for piece in written if piece.hidden)
    bold = all(piece.bold for piece in written if any(character.isalnum() for character in piece.text))
    return Line(text, written[0].x, written[0].y, sizes.most_common(1)[0][0], bold, hidden * 2 > total)


def style(pages: Sequence[Sequence[Item]]) -> Style:
    sizes: Counter[float] = Counter()
    bold = plain = 0
    gaps = []
    for items in pages:
        before: Line | None = None
        for item in items:
            if not isinstance(item, Line) or not item.text or item.hidden:
                continue
            sizes[item.size] += len(item.text)
            bold, plain = (bold + len(item.text), plain) if item.bold else (bold, plain + len(item.text))
            if before is not None and before.size == item.size and 0 < before.y - item.y < 5 * item.size:
                gaps.append((before.y - item.y) / item.size if item.size else 0)
            before = item
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    larger = tuple(sorted((size for size in sizes if body and size >= _LARGER * body), reverse=True)[:4])
    return Style(body, larger, bold > plain, statistics.median(gaps) if gaps else 1.2)


def margins(pages: Sequence[Sequence[Item]]) -> dict[int, dict[int, Kind]]:
    """Lines that stand first or last on several pages: page -> index of the item -> header or footer. The number of
    the page does not tell them apart."""
    seen: dict[tuple[Kind, str], list[tuple[int, int]]] = {}
    for number, items in enumerate(pages):
        written = [index for index, item in enumerate(items) if isinstance(item, Table) or item.text]
        if len(written) < 3:
            continue
        for kind, index in ((Kind.HEADER, written[0]), (Kind.FOOTER, written[-1])):
            item = items[index]
            if isinstance(item, Line) and not item.hidden:
                seen.setdefault((kind, _unnumbered(item.text, number)), []).append((number, index))
    found: dict[int, dict[int, Kind]] = {}
    for (kind, _), places in seen.items():
        for number, index in places if len(places) >= _REPEATS else ():
            found.setdefault(number, {})[index] = kind
    return found


def _unnumbered(text: str, page: int) -> str:
    return re.sub(rf"(?<!\d){page + 1}(?!\d)", "#", text.strip(), count=1)


class Writer:
    """Puts the items of one page after another into a `Building`."""

    def __init__(self, building: Building, style: Style, outline: Mapping[int, Mapping[str, int]]) -> None:
        self._building = building
        self._style = style
        self._outline = outline
        self._table: Table | None = None
        self._header = ""
        self._margins: set[str] = set()

    def write(self, number: int, items: Sequence[Item], margins: Mapping[int, Kind]) -> None:
        """`number` of the page from 0 on. A header or footer is written once, after the page that has it first."""
        titles = self._outline.get(number, {})
        paragraph: list[Line] = []
        first = True
        for index, item in enumerate(items):
            if isinstance(item, Table):
                self._flush(paragraph, titles)
                self._add_table(item, first=first)
                first = False
            elif index not in margins:
                if not item.text or (paragraph and self._parts(paragraph[-1], item)):
                    self._flush(paragraph, titles)
                if item.text:
                    paragraph.append(item)
                    first = False
        self._flush(paragraph, titles)
        for index, kind in margins.items():
            item = items[index]
            if isinstance(item, Line) and (key := _unnumbered(item.text, number)) not in self._margins:
                self._margins.add(key)
                self._building.add(item.text.strip(), kind)

    def _parts(self, before: Line, line: Line) -> bool:
        """Whether a new block begins between two lines."""
        if before.hidden != line.hidden or abs(before.size - line.size) > 0.1 * max(before.size, 1.0):
            return True
        if before.bold != line.bold and not self._style.bold and self._is_title(before if before.bold else line):
            return True
        gap = before.y - line.y
        return gap < -line.size or gap > 1.35 * self._style.pitch * line.size > 0

    def _flush(self, lines: list[Line], titles: Mapping[str, int]) -> None:
        """Write what has been gathered, and begin anew."""
        if not lines:
            return
        self._table = None
        level = self._level(lines, titles)
        if level:
            self._building.add(" ".join(line.text.strip() for line in lines), Kind.HEADING, level=level)
        else:
            self._paragraph(lines)
        lines.clear()

    def _paragraph(self, lines: Sequence[Line]) -> None:
        """Prose and list items by turns; a list begins at a bullet and ends where a line stands left of it."""
        hidden = lines[0].hidden
        part: list[str] = []
        edge: float | None = None
        for line in lines:
            text, bullets = _BULLET.subn("- ", line.text.lstrip())
            item = bool(bullets) or _ITEM.match(text) is not None
            if part and (item if edge is None else not item and line.x < edge - 2):
                self._building.add("\n".join(part), Kind.PARAGRAPH if edge is None else Kind.LIST, hidden=hidden)
                part, edge = [], None
            part.append(text if item else line.text)
            edge = line.x if item else edge
        self._building.add("\n".join(part), Kind.PARAGRAPH if edge is None else Kind.LIST, hidden=hidden)

    def _level(self, lines: Sequence[Line], titles: Mapping[str, int]) -> int:
        """The level of a heading, or 0: by the outline, else by size, else because it stands alone in bold."""
        text = " ".join(" ".join(line.text.split()) for line in lines)
        if len(text) > _MAX_HEADING or lines[0].hidden or not any(character.isalpha() for character in text):
            return 0
        level = titles.get(text.casefold(), 0)
        if level or _BULLET.match(text):
            return level
        size = lines[0].size
        if size in self._style.larger:
            return 1 + self._style.larger.index(size)
        alone = len(lines) <= 3 and not self._style.bold and all(map(self._is_title, lines))
        return 1 + len(self._style.larger) if alone else 0

    def _is_title(self, line: Line) -> bool:
        return line.bold and len(line.text) <= 100 and line.text.rstrip()[-1:] not in {".", ",", ";"}

    def _add_table(self, table: Table, *, first: bool) -> None:
        """A table in the columns of the last one, from which no text but a page or a column's end divides it, is its
        continuation and keeps the header."""
        rows = [" | ".join(row) for row in table.rows]
        last, header = self._table, rows[0]
        if last is not None and (first or table.top > last.bottom + 1) and _same_columns(last.columns, table.columns):
            header = self._header
        self._building.add("\n".join(rows), Kind.TABLE, header=header)
        self._table, self._header = table, header


def _same_columns(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == len(other) and all(
        abs((left - one[0]) - (right - other[0])) <= _COLUMN_POINTS for left, right in zip(one, other, strict=True)
    )
