"""CSV and TSV: one document, each row as lines of "header: value"."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    INCONSISTENT_COLUMNS,
    UNBALANCED_QUOTES,
    UNCERTAIN_ENCODING,
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
_MAX_EXPANSION: Final = 20
"""Headers are repeated in each row: the text may be this many times the size of the file."""


def read_csv(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The first row that is not blank is the header. Raises `ParseFailure` ("empty", "too_large")."""
    decoded = decode(source.data, source.charset)
    text = clean(decoded.text)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    dialect = _Dialect(_delimiter(text, source.name), min(limits.max_characters, _MAX_EXPANSION * len(text) + 4096))
    try:
        table = dialect.render(text, csv.QUOTE_MINIMAL)
    except csv.Error:
        warnings.add(UNBALANCED_QUOTES)
        table = dialect.render(text, csv.QUOTE_NONE)
    if table.wide:
        warnings.add(INCONSISTENT_COLUMNS)
    metadata: dict[str, Scalar] = {"rows": table.rows}
    return [finish(Parsed(table.text, None, "text/csv", tuple(warnings), metadata))]


class _Table(NamedTuple):
    """`wide`: some row has more cells than the header."""

    text: str
    rows: int
    wide: bool


class _Dialect(NamedTuple):
    delimiter: str
    bound: int

    def render(self, text: str, quoting: Literal[0, 3]) -> _Table:
        """Raises `csv.Error` where quotes do not pair up, and `ParseFailure`."""
        rows = self._rows(text, quoting)
        header = next(rows, None)
        if header is None:
            raise ParseFailure("empty", "holds no rows", remedy="remove the file, or add rows")
        names = [cell or f"column {position}" for position, cell in enumerate(header, 1)]
        blocks: list[str] = []
        size, wide = 0, False
        for row in rows:
            wide |= len(row) > len(names)
            extra = (f"column {position}" for position in range(len(names) + 1, len(row) + 1))
            pairs = zip((*names, *extra), row, strict=False)
            blocks.append("\n".join(f"{name}: {cell}" for name, cell in pairs if cell))
            size += len(blocks[-1])
            if size > self.bound:
                raise ParseFailure(
                    "too_large", f"its rows written out exceed {self.bound} characters", remedy="split the file"
                )
        return _Table("\n\n".join(blocks) or ", ".join(filter(None, header)), len(blocks), wide)

    def _rows(self, text: str, quoting: Literal[0, 3]) -> Iterator[list[str]]:
        """The rows that are not blank. Strict: an unclosed quote is an error, not the rest of the file."""
        strict = quoting == csv.QUOTE_MINIMAL
        for row in csv.reader(io.StringIO(text), delimiter=self.delimiter, quoting=quoting, strict=strict):
            cells = [" ".join(cell.split()) for cell in row]
            if any(cells):
                yield cells


def _delimiter(text: str, name: str) -> str:
    """The delimiter that the first lines use most; a tab for .tsv."""
    if name.lower().endswith((".tsv", ".tab")):
        return "\t"
    head = text[:8192]
    return max(_DELIMITERS, key=lambda delimiter: (head.count(delimiter), delimiter == ","))
