"""Tables of a PDF page: cells between drawn rules, and rows whose cells stand in common columns without any.

A simple grid is looked for; a cell that spans several columns counts to the first. Where the signs are weak the text
stays as it runs: a table missed costs its header, two columns of prose taken for a table cost their order.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from indexing.parse.pdf_page import Piece, Rule

_GAP: Final = 4.0
"""Points that rules may miss each other by and still meet; word processors draw borders in bits."""
_MAX_CROSSINGS: Final = 250_000
_MIN_ROWS: Final = 3
_MIN_COLUMNS: Final = 3
_MAX_CELL: Final = 60
_TYPICAL_CELL: Final = 20


class Table(NamedTuple):
    """`rows` of cells; `columns` are the x of their left edges, by which its next page is known."""

    rows: list[list[str]]
    columns: tuple[float, ...]
    top: float
    bottom: float


class Grid(NamedTuple):
    """Lines of a ruled table: `xs` from left to right, `ys` from bottom to top."""

    xs: list[float]
    ys: list[float]

    def holds(self, piece: Piece) -> bool:
        middle = piece.y + piece.size / 3
        return self.xs[0] - 1 <= piece.x < self.xs[-1] and self.ys[0] <= middle <= self.ys[-1]

    def cell(self, piece: Piece) -> tuple[int, int]:
        """Row from the top and column of a piece that the grid holds."""
        above = bisect_right(self.ys, piece.y + piece.size / 3)
        row = min(max(len(self.ys) - 1 - above, 0), len(self.ys) - 2)
        return row, min(max(bisect_right(self.xs, piece.x + 1) - 1, 0), len(self.xs) - 2)


def grids(rules: Sequence[Rule]) -> list[Grid]:
    """Rules that meet, as grids of at least two columns."""
    across = _merged([rule for rule in rules if rule.horizontal])
    down = _merged([rule for rule in rules if not rule.horizontal])
    if not across or len(down) < 3 or len(across) * len(down) > _MAX_CROSSINGS:
        return []
    lines = [*across, *down]
    parents = list(range(len(lines)))

    def root(index: int) -> int:
        while parents[index] != index:
            parents[index] = parents[parents[index]]
            index = parents[index]
        return index

    for first, row in enumerate(across):
        for second, column in enumerate(down, len(across)):
            meets = (
                row.start - _GAP <= column.at <= row.end + _GAP and column.start - _GAP <= row.at <= column.end + _GAP
            )
            if meets:
                parents[root(first)] = root(second)
    groups: dict[int, list[Rule]] = defaultdict(list)
    for index, line in enumerate(lines):
        groups[root(index)].append(line)
    found = []
    for group in groups.values():
        xs = _distinct([line.at for line in group if not line.horizontal])
        ys = _distinct([line.at for line in group if line.horizontal])
        if len(xs) >= 3 and len(ys) >= 2:
            found.append(Grid(xs, ys))
    return found


def ruled(grid: Grid, pieces: Sequence[Piece]) -> Table | None:
    """The cells of `pieces`, all of which the grid holds; None where no row has two of them filled."""
    cells: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in pieces:
        if piece.text.strip():
            cells[grid.cell(piece)].append(piece)
    rows = [
        [_joined(cells.get((row, column), ())) for column in range(len(grid.xs) - 1)]
        for row in sorted({row for row, _ in cells})
    ]
    used = [column for column in range(len(grid.xs) - 1) if any(row[column] for row in rows)]
    if len(used) < 2 or not any(sum(1 for cell in row if cell) >= 2 for row in rows):
        return None
    columns = tuple(grid.xs[column] for column in used)
    return Table([[row[column] for column in used] for row in rows], columns, grid.ys[-1], grid.ys[0])


def aligned(pieces: Sequence[Piece]) -> list[tuple[Table, list[Piece]]]:
    """Tables without rules, each with the pieces that it takes.

    Only what the file writes row by row is one: columns of a page stand side by side too, but are written in turn.
    """
    rows = _visual_rows(pieces)
    order = {id(piece): index for index, piece in enumerate(piece for piece in pieces if piece.text.strip())}
    tables = []
    start = 0
    while start < len(rows):
        end = start + 1
        if len(rows[start]) >= _MIN_COLUMNS:
            starts = [cell[0].x for cell in rows[start]]
            placed = [list(range(len(starts)))]
            pitch = float("inf")
            while end < len(rows) and (columns := _columns(rows[end], starts)) is not None:
                if not _in_turn(rows[end - 1 : end + 1], order):
                    break
                gap = rows[end - 1][0][0].y - rows[end][0][0].y
                if gap > 1.5 * pitch:
                    break
                pitch = gap if pitch == float("inf") else max(pitch, gap)
                placed.append(columns)
                end += 1
            table = _aligned(rows[start:end], placed, starts)
            if table is not None:
                tables.append((table, [piece for row in rows[start:end] for cell in row for piece in cell]))
            else:
                end = start + 1
        start = end
    return tables


def _in_turn(rows: Sequence[list[list[Piece]]], order: Mapping[int, int]) -> bool:
    """Whether the file writes the pieces of `rows` one after the other, with nothing between them."""
    places = [order[id(piece)] for row in rows for cell in row for piece in cell]
    return places == list(range(places[0], places[0] + len(places)))


def _aligned(rows: Sequence[list[list[Piece]]], placed: Sequence[list[int]], starts: list[float]) -> Table | None:
    if len(rows) < _MIN_ROWS:
        return None
    texts = []
    for row, columns in zip(rows, placed, strict=True):
        cells = [""] * len(starts)
        for cell, column in zip(row, columns, strict=True):
            cells[column] = _joined(cell)
        texts.append(cells)
    lengths = [len(cell) for row in texts for cell in row if cell]
    # Three columns of prose have long lines in every column; cells of a table are short.
    if max(lengths) > _MAX_CELL or statistics.median(lengths) > _TYPICAL_CELL:
        return None
    return Table(texts, tuple(starts), rows[0][0][0].y, rows[-1][0][0].y)


def _visual_rows(pieces: Sequence[Piece]) -> list[list[list[Piece]]]:
    """Rows from top to bottom, of cells from left to right, of pieces close to each other."""
    bands: list[list[Piece]] = []
    for piece in sorted((piece for piece in pieces if piece.text.strip()), key=lambda piece: -piece.y):
        if bands and abs(bands[-1][0].y - piece.y) <= max(2.0, piece.size * 0.3):
            bands[-1].append(piece)
        else:
            bands.append([piece])
    rows = []
    for band in bands:
        cells: list[list[Piece]] = []
        end = float("-inf")
        for piece in sorted(band, key=lambda piece: piece.x):
            if not cells or piece.x - end > 1.5 * piece.size:
                cells.append([])
            cells[-1].append(piece)
            end = max(end, _end(piece))
        rows.append(cells)
    return rows


def _columns(row: Sequence[list[Piece]], starts: Sequence[float]) -> list[int] | None:
    """The column of each cell of `row`, or None if the row does not fit."""
    columns = [bisect_right(starts, cell[0].x + 2 * cell[0].size) - 1 for cell in row]
    fits = columns and columns[0] >= 0 and len(set(columns)) == len(columns)
    # Far right of the last column's start is no cell of it; a right-aligned number stands close enough.
    near = all(cell[0].x - starts[column] <= 8 * cell[0].size for cell, column in zip(row, columns, strict=True))
    if not fits or not near:
        return None
    # A cell that reaches over the next column's start is a line of prose.
    ends = [*starts[1:], float("inf")]
    apart = all(_end(cell[-1]) <= ends[column] + cell[0].size for cell, column in zip(row, columns, strict=True))
    return columns if apart else None


def _end(piece: Piece) -> float:
    """About where a piece ends: the widths of glyphs are not known here; on average one is half as wide as high."""
    return piece.x + 0.5 * piece.size * len(piece.text.strip())


def _joined(pieces: Sequence[Piece]) -> str:
    text = ""
    before: Piece | None = None
    for piece in pieces:
        same_line = before is not None and abs(before.y - piece.y) <= max(1.0, piece.size * 0.3)
        text += piece.text if same_line or not text else " " + piece.text
        before = piece
    return " ".join(text.split())


def _merged(rules: Sequence[Rule]) -> list[Rule]:
    """Rules on one straight line that touch each other, as one."""
    merged: list[Rule] = []
    for _, group in _by_position(rules):
        line: list[Rule] = []
        for rule in sorted(group, key=lambda rule: rule.start):
            if line and rule.start <= line[-1].end + _GAP:
                line[-1] = line[-1]._replace(end=max(line[-1].end, rule.end))
            else:
                line.append(rule)
        merged.extend(line)
    return merged


def _by_position(rules: Sequence[Rule]) -> list[tuple[float, list[Rule]]]:
    groups: list[tuple[float, list[Rule]]] = []
    for rule in sorted(rules, key=lambda rule: rule.at):
        if groups and rule.at - groups[-1][0] <= _GAP / 2:
            groups[-1][1].append(rule)
        else:
            groups.append((rule.at, [rule]))
    return groups


def _distinct(values: Sequence[float]) -> list[float]:
    distinct: list[float] = []
    for value in sorted(values):
        if not distinct or value - distinct[-1] > _GAP:
            distinct.append(value)
    return distinct
