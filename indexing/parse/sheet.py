"""A sheet of a spreadsheet, whatever format it came in, written as tables that name their cells."""

from __future__ import annotations

import re
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import Kind, ParseLimits

MAX_ROWS: Final = 1_048_576
MAX_COLUMNS: Final = 16_384
_MAX_CELLS: Final = 2_000_000
_FEWEST_ROWS: Final = 8
_MOST_ROWS: Final = 64
_ONE_IN: Final = 16
_SPARSE: Final = 8
"""Where fewer than one in so many cells of a range is filled, its empty cells are left out."""
_MAX_REPEATED: Final = 200
"""Characters of a merged cell that each row which it covers repeats."""
_CELL = re.compile(r"\$?([A-Za-z]{1,3})\$?([1-9][0-9]{0,6})")


class Range(NamedTuple):
    """Inclusive, from 1 on."""

    top: int
    left: int
    bottom: int
    right: int


class Comment(NamedTuple):
    cell: str
    author: str
    text: str


@dataclass(slots=True)
class Sheet:
    """`rows`: row -> column -> text, both from 1 on; empty cells are absent. `charts`: title and rows each."""

    name: str
    hidden: bool = False
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: list[tuple[int, int]] = field(default_factory=list)
    merged: list[Range] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    charts: list[tuple[str, list[list[str]]]] = field(default_factory=list)
    margins: list[tuple[str, Kind]] = field(default_factory=list)

    def put(self, row: int, column: int, text: str) -> None:
        if 1 <= row <= MAX_ROWS and 1 <= column <= MAX_COLUMNS:
            self.rows.setdefault(row, {})[column] = text

    def hide_columns(self, first: int, last: int) -> None:
        if 1 <= first <= last:
            self.hidden_columns.append((first, last))


class Room:
    """What is left of a file's bounds on cells and characters; the same text in many cells counts each time."""

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._cells = _MAX_CELLS
        self._characters = limits.max_characters

    def take(self, text: str, times: int = 1) -> None:
        """Raises `ParseFailure` ("too_large")."""
        self._cells -= times
        self._characters -= len(text) * times
        if self._cells < 0 or self._characters < 0:
            raise ParseFailure(
                "too_large",
                f"holds more than {_MAX_CELLS} filled cells or {self._limits.max_characters} characters",
                remedy="split the file",
            )


