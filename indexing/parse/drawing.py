"""DrawingML (ECMA-376 part 1, section 20 and 21): the text of shapes, tables, charts and diagrams."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from indexing.parse.package import DAMAGED, Element, Package, Relation, attribute, child, children, local

_BULLETS: Final = frozenset({"buChar", "buAutoNum", "buBlip"})
_TINY: Final = 200
"""Hundredths of a point."""
_BREAKS: Final = {"br": "\n", "tab": "\t"}
_MAX_POINTS: Final = 2_000
"""Values of one series of a chart that are read."""
_MAX_SERIES: Final = 100


def paragraph(element: Element) -> str:
    """The runs and fields of an `a:p`."""
    pieces = []
    for item in element.iter():
        name = local(item)
        if name == "t":
            pieces.append(item.text or "")
        elif name in _BREAKS:
            pieces.append(_BREAKS[name])
    return "".join(pieces).strip()


class Paragraph(NamedTuple):
    """`level` is that of a list item, from 0 on; None where the paragraph does not say whether it is one."""

    text: str
    level: int | None
    plain: bool
    """It says that it is no list item."""
    tiny: bool
    """No run is larger than two points."""


def paragraphs(body: Element | None) -> Iterator[Paragraph]:
    """The paragraphs of a text body that hold text."""
    for item in children(body, "p"):
        text = paragraph(item)
        if text:
            properties = child(item, "pPr")
            marks = {local(mark) for mark in properties} if properties is not None else set()
            level = (properties.get("lvl") if properties is not None else None) or "0"
            number = int(level) if level.isdecimal() else 0
            is_item = bool(marks & _BULLETS) or number > 0
            yield Paragraph(text, number if is_item else None, "buNone" in marks, _is_tiny(item))


def _is_tiny(element: Element) -> bool:
    runs = children(element, "r")
    sizes = [attribute(mark, "sz") or "" for run in runs for mark in children(run, "rPr")]
    return bool(runs) and len(sizes) == len(runs) and all(s.isdecimal() and int(s) <= _TINY for s in sizes)


def table(element: Element) -> list[list[str]]:
    """The cells of an `a:tbl`, those that a merged cell covers empty."""
    rows = []
    for row in children(element, "tr"):
        cells = [
            " / ".join(" ".join(item.text.split()) for item in paragraphs(child(cell, "txBody")))
            for cell in children(row, "tc")
        ]
        if any(cells):
            rows.append(cells)
    return rows


def texts(root: Element) -> Iterator[str]:
    """Every paragraph below `root`, whatever holds it."""
    for item in root.iter("{*}p"):
        # One within another is part of its text already.
        text = "" if next(item.iterancestors("{*}p"), None) is not None else paragraph(item)
        if text:
            yield text


def linked(package: Package, relations: list[Relation]) -> Iterator[tuple[str, list[list[str]]]]:
    """The charts and diagrams that a part links to: title or text, and the numbers of a chart as rows."""
    for relation in relations:
        try:
            if relation.kind in {"chart", "chartEx"}:
                yield chart(package.root(relation.target))
            elif relation.kind == "diagramData":
                yield "\n".join(f"- {text}" for text in texts(package.root(relation.target))), []
        except DAMAGED:
            continue


def chart(root: Element) -> tuple[str, list[list[str]]]:
    """The titles of a chart, and its numbers: a row of series names, then a row a category."""
    titles = [text for title in islice(root.iter("{*}title"), _MAX_SERIES) for text in texts(title)]
    names: list[str] = []
    categories: list[str] = []
    columns: list[list[str]] = []
    for series in islice(root.iter("{*}ser"), _MAX_SERIES):
        names.append(" ".join(_points(child(series, "tx"))) or f"series {len(names) + 1}")
        labels = _points(child(series, "cat")) or _points(child(series, "xVal"))
        categories = labels if len(labels) > len(categories) else categories
        columns.append(_points(child(series, "val")) or _points(child(series, "yVal")))
    length = max([len(categories), *map(len, columns)], default=0)
    rows = [["", *names]] if names else []
    for index in range(length):
        rows.append([column[index] if index < len(column) else "" for column in (categories, *columns)])
    return "\n".join(titles), rows if length else []


def _points(element: Element | None) -> list[str]:
    """The cached values below `element`, in the order of their indexes."""
    values: dict[int, str] = {}
    for point in element.iter("{*}pt") if element is not None else ():
        value = child(point, "v")
        index = attribute(point, "idx") or ""
        if value is not None and index.isdecimal() and int(index) < _MAX_POINTS:
            values[int(index)] = " ".join((value.text or "").split())
    return [values.get(index, "") for index in range(max(values, default=-1) + 1)]
