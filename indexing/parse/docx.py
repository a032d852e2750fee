"""DOCX: body in order with lists, tables, text boxes, notes, comments and imported parts; then headers and footers.

The text is gathered from the XML itself: the paragraphs of python-docx leave out content controls, tracked insertions,
text boxes, notes and altChunk parts.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from indexing.parse import html
from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.docx_text import Piece, Story, Styles, read_styles
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
from indexing.parse.package import (
    DAMAGED,
    Element,
    Package,
    attribute,
    core_properties,
    embedded,
    embedded_names,
    local,
)
from indexing.parse.rtf import START as RTF_START
from indexing.parse.rtf import read_rtf

MEDIA_TYPE: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_ZIP: Final = b"PK\x03\x04"
_MAX_IMPORTED: Final = 3
"""Word files within Word files, by altChunk."""
_MAX_CHUNKS: Final = 100


def read_docx(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large, no_text. Embedded files are children."""
    package = Package(source.data, limits)
    parsed = _read(package, limits, depth=0)
    if isinstance(parsed, Parsed) and source.nest is None and embedded_names(package):
        parsed = replace(parsed, warnings=tuple(sorted({*parsed.warnings, ATTACHMENTS_NOT_READ})))
    return [parsed, *embedded(package, source)]


def _read(package: Package, limits: ParseLimits, depth: int) -> ParseResult:
    try:
        return _Document(package, limits, depth).parsed()
    except DAMAGED:
        raise ParseFailure(
            "corrupt", "is not a readable Word file", remedy="open it in a word processor and save it again"
        ) from None


class _Document:
    def __init__(self, package: Package, limits: ParseLimits, depth: int) -> None:
        self._package = package
        self._limits = limits
        self._depth = depth
        self._deadline = time.monotonic() + limits.seconds
        self._chunks: set[str] = set()
        self._warnings: set[str] = set()
        start = next((link for link in package.relations() if link.kind == "officeDocument"), None)
        if start is None:
            raise ValueError("no document")
        self._body = package.root(start.target)
        self._links = package.relations(start.target)

    def parsed(self) -> ParseResult:
        building = Building(self._limits.max_characters)
        styles = self._styles()
        notes = self._notes(styles)
        story = Story(styles, notes, self._imported)
        for piece in story.pieces(self._body):
            _add(building, piece)
        for key in notes.keys() - story.used:
            if key[0] == "comment":
                for piece in notes[key]:
                    _add(building, piece)
        # The parts for first, even and other pages mostly repeat one another.
        written: set[Piece] = set()
        for kind in (Kind.HEADER, Kind.FOOTER):
            for root in self._roots(kind.value):
                for piece in Story(styles, notes, self._imported).pieces(root):
                    if piece not in written:
                        written.add(piece)
                        _add(building, piece if piece.kind is Kind.TABLE else piece._replace(kind=kind))
        if building.is_empty:
            return ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        about, warnings = core_properties(self._package), tuple(self._warnings)
        return finish(
            Parsed(building.text(), about.title, MEDIA_TYPE, warnings, {**about.language}, blocks=building.blocks())
        )

    def _styles(self) -> Styles:
        return read_styles(next(iter(self._roots("styles")), None))

    def _notes(self, styles: Styles) -> dict[tuple[str, str], list[Piece]]:
        """Notes and comments by kind and id, without the separators that Word stores among them."""
        notes: dict[tuple[str, str], list[Piece]] = {}
        for kind in ("footnote", "endnote", "comment"):
            for root in self._roots(kind + "s"):
                story = Story(styles, {}, self._imported)
                for note in root:
                    if local(note) == kind and attribute(note, "type") in {None, "normal"}:
                        pieces = list(story.pieces(note))
                        notes[kind, attribute(note, "id") or ""] = _joined(pieces, kind, attribute(note, "author"))
        return notes

    def _roots(self, kind: str) -> list[Element]:
        """The XML of the main part's neighbours of one kind; a damaged one is left out with a warning."""
        roots = []
        for link in self._links:
            if link.kind == kind:
                try:
                    roots.append(self._package.root(link.target))
                except DAMAGED:
                    self._warnings.add(MALFORMED_PARTS)
        return roots

    def _imported(self, identifier: str) -> list[Piece]:
        """The text of an altChunk, once: HTML, RTF, Word or plain text. Anything else is named in a warning."""
        target = next((link.target for link in self._links if link.identifier == identifier), "")
        if target not in self._package or target in self._chunks:
            return []
        self._chunks.add(target)
        data, media_type = self._package.read(target), self._package.content_type(target)
        seconds = self._deadline - time.monotonic()
        if len(self._chunks) > _MAX_CHUNKS or seconds <= 0:
            raise ParseFailure("too_large", "imports more than can be read in time", remedy="split the file")
        if data.startswith(RTF_START):
            return self._taken(read_rtf(Source(target, data), replace(self._limits, seconds=seconds))[0])
        if data.startswith(_ZIP) and self._depth < _MAX_IMPORTED:
            limits = replace(self._limits, seconds=seconds)
            return self._taken(_read(Package(data, limits), limits, self._depth + 1))
        if media_type in {"text/html", "application/xhtml+xml"}:
            page = html.extract(decode(data, html.declared_charset(data)).text, seconds)
            return [
                Piece(segment.text, Kind(segment.kind), segment.level, segment.header, segment.hidden)
                for segment in page.segments
            ]
        if media_type == "text/plain":
            return [Piece(decode(data).text)]
        self._warnings.add(ATTACHMENTS_NOT_READ)
        return []

    def _taken(self, result: ParseResult) -> list[Piece]:
        if isinstance(result, ParseFailure):
            return []
        self._warnings.update(set(result.warnings) - {HIDDEN_TEXT})
        pieces = []
        for block in result.blocks:
            text = result.text[block.start : block.end]
            text = text.lstrip("# ") if block.kind is Kind.HEADING else text
            pieces.append(Piece(text, block.kind, block.level, block.header, block.hidden))
        return pieces


def _add(building: Building, piece: Piece) -> None:
    building.add(piece.text, piece.kind, level=piece.level, header=piece.header, hidden=piece.hidden)


def _joined(pieces: list[Piece], kind: str, author: str | None) -> list[Piece]:
    """A note as one block; what is hidden in it stays apart."""
    as_kind = Kind.COMMENT if kind == "comment" else Kind.FOOTNOTE
    text = "\n".join(piece.text for piece in pieces if not piece.hidden)
    seen = [Piece(f"{author}: {text}" if author else text, as_kind)] if text else []
    return seen + [piece._replace(kind=as_kind) for piece in pieces if piece.hidden]
