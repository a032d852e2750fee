"""DOCX: body in order with tables, text boxes, notes and imported parts; then headers and footers.

python-docx opens the package; the text is gathered from its XML, since the library's paragraphs leave out
content controls, tracked insertions, text boxes, notes and altChunk parts. External targets are never
followed, and the archive is measured before it is unpacked.
"""

from __future__ import annotations

import io
from typing import Final

from docx.opc.package import OpcPackage
from docx.opc.part import Part
from docx.oxml.parser import parse_xml

from indexing.parse import html
from indexing.parse.archive import measure
from indexing.parse.decode import decode
from indexing.parse.docx_text import Element, Story, Styles, attribute, child, local, read_styles
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    COMMENTS_NOT_READ,
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)

MEDIA_TYPE: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_DAMAGED: Final = (SyntaxError, ValueError, AttributeError, RecursionError)
"""What lxml, whose XMLSyntaxError is a SyntaxError, raises for a damaged part."""


def read_docx(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large, no_text."""
    measure(source.data, limits)
    try:
        return [_Document(source.data, limits).parsed()]
    except ParseFailure:
        raise
    except Exception:  # noqa: BLE001 (zipfile, zlib, lxml and python-docx raise dozens of kinds)
        raise ParseFailure(
            "corrupt", "is not a readable Word file", remedy="open it in a word processor and save it again"
        ) from None


class _Document:
    def __init__(self, data: bytes, limits: ParseLimits) -> None:
        self._limits = limits
        self._warnings: set[str] = set()
        package = OpcPackage.open(io.BytesIO(data))
        parts = {
            _kind(relation.reltype): relation.target_part
            for relation in package.rels.values()
            if not relation.is_external
        }
        self._main: Part = parts["officeDocument"]
        self._core: Part | None = parts.get("core-properties")
        self._parts = [
            (relation.rId, _kind(relation.reltype), relation.target_part)
            for relation in self._main.rels.values()
            if not relation.is_external
        ]

    def parsed(self) -> ParseResult:
        styles = self._styles()
        notes = self._notes(styles)
        body = Story(styles, notes, self._imported)
        blocks = list(body.blocks(_root(self._main)))
        hidden = body.hidden
        # The parts for first, even and other pages mostly repeat one another.
        margins: dict[str, None] = {}
        for kind in ("header", "footer"):
            for root in self._roots(kind):
                margin = Story(styles, notes, self._imported)
                margins |= dict.fromkeys(margin.blocks(root))
                hidden |= margin.hidden
        text = "\n\n".join((*blocks, *margins))
        if not text.strip():
            raise ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if len(text) > self._limits.max_characters:
            raise ParseFailure(
                "too_large", f"holds more than {self._limits.max_characters} characters", remedy="split the file"
            )
        kinds = {kind for _, kind, _ in self._parts}
        if hidden:
            self._warnings.add(HIDDEN_TEXT)
        if kinds & {"oleObject", "package"}:
            self._warnings.add(ATTACHMENTS_NOT_READ)
        if "comments" in kinds:
            self._warnings.add(COMMENTS_NOT_READ)
        return finish(Parsed(text, self._title(), MEDIA_TYPE, tuple(self._warnings)))

    def _styles(self) -> Styles:
        return read_styles(next(iter(self._roots("styles")), None))

    def _notes(self, styles: Styles) -> dict[tuple[str, str], str]:
        """Footnotes and endnotes by kind and id, without the separators that Word stores among them."""
        notes: dict[tuple[str, str], str] = {}
        for kind in ("footnote", "endnote"):
            for root in self._roots(kind + "s"):
                story = Story(styles, {}, self._imported)
                for note in root:
                    if local(note) == kind and attribute(note, "type") in {None, "normal"}:
                        notes[kind, attribute(note, "id") or ""] = "\n".join(story.blocks(note))
                if story.hidden:
                    self._warnings.add(HIDDEN_TEXT)
        return notes

    def _roots(self, kind: str) -> list[Element]:
        """The XML of the main part's neighbours of one kind; a damaged one is left out with a warning."""
        roots = []
        for _, found, part in self._parts:
            if found == kind:
                try:
                    roots.append(_root(part))
                except _DAMAGED:
                    self._warnings.add(MALFORMED_PARTS)
        return roots

    def _imported(self, identifier: str) -> str:
        """The text of an altChunk: HTML, or plain text. Anything else is named in a warning."""
        part = next((part for found, _, part in self._parts if found == identifier), None)
        if part is None:
            return ""
        media_type = part.content_type.partition(";")[0].strip().lower()
        if media_type in {"text/html", "application/xhtml+xml"}:
            page = html.extract(decode(part.blob, html.declared_charset(part.blob)).text, self._limits.seconds)
            if page.hidden:
                self._warnings.add(HIDDEN_TEXT)
            return page.text
        if media_type == "text/plain":
            return decode(part.blob).text
        self._warnings.add(ATTACHMENTS_NOT_READ)
        return ""

    def _title(self) -> str | None:
        try:
            title = child(_root(self._core), "title") if self._core is not None else None
        except _DAMAGED:
            return None
        return title.text if title is not None else None


def _kind(reltype: str) -> str:
    return reltype.rpartition("/")[2]


def _root(part: Part) -> Element:
    """The XML of a part. Raises ValueError where it declares a document type, which OPC forbids (entity bombs)."""
    root: Element = getattr(part, "element", None)
    if root is None:
        root = parse_xml(part.blob)
    if root.getroottree().docinfo.doctype:
        raise ValueError("document type declaration")
    return root