def letters(column: int) -> str:
    """28 -> "AB"."""
    name = ""
    while column > 0:
        column, rest = divmod(column - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def cell_of(reference: str) -> tuple[int, int] | None:
    """Row and column of "AB7"."""
    found = _CELL.fullmatch(reference)
    if found is None:
        return None
    column = 0
    for letter in found.group(1).upper():
        column = column * 26 + ord(letter) - ord("A") + 1
    return int(found.group(2)), column


def range_of(reference: str) -> Range | None:
    first, _, last = reference.partition(":")
    start, end = cell_of(first), cell_of(last or first)
    if start is None or end is None or end[0] < start[0] or end[1] < start[1]:
        return None
    return Range(*start, *end)


def write(building: Building, sheet: Sheet) -> None:
    """Heading, ranges, then what lies over or beside the cells. Raises `ParseFailure` ("too_large")."""
    _spread(sheet)
    if not (sheet.rows or sheet.comments or sheet.texts or sheet.charts):
        return
    building.place(f"sheet {sheet.name}")
    building.add(sheet.name, Kind.HEADING, level=1, hidden=sheet.hidden)
    for rows in _regions(sheet):
        _write_region(building, sheet, rows)
    building.place(f"sheet {sheet.name}")
    building.add("\n".join(sheet.covered), hidden=True)
    for text in sheet.texts:
        building.add(text, hidden=sheet.hidden)
    for title, chart in sheet.charts:
        building.add(title, hidden=sheet.hidden)
        write_rows(building, [" | ".join(row) for row in chart], hidden=sheet.hidden)
    for text, kind in sheet.margins:
        building.add(text, kind, hidden=sheet.hidden)
    for comment in sheet.comments:
        building.place(f"sheet {sheet.name}!{comment.cell}")
        author = f"{comment.author}: " if comment.author else ""
        building.add(f"{comment.cell}, {author}{comment.text}", Kind.COMMENT, hidden=sheet.hidden)


def write_rows(building: Building, rows: Sequence[str], *, hidden: bool = False) -> None:
    """A table whose first row is its header."""
    if rows:
        building.add("\n".join(rows), Kind.TABLE, header=rows[0], hidden=hidden)


def _spread(sheet: Sheet) -> None:
    """Give each row that a merged cell covers its text, which names the row; across columns it stays one cell. What
    stands in the covered cells themselves is not to be seen."""
    left = _MAX_CELLS // 4
    for area in sheet.merged:
        text = sheet.rows.get(area.top, {}).get(area.left, "")
        span = range(area.top, area.bottom + 1)
        left -= min(len(span), len(sheet.rows))
        for row in span if len(span) < len(sheet.rows) else [row for row in sheet.rows if row in span]:
            cells = sheet.rows.get(row, {})
            left -= len(cells)
            if left < 0:
                return
            for column in [column for column in cells if area.left <= column <= area.right]:
                if (row, column) != (area.top, area.left):
                    sheet.covered.append(cells.pop(column))
            if cells and row > area.top and 0 < len(text) <= _MAX_REPEATED:
                cells[area.left] = text
    for row in [row for row, cells in sheet.rows.items() if not cells]:
        del sheet.rows[row]


def _regions(sheet: Sheet) -> Iterator[list[int]]:
    """Rows that follow each other without an empty row between them."""
    region: list[int] = []
    for row in sorted(sheet.rows):
        if region and row != region[-1] + 1:
            yield region
            region = []
        region.append(row)
    if region:
        yield region


def _write_region(building: Building, sheet: Sheet, rows: list[int]) -> None:
    """Lines of one cell above a table are its title; then come the table, and what is hidden in it."""
    concealed = _Concealed(sheet)
    visible = [row for row in rows if row not in sheet.hidden_rows or sheet.hidden]
    start = 0
    while start < len(visible) and len(sheet.rows[visible[start]]) == 1:
        start += 1
    # A range of one column is a list, and no table has a title alone.
    lead = visible[:start] if 0 < start < len(visible) else []
    for row in lead:
        ((column, text),) = sheet.rows[row].items()
        building.place(f"sheet {sheet.name}!{letters(column)}{row}")
        building.add(text, hidden=sheet.hidden or column in concealed)
    body = visible[len(lead) :]
    shown = sorted({column for row in body for column in sheet.rows[row] if column not in concealed})
    _write_table(building, sheet, body, shown, hidden=sheet.hidden)
    unseen = sorted({column for row in body for column in sheet.rows[row] if column in concealed})
    _write_table(building, sheet, body, unseen, hidden=True)
    unseen_rows = [row for row in rows if row in sheet.hidden_rows and not sheet.hidden]
    columns = sorted({column for row in unseen_rows for column in sheet.rows[row]})
    header = _row(sheet, body[0], columns, len(columns)) if body else None
    _write_table(building, sheet, unseen_rows, columns, hidden=True, header=header)


class _Concealed:
    """The hidden columns of a sheet; of a hidden sheet, all cells are hidden as it is."""

    def __init__(self, sheet: Sheet) -> None:
        spans = [] if sheet.hidden else sorted(sheet.hidden_columns)
        self._spans = spans
        self._starts = [first for first, _ in spans]

    def __contains__(self, column: object) -> bool:
        if not self._spans or not isinstance(column, int):
            return False
        found = bisect_right(self._starts, column) - 1
        return found >= 0 and column <= self._spans[found][1]


def _write_table(
    building: Building, sheet: Sheet, rows: list[int], columns: list[int], *, hidden: bool, header: str | None = None
) -> None:
    rows = [row for row in rows if any(column in sheet.rows[row] for column in columns)] if columns else []
    if not rows:
        return
    filled = sum(len(sheet.rows[row]) for row in rows)
    # Otherwise a diagonal of n cells would be n * n separators.
    width = 0 if filled * _SPARSE < len(rows) * len(columns) else len(columns)
    lines = [_row(sheet, row, columns, width) for row in rows]
    header = lines[0] if header is None else header
    start = 0
    for end in _cuts(lines):
        first, last = f"{letters(columns[0])}{rows[start]}", f"{letters(columns[-1])}{rows[end - 1]}"
        building.place(f"sheet {sheet.name}!{first}" + (f":{last}" if last != first else ""))
        building.add("\n".join(lines[start:end]), Kind.TABLE, header=header, hidden=hidden)
        start = end


def _row(sheet: Sheet, row: int, columns: list[int], width: int) -> str:
    cells = sheet.rows[row]
    if width:
        return " | ".join([cells.get(column, "") for column in columns])
    wanted = set(columns)
    return " | ".join([text for column, text in sorted(cells.items()) if column in wanted])


def _cuts(lines: Sequence[str]) -> Iterator[int]:
    """Ends of the parts of a long table. They follow from the rows themselves, so that a row that is put in or taken
    out moves no cut but its neighbours'."""
    start = 0
    for index, line in enumerate(lines):
        length = index + 1 - start
        chosen = length >= _FEWEST_ROWS and zlib.crc32(line.encode("utf-8", "surrogatepass")) % _ONE_IN == 0
        if chosen or length >= _MOST_ROWS or index + 1 == len(lines):
            yield index + 1
            start = index + 1
