"""Tables of a PDF page whose cells stand between drawn rules.

A simple grid is looked for; a cell that spans several columns counts to the first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from indexing.parse.pdf_page import Piece, Rule

_GAP: Final = 4.0
"""Points that rules may miss each other by and still meet; word processors draw borders in bits."""
_MAX_CROSSINGS: Final = 250_000


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
        [joined(cells.get((row, column), ())) for column in range(len(grid.xs) - 1)]
        for row in sorted({row for row, _ in cells})
    ]
    used = [column for column in range(len(grid.xs) - 1) if any(row[column] for row in rows)]
    if len(used) < 2 or not any(sum(1 for cell in row if cell) >= 2 for row in rows):
        return None
    columns = tuple(grid.xs[column] for column in used)
    return Table([[row[column] for column in used] for row in rows], columns, grid.ys[-1], grid.ys[0])


def joined(pieces: Sequence[Piece]) -> str:
    """The text of one cell, in one line."""
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
