"""XLSX: each sheet's filled ranges as tables with their header, as the file was last calculated.

Sheets are streamed and cells kept by place, so that one cell far away costs one cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from indexing.parse import drawing, sheet
from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    FORMULAS_NOT_COMPUTED,
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)
from indexing.parse.package import (
    DAMAGED,
    Element,
    Package,
    Relation,
    attribute,
    child,
    children,
    core_properties,
    embedded,
    embedded_names,
    local,
)
from indexing.parse.sheet import Comment, Sheet, cell_of, range_of
from indexing.parse.xlsx_values import Styles, read_styles, rich_text, shown

MEDIA_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

_TRUE: Final = frozenset({"1", "true"})
_MARGIN_CODES = re.compile(r'&(?:"[^"]*"|K[0-9A-Fa-f]{6}|\d+|[A-Za-z]|&)')
_MARGINS: Final = {
    "oddHeader": Kind.HEADER,
    "firstHeader": Kind.HEADER,
    "oddFooter": Kind.FOOTER,
    "firstFooter": Kind.FOOTER,
}


def read_xlsx(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large, no_text. Embedded files are children."""
    # A sheet is streamed, so only the whole is bounded.
    package = Package(source.data, replace(limits, max_xml_bytes=limits.max_expanded_bytes))
    try:
        workbook = _Workbook(package, limits)
        parsed = workbook.parsed()
    except DAMAGED:
        raise ParseFailure(
            "corrupt", "is not a readable workbook", remedy="open it in a spreadsheet program and save it again"
        ) from None
    if isinstance(parsed, Parsed) and source.nest is None and embedded_names(package):
        parsed = replace(parsed, warnings=tuple(sorted({*parsed.warnings, ATTACHMENTS_NOT_READ})))
    return [parsed, *embedded(package, source)]


