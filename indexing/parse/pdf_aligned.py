"""Tables of a PDF page without rules: cells that the file writes row by row and that stand in common columns.

Columns of a page stand side by side too, but are written one after the other. Where the signs are weak the text stays
as it runs: a table missed costs its header, two columns of prose taken for a table cost their order.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexing.parse.pdf_page import Piece
from indexing.parse.pdf_tables import Table, joined

_MIN_ROWS: Final = 3
_MAX_CELL: Final = 300
_TYPICAL_CELL: Final = 40
_MARK: Final = 3
"""Characters of a bullet or a number in front of a list item."""


@dataclass(slots=True)
class _Cell:
    """Lines that stand closely below each other. `top` and `bottom` are the baselines of the first and the last."""

    pieces: list[Piece]

    @property
    def left(self) -> float:
        return self.pieces[0].x

    @property
    def size(self) -> float:
        return self.pieces[0].size

    @property
    def top(self) -> float:
        return self.pieces[0].y

    @property
    def bottom(self) -> float:
        return self.pieces[-1].y

    @property
    def right(self) -> float:
        return max(_end(piece) for piece in self.pieces)


def aligned(pieces: Sequence[Piece]) -> list[tuple[Table, list[Piece]]]:
    """Tables among `pieces`, which are in the file's order, each with the pieces that it takes."""
    rows = _rows(_cells(pieces))
    tables = []
    start = free = 0
    while start < len(rows):
        end = start + 1
        starts = [cell.left for cell in rows[start]]
        placed = [list(range(len(starts)))]
        pitch = float("inf")
        while len(starts) > 1 and end < len(rows) and (columns := _columns(rows[end - 1], rows[end], starts)):
            gap = _gap(rows[end - 1], rows[end])
            # A line by itself that stands further off is what follows the table.
            if gap > (1.3 if len(columns) == 1 else 2.0) * pitch:
                break
            pitch = gap if end == start + 1 else max(pitch, gap)
            placed.append(columns)
            end += 1
        if start > free and end > start + 1 and _heads(rows[start - 1], rows[start], starts):
            start -= 1
            placed.insert(0, list(range(len(starts))))
        table = _table(rows[start:end], placed, starts)
        if table is not None:
            tables.append((table, [piece for row in rows[start:end] for cell in row for piece in cell.pieces]))
            free = end
        # Rows that fit a first row which makes no table make none by themselves.
        start = end
    return tables


def _heads(above: Sequence[_Cell], row: Sequence[_Cell], starts: Sequence[float]) -> bool:
    """Whether `above` is the header of a table that begins with `row`: its cells may stand in the middle of columns."""
    if len(above) != len(starts) or not 0 < _gap(above, row) <= 4 * row[0].size:
        return False
    ends = [*starts[1:], float("inf")]
    return all(
        start - cell.size <= cell.left and cell.right <= end + cell.size
        for cell, start, end in zip(above, starts, ends, strict=True)
    )


def _cells(pieces: Sequence[Piece]) -> list[_Cell]:
    cells: list[_Cell] = []
    for piece in pieces:
        if not piece.text.strip():
            continue
        before = cells[-1].pieces[-1] if cells else None
        if before is not None:
            drop = before.y - piece.y
            if _is_level(before, piece):
                goes_on = -piece.size <= piece.x - _end(before) <= 1.5 * piece.size
            else:
                goes_on = 0 < drop <= 1.8 * piece.size and abs(piece.x - cells[-1].left) <= 2 * piece.size
            if goes_on:
                cells[-1].pieces.append(piece)
                continue
        cells.append(_Cell([piece]))
    return cells


def _rows(cells: Sequence[_Cell]) -> list[list[_Cell]]:
    """Cells that follow each other to the right, at one height."""
    rows: list[list[_Cell]] = []
    for cell in cells:
        row = rows[-1] if rows else []
        beside = row and cell.left > row[-1].left + cell.size
        slack = cell.size / 2
        level = row and cell.top >= row[-1].bottom - slack and cell.bottom <= row[0].top + slack
        if beside and level:
            row.append(cell)
        else:
            rows.append([cell])
    return rows


def _columns(above: Sequence[_Cell], row: Sequence[_Cell], starts: Sequence[float]) -> list[int]:
    """The column of each cell of `row`; none if the row does not belong to the table of `above`."""
    if not 0 < _gap(above, row) <= 4 * row[0].size:
        return []
    columns = [bisect_right(starts, cell.left + 2 * cell.size) - 1 for cell in row]
    if columns[0] < 0 or len(set(columns)) != len(columns):
        return []
    ends = [*starts[1:], float("inf")]
    for cell, column in zip(row, columns, strict=True):
        # Far right of its column's start is no cell of it; a right-aligned number stands close enough. One that reaches
        # over the next column's start is a line of prose.
        if cell.left - starts[column] > 8 * cell.size or cell.right > ends[column] + cell.size:
            return []
    return columns


def _table(rows: Sequence[list[_Cell]], placed: Sequence[list[int]], starts: list[float]) -> Table | None:
    if len(rows) < _MIN_ROWS:
        return None
    texts = []
    for row, columns in zip(rows, placed, strict=True):
        cells = [""] * len(starts)
        for cell, column in zip(row, columns, strict=True):
            cells[column] = joined(cell.pieces)
        texts.append(cells)
    lengths = [len(cell) for row in texts for cell in row if cell]
    full = sum(1 for row in rows if len(row) > 1)
    if (
        max(lengths) > _MAX_CELL
        or statistics.median(lengths) > _TYPICAL_CELL
        or full * 2 < len(rows)
        or full < _MIN_ROWS
    ):
        return None
    if len(starts) == 2 and statistics.median(len(row[0]) for row in texts) <= _MARK:
        return None
    return Table(texts, tuple(starts), rows[0][0].top, min(cell.bottom for cell in rows[-1]))


def _gap(above: Sequence[_Cell], row: Sequence[_Cell]) -> float:
    return min(cell.bottom for cell in above) - max(cell.top for cell in row)


def _is_level(one: Piece, other: Piece) -> bool:
    return abs(one.y - other.y) <= max(2.0, other.size * 0.3)


def _end(piece: Piece) -> float:
    """About where a piece ends: the widths of glyphs are not known here; on average one is half as wide as high."""
    return piece.x + 0.5 * piece.size * len(piece.text.strip())
