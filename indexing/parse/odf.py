"""OpenDocument (ODF 1.3): texts, spreadsheets and presentations, which share one form of text."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import Final

from indexing.parse import sheet
from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)
from indexing.parse.odf_text import Story, read_styles, table_rows
from indexing.parse.package import DAMAGED, Element, Package, attribute, child, children, local
from indexing.parse.sheet import Comment, Range, Sheet
from indexing.parse.tags import stated

TEXT_TYPE: Final = "application/vnd.oasis.opendocument.text"
SHEET_TYPE: Final = "application/vnd.oasis.opendocument.spreadsheet"
SLIDES_TYPE: Final = "application/vnd.oasis.opendocument.presentation"

_UNSEEN: Final = frozenset({"collapse", "filter"})
_MAX_REPEATED: Final = sheet.MAX_ROWS


def read_odf(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large, no_text, unsupported (formulas, drawings and the like).
    Embedded files are children."""
    package = Package(source.data, limits)
    _refuse_encrypted(package)
    try:
        document = _Document(package, limits)
        parsed = document.parsed()
    except DAMAGED:
        raise ParseFailure(
            "corrupt", "is not a readable OpenDocument file", remedy="open it in an office program and save it again"
        ) from None
    results: list[ParseResult] = [parsed]
    for number, name in enumerate(document.files, 1):
        if source.nest is None:
            if isinstance(parsed, Parsed):
                results[0] = replace(parsed, warnings=tuple(sorted({*parsed.warnings, ATTACHMENTS_NOT_READ})))
            break
        suffix = f"#attachment-{number}/{name}"
        failure = source.nest.over(package.size(name))
        results.extend(
            source.nest.read(suffix, name, package.read(name))
            if failure is None
            else source.nest.refuse(suffix, failure)
        )
    return results


def _refuse_encrypted(package: Package) -> None:
    """Parts are encrypted one by one, inside an archive that is not (ODF 1.3 part 2, 4.8)."""
    try:
        manifest = package.root("META-INF/manifest.xml")
    except DAMAGED:
        return
    if next(manifest.iter("{*}encryption-data"), None) is not None:
        raise ParseFailure("encrypted", "needs a password", remedy="save a copy without the password and add that")


