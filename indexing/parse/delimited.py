"""CSV and TSV: one document, a table of one row a line under its header."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import regex

from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    INCONSISTENT_COLUMNS,
    UNBALANCED_QUOTES,
    UNCERTAIN_ENCODING,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Scalar,
    Source,
    clean,
    finish,
)

# The module's own limit of 128 KiB a cell is for the whole process; a cell may be as long as its file.
csv.field_size_limit(2**31 - 1)

_DELIMITERS: Final = ",;\t|"
_HEAD: Final = 8192
_SIGNS: Final = r"[-+−(]?\s?(?:\p{Sc}\s?)?"
_DECIMAL: Final = regex.compile(rf"{_SIGNS}\d[\d.,' ]*[.,]\d+\)?\s?(?:%|\p{{Sc}})?")
_VALUE: Final = regex.compile(
    rf"{_SIGNS}\d[\d.,' ]*\)?\s?(?:%|\p{{Sc}})?"
    r"|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ]\d{1,2}:\d{2}.{0,20})?"
)
"""A number or a date."""
_HINT: Final = "sep="
"""How Excel is told the delimiter, on a line before the header."""


def read_csv(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The first row is the header, unless it is a title above the table: one cell of three or more, and a fuller row;
    or values: it begins with a number or a date, or holds a decimal number. Then there is none.

    Raises `ParseFailure` ("empty", "too_large").
    """
    decoded = decode(source.data, source.charset)
    text = clean(decoded.text)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    hint = text[len(_HINT) : len(_HINT) + 1] if text[: len(_HINT)].lower() == _HINT else ""
    if hint:
        text = text.partition("\n")[2]
    delimiter = hint if hint and hint not in '"\n' else _delimiter(text, source.name)
    try:
        table = _table(_rows(text, delimiter, csv.QUOTE_MINIMAL))
    except csv.Error:
        warnings.add(UNBALANCED_QUOTES)
        table = _table(_rows(text, delimiter, csv.QUOTE_NONE))
    if table.wide:
        warnings.add(INCONSISTENT_COLUMNS)
    building = Building(limits.max_characters)
    for above in table.titles:
        building.add(above)
    building.add("\n".join(table.lines), Kind.TABLE, header=table.lines[0] if table.headed else None)
    metadata: dict[str, Scalar] = {"rows": len(table.lines) - table.headed}
    title = table.titles[0] if table.titles else None
    return [finish(Parsed(building.text(), title, "text/csv", tuple(warnings), metadata, blocks=building.blocks()))]


class _Table(NamedTuple):
    """`lines` are the header, where it is `headed`, and the rows; `wide`: some row has more cells than the first."""

    titles: list[str]
    lines: list[str]
    headed: bool
    wide: bool


def _table(rows: Iterator[list[str]]) -> _Table:
    """Raises `csv.Error` where quotes do not pair up, and `ParseFailure`."""
    header = next(rows, None)
    if header is None:
        raise ParseFailure("empty", "holds no rows", remedy="remove the file, or add rows")
    titles: list[str] = []
    following = next(rows, None)
    while following is not None and _filled(header) == 1 and len(header) > 2 and _filled(following) > 1:
        titles.append(" ".join(filter(None, header)))
        header, following = following, next(rows, None)
    lines = [_line(header)]
    wide = False
    while following is not None:
        wide |= len(following) > len(header)
        lines.append(_line(following))
        following = next(rows, None)
    return _Table(titles, lines, not _are_values(header), wide)


def _are_values(row: Sequence[str]) -> bool:
    # Years, weeks and days are names of columns, too.
    first = next(filter(None, row), "")
    return _VALUE.fullmatch(first) is not None or any(_DECIMAL.fullmatch(cell) for cell in row)


def _filled(row: Sequence[str]) -> int:
    return sum(map(bool, row))


def _line(row: Sequence[str]) -> str:
    return " | ".join(row).strip()


def _rows(text: str, delimiter: str, quoting: Literal[0, 3]) -> Iterator[list[str]]:
    """The rows that are not blank. Strict: an unclosed quote is an error, not the rest of the file."""
    strict = quoting == csv.QUOTE_MINIMAL
    for row in csv.reader(io.StringIO(text), delimiter=delimiter, quoting=quoting, strict=strict):
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            yield cells


def _delimiter(text: str, name: str) -> str:
    """The one that the first lines agree on, outside of quotes; a tab for .tsv."""
    if name.lower().endswith((".tsv", ".tab")):
        return "\t"
    head = text[:_HEAD]
    lines = [line for line in head.split("\n")[:20] if line.strip()]

    def fit(delimiter: str) -> tuple[int, int, bool]:
        counts = [_outside_quotes(line).count(delimiter) for line in lines]
        agreeing = max((counts.count(count) for count in set(counts) if count), default=0)
        return agreeing, sum(counts), delimiter == ","

    return max(_DELIMITERS, key=fit)


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])
