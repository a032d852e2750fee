"""JSON as an outline. Numbers stay as they are written; what cannot be read as JSON is taken as the text that it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    EMBEDDED_DATA_REMOVED,
    MALFORMED_PARTS,
    UNCERTAIN_ENCODING,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    clean,
    finish,
)
from indexing.parse.outline import Outline

MEDIA_TYPE: Final = "application/json"
_TITLES: Final = ("title", "name", "subject")


class _Object(tuple[tuple[str, Any], ...]):
    """The members of an object, in order, also where a name stands twice."""


def read_json(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """One document; each member of the top object, or element of the top list, is a block with its place.

    Raises `ParseFailure`: too_large, also for nesting.
    """
    decoded = decode(source.data, source.charset)
    warnings = set() if decoded.certain else {UNCERTAIN_ENCODING}
    text = clean(decoded.text)
    try:
        values = list(_values(text))
    except ValueError:
        return [finish(Parsed(text, None, MEDIA_TYPE, (*warnings, MALFORMED_PARTS)))]
    except RecursionError:
        raise ParseFailure("too_large", "is nested too deeply", remedy="flatten it") from None
    building = Building(limits.max_characters)
    outline = Outline(building, limits.max_characters)
    top = values[0] if len(values) == 1 else values
    if isinstance(top, _Object):
        _members(outline, list(top))
    elif isinstance(top, list):
        _members(outline, [(None, value) for value in top])
    else:
        outline.bare(_scalar(top))
        outline.end()
    if outline.removed:
        warnings.add(EMBEDDED_DATA_REMOVED)
    return [
        finish(
            Parsed(
                building.text(),
                _title(top),
                MEDIA_TYPE,
                tuple(warnings),
                blocks=building.blocks(),
                places=building.places(),
            )
        )
    ]


def _values(text: str) -> Iterator[Any]:
    """The value in `text`, or those on its lines. Raises `ValueError`, `RecursionError`."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_Object, parse_int=str, parse_float=str, parse_constant=str, strict=False
    )
    stripped = text.strip()
    value, end = decoder.raw_decode(stripped)
    yield value
    while end < len(stripped):
        start = end
        while start < len(stripped) and stripped[start] in " \n\t\r":
            start += 1
        if "\n" not in stripped[end:start]:
            raise ValueError("text behind the value")
        value, end = decoder.raw_decode(stripped, start)
        yield value


def _members(outline: Outline, members: list[tuple[str | None, Any]]) -> None:
    """Each member that holds others is a block; plain ones in a row are one."""
    place = None
    for number, (name, value) in enumerate(members):
        here = f"/{number if name is None else name}"[:200]
        if isinstance(value, _Object | list):
            outline.end(place)
            _write(outline, name, value)
            outline.end(here)
            place = None
        else:
            place = place or here
            _write(outline, "-" if name is None else name, value)
    outline.end(place)


def _write(outline: Outline, name: str | None, value: Any) -> None:
    """Iterative: values are as deep as their author likes. A name of "-" is that of an element of a list."""
    waiting: list[tuple[int, str | None, Any]] = [(0, name, value)]
    while waiting:
        depth, name, value = waiting.pop()
        if not isinstance(value, _Object | list):
            if name == "-":
                outline.item(depth, _scalar(value))
            else:
                outline.line(depth, name or "", _scalar(value))
            continue
        if name == "-":
            outline.item(depth)
        elif name is not None:
            outline.line(depth, name)
        below = depth if name is None else depth + 1
        inner = value if isinstance(value, _Object) else (("-", element) for element in value)
        waiting += [(below, member, held) for member, held in reversed(tuple(inner))]


def _scalar(value: object) -> str:
    """As JSON writes it; numbers were kept as text, null is nothing."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value or "")


def _title(top: object) -> str | None:
    if not isinstance(top, _Object):
        return None
    named = {name.lower(): value for name, value in reversed(top)}
    return next((named[name] for name in _TITLES if isinstance(named.get(name), str)), None)