class _Workbook:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self._package = package
        self._limits = limits
        self._warnings: set[str] = set()
        start = next((link for link in package.relations() if link.kind == "officeDocument"), None)
        if start is None:
            raise ValueError("no workbook")
        self._root = package.root(start.target)
        self._links = package.relations(start.target)
        properties = child(self._root, "workbookPr")
        self._styles = self._read_styles(properties is not None and attribute(properties, "date1904") in _TRUE)
        self._strings = self._read_strings()

    def parsed(self) -> ParseResult:
        building = Building(self._limits.max_characters)
        targets = {link.identifier: link.target for link in self._links}
        room = sheet.Room(self._limits)
        for item in children(child(self._root, "sheets"), "sheet"):
            name = attribute(item, "name") or "Sheet"
            target = targets.get(attribute(item, "id") or "")
            if target is None:
                continue
            try:
                read = self._sheet(name, target, room)
            except DAMAGED:
                self._warnings.add(MALFORMED_PARTS)
                continue
            read.hidden = (attribute(item, "state") or "visible") != "visible"
            sheet.write(building, read)
        if building.is_empty:
            if MALFORMED_PARTS in self._warnings:
                raise ValueError("no sheet can be read")
            return ParseFailure("no_text", "has no filled cell", remedy="remove the file, or fill it")
        if building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        about = core_properties(self._package)
        return finish(
            Parsed(
                building.text(),
                about.title,
                MEDIA_TYPE,
                tuple(self._warnings),
                {**about.language},
                blocks=building.blocks(),
                places=building.places(),
            )
        )

    def _read_styles(self, since_1904: bool) -> Styles:
        target = self._target("styles")
        try:
            root = self._package.root(target) if target in self._package else None
        except DAMAGED:
            self._warnings.add(MALFORMED_PARTS)
            root = None
        return read_styles(root, since_1904=since_1904)

    def _read_strings(self) -> list[str]:
        target = self._target("sharedStrings")
        strings: list[str] = []
        if target in self._package:
            size = 0
            for item in self._package.stream(target, "si"):
                strings.append(rich_text(item))
                size += len(strings[-1])
                if size > self._limits.max_characters:
                    raise _too_large(self._limits)
        return strings

    def _target(self, kind: str) -> str:
        return next((link.target for link in self._links if link.kind == kind), "")

    def _sheet(self, name: str, target: str, room: sheet.Room) -> Sheet:
        found = Sheet(name)
        row_number = 0
        for item in self._package.stream(target, "row", "col", "mergeCell", "headerFooter"):
            tag = local(item)
            if tag == "row":
                stated = attribute(item, "r") or ""
                row_number = int(stated) if stated.isdecimal() else row_number + 1
                self._row(found, row_number, item, room)
            elif tag == "col" and attribute(item, "hidden") in _TRUE:
                found.hide_columns(int(attribute(item, "min") or 0), int(attribute(item, "max") or 0))
            elif tag == "mergeCell":
                merged = range_of(attribute(item, "ref") or "")
                if merged is not None:
                    found.merged.append(merged)
            elif tag == "headerFooter":
                found.margins.extend(_margins(item))
        self._beside(found, self._package.relations(target))
        return found

    def _row(self, found: Sheet, number: int, element: Element, room: sheet.Room) -> None:
        if attribute(element, "hidden") in _TRUE:
            found.hidden_rows.add(number)
        column = 0
        for item in element:
            if local(item) != "c":
                continue
            place = cell_of(item.get("r") or "")
            column = place[1] if place is not None else column + 1
            text = self._cell(item)
            if text:
                room.take(text)
                found.put(number, column, text)

    def _cell(self, element: Element) -> str:
        kind = element.get("t") or "n"
        value = child(element, "v")
        if kind == "inlineStr":
            inline = child(element, "is")
            return _one_line(rich_text(inline)) if inline is not None else ""
        if value is None or not value.text:
            formula = child(element, "f")
            if formula is not None and formula.text:
                self._warnings.add(FORMULAS_NOT_COMPUTED)
                return _one_line("=" + formula.text)
            return ""
        style = element.get("s") or "0"
        return _one_line(shown(kind, value.text, int(style) if style.isdecimal() else 0, self._strings, self._styles))

    def _beside(self, found: Sheet, links: list[Relation]) -> None:
        """Comments, text boxes and charts of a sheet; a damaged part costs only itself."""
        for link in links:
            try:
                if link.kind == "comments":
                    found.comments[:0] = _comments(self._package.root(link.target))
                elif link.kind == "threadedComment":
                    found.comments.extend(_threads(self._package.root(link.target)))
                elif link.kind == "drawing":
                    found.texts.extend(drawing.texts(self._package.root(link.target)))
                    found.charts.extend(drawing.linked(self._package, self._package.relations(link.target)))
            except DAMAGED:
                self._warnings.add(MALFORMED_PARTS)


def _comments(root: Element) -> Iterator[Comment]:
    authors = [item.text or "" for item in children(child(root, "authors"), "author")]
    for item in children(child(root, "commentList"), "comment"):
        author = attribute(item, "authorId") or ""
        text = child(item, "text")
        name = authors[int(author)] if author.isdecimal() and int(author) < len(authors) else ""
        # Beside each thread, Excel leaves a note for older programs that repeats it.
        if text is not None and not name.startswith("tc="):
            yield Comment(attribute(item, "ref") or "", name, rich_text(text).strip())


def _threads(root: Element) -> Iterator[Comment]:
    for item in children(root, "threadedComment"):
        text = child(item, "text")
        if text is not None and text.text:
            yield Comment(attribute(item, "ref") or "", "", text.text.strip())


def _margins(element: Element) -> Iterator[tuple[str, Kind]]:
    for item in element:
        kind = _MARGINS.get(local(item))
        text = " ".join(_MARGIN_CODES.sub(" ", item.text or "").split())
        if kind is not None and text:
            yield text, kind


def _one_line(text: str) -> str:
    return text if text.isalnum() else " ".join(text.split())


def _too_large(limits: ParseLimits) -> ParseFailure:
    return ParseFailure("too_large", f"holds more than {limits.max_characters} characters", remedy="split the file")
