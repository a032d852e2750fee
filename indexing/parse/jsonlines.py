"""JSON Lines: one child a line; a bad line is reported and does not stop the others."""

from __future__ import annotations

import io

import msgspec

from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import UNCERTAIN_ENCODING, Parsed, ParseLimits, ParseResult, Scalar, Source, clean, finish
from tenancy.access_list import AccessList
from tenancy.errors import InvalidInput
from tenancy.names import MAX_NAME, document_name, nfc_name


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line. An absent `allow` or `deny` leaves it to the rules; an empty list is an answer."""

    text: str
    id: str | int | None = None
    alias: str | int | None = msgspec.field(default=None, name="_id")
    title: str | None = None
    metadata: dict[str, str | int | float | bool | None] = {}
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


def read_jsonl(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Children named "#<id>", or "#<line number>" where a line has no id."""
    decoded = decode(source.data, source.charset)
    warnings = () if decoded.certain else (UNCERTAIN_ENCODING,)
    results: list[ParseResult] = []
    first_use: dict[str, int] = {}
    # Split at line feeds alone: str.splitlines would also cut at U+2028, which JSON strings may hold.
    for number, line in enumerate(io.StringIO(decoded.text, newline="\n"), 1):
        if not line.strip():
            continue
        if len(results) == limits.max_children:
            raise ParseFailure("too_large", f"holds more than {limits.max_children} lines", remedy="split the file")
        result = _child(line, number, warnings)
        earlier = first_use.setdefault(result.suffix, number)
        if earlier != number:
            result = ParseFailure(
                "corrupt",
                f"line {number}: the id is already that of line {earlier}",
                remedy="give each line its own id",
                suffix=f"#line-{number}",
            )
        results.append(result)
    if not results:
        raise ParseFailure("empty", "holds no lines", remedy="remove the file, or add lines")
    return results


def _child(line: str, number: int, warnings: tuple[str, ...]) -> ParseResult:
    suffix = f"#line-{number}"
    try:
        data = line.strip().encode("utf-8", "replace")
        record = msgspec.json.decode(data, type=Line)
        given = record.id if record.id is not None else record.alias
        suffix = f"#{number if given is None else document_name(str(given), 'line', limit=MAX_NAME)}"
        allow, deny = _labels(record.allow), _labels(record.deny)
        metadata: dict[str, Scalar] = {
            nfc_name(key, "metadata"): clean(value) if isinstance(value, str) else value
            for key, value in record.metadata.items()
            if value is not None
        }
    except (msgspec.DecodeError, InvalidInput, RecursionError) as error:
        return ParseFailure(
            "corrupt",
            f"line {number}: {error.reason if isinstance(error, InvalidInput) else _reason(error)}",
            remedy='a line is {"text", "id"?, "title"?, "metadata"?, "allow"?, "deny"?}',
            suffix=suffix,
        )
    parsed = Parsed(
        record.text, record.title, "application/x-ndjson", warnings, metadata, suffix, allow, deny, source=data
    )
    return finish(parsed)


def _labels(labels: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if labels is None else tuple(sorted(AccessList.of(labels).allow))


def _reason(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