class _Document:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self.files: list[str] = []
        """Parts that are files of other programs."""
        self._package = package
        self._limits = limits
        self._warnings: set[str] = set()
        self._building = Building(limits.max_characters)
        self._content = package.root("content.xml")
        self._common = self._optional("styles.xml")
        self._styles = read_styles(self._content, self._common)
        self._objects: set[str] = set()
        self._story = Story(self._building, self._styles, self._linked)

    def parsed(self) -> ParseResult:
        body = child(self._content, "body")
        for name, write, media_type in (
            ("text", self._text, TEXT_TYPE),
            ("spreadsheet", self._spreadsheet, SHEET_TYPE),
            ("presentation", self._presentation, SLIDES_TYPE),
        ):
            main = child(body, name)
            if main is not None:
                write(main)
                return self._finished(media_type)
        raise ParseFailure("unsupported", "is an OpenDocument file without a text", remedy="save it as PDF")

    def _finished(self, media_type: str) -> ParseResult:
        self._story.write_unseen()
        if self._building.is_empty:
            return ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if self._building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        meta = self._optional("meta.xml")
        title, language = child(meta, "meta", "title"), child(meta, "meta", "language")
        return finish(
            Parsed(
                self._building.text(),
                title.text if title is not None else None,
                media_type,
                tuple(self._warnings),
                {**stated(language.text if language is not None else None)},
                blocks=self._building.blocks(),
                places=self._building.places(),
            )
        )

    def _optional(self, name: str) -> Element | None:
        if name not in self._package:
            return None
        try:
            return self._package.root(name)
        except DAMAGED:
            self._warnings.add(MALFORMED_PARTS)
            return None

    def _text(self, main: Element) -> None:
        self._story.blocks(main)
        self._margins()

    def _margins(self) -> None:
        """Headers and footers of the page styles; those that repeat one another once."""
        seen: set[str] = set()
        for page in children(child(self._common, "master-styles"), "master-page"):
            for item in page:
                name = local(item)
                kind = Kind.HEADER if name.startswith("header") else Kind.FOOTER if name.startswith("footer") else None
                text = self._story.lines(item) if kind is not None else ""
                if kind is not None and text not in seen:
                    seen.add(text)
                    self._building.add(text, kind)

    def _linked(self, path: str) -> None:
        """An object in the text: a chart or formula as XML of its own, once, or a file of another program."""
        name = posixpath.normpath(path).lstrip("./")
        if not name or name in self._objects:
            return
        self._objects.add(name)
        inner = self._optional(f"{name}/content.xml")
        if inner is not None:
            body = child(inner, "body")
            if body is not None:
                self._story.blocks(body)
        elif name in self._package:
            self.files.append(name)

    def _spreadsheet(self, main: Element) -> None:
        room = sheet.Room(self._limits)
        for table in children(main, "table"):
            sheet.write(self._building, self._sheet(table, room))
            self._story.write_unseen()

    def _sheet(self, table: Element, room: sheet.Room) -> Sheet:
        found = Sheet(attribute(table, "name") or "Sheet")
        found.hidden = attribute(table, "style-name") in self._styles.hidden_tables
        column = 1
        for item in table.iter("{*}table-column"):
            count = _count(item, "number-columns-repeated")
            if attribute(item, "visibility") in _UNSEEN:
                found.hide_columns(column, column + count - 1)
            column += count
        number = 1
        for row in table_rows(table):
            count = _count(row, "number-rows-repeated")
            cells = self._cells(row, found, number)
            rows = range(number, min(number + count, sheet.MAX_ROWS + 1)) if cells else range(0)
            for place, text in cells:
                room.take(text, len(rows))
                for repeated in rows:
                    found.put(repeated, place, text)
            if attribute(row, "visibility") in _UNSEEN:
                found.hidden_rows.update(rows)
            number += count
        for shapes in children(table, "shapes"):
            found.texts.extend(filter(None, [self._story.lines(shapes)]))
        return found

    def _cells(self, row: Element, found: Sheet, number: int) -> list[tuple[int, str]]:
        """Column and text of the filled cells of a row; an empty cell that is repeated costs nothing."""
        cells: list[tuple[int, str]] = []
        column = 1
        for item in row:
            if local(item) not in {"table-cell", "covered-table-cell"}:
                continue
            count = _count(item, "number-columns-repeated")
            for note in children(item, "annotation"):
                found.comments.append(Comment(f"{sheet.letters(column)}{number}", "", self._story.comment(note)))
            text = self._shown(item)
            if text:
                cells.extend((place, text) for place in range(column, min(column + count, sheet.MAX_COLUMNS + 1)))
            span = _count(item, "number-rows-spanned")
            if span > 1:
                found.merged.append(Range(number, column, min(number + span - 1, sheet.MAX_ROWS), column))
            column += count
        return cells

    def _shown(self, cell: Element) -> str:
        """A date as in ISO 8601, anything else as the cell shows it."""
        kind = attribute(cell, "value-type")
        if kind == "date":
            return (attribute(cell, "date-value") or "").replace("T", " ").removesuffix(" 00:00:00")
        return self._story.text(cell) or attribute(cell, "value") or ""

    def _presentation(self, main: Element) -> None:
        for number, page in enumerate(children(main, "page"), 1):
            self._building.place(f"slide {number}")
            hidden = attribute(page, "style-name") in self._styles.hidden_pages
            frames = [item for item in page if local(item) not in {"notes", "annotation"}]
            frames.sort(key=lambda item: attribute(item, "class") != "title")  # a stable sort
            for item in frames:
                if attribute(item, "class") == "title":
                    self._building.add(self._story.text(item), Kind.HEADING, level=1, hidden=hidden)
                else:
                    self._story.blocks([item], hidden=hidden)
            for notes in children(page, "notes"):
                self._building.add(self._story.lines(notes), Kind.NOTES)
            for note in children(page, "annotation"):
                self._building.add(self._story.comment(note), Kind.COMMENT)


def _count(element: Element, name: str) -> int:
    text = attribute(element, name) or "1"
    return min(max(int(text), 1), _MAX_REPEATED) if text.isdecimal() and len(text) < 10 else 1
