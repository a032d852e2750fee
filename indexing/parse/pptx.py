"""PPTX: slides as places, with their tables, charts, diagrams, notes and comments.

Shapes come in the order of the file, which is that in which a screen reader reads them, the title first. Text that all
slides have from their layout is written once, after the first that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from indexing.parse import drawing
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
from indexing.parse.sheet import write_rows

MEDIA_TYPE: Final = "application/vnd.openxmlformats-officedocument.presentationml.presentation"

_TITLES: Final = frozenset({"title", "ctrTitle"})
_RUNNING: Final = frozenset({"ftr", "hdr", "dt"})
_LISTS: Final = frozenset({"body", "obj", ""})
"""Placeholders whose paragraphs are list items unless they say otherwise."""
_MAX_GROUPS: Final = 50


def read_pptx(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large, no_text. Embedded files are children."""
    package = Package(source.data, limits)
    try:
        parsed = _Presentation(package, limits).parsed()
    except DAMAGED:
        raise ParseFailure(
            "corrupt", "is not a readable presentation", remedy="open it in a presentation program and save it again"
        ) from None
    if isinstance(parsed, Parsed) and source.nest is None and embedded_names(package):
        parsed = replace(parsed, warnings=tuple(sorted({*parsed.warnings, ATTACHMENTS_NOT_READ})))
    return [parsed, *embedded(package, source)]


class _Shape(NamedTuple):
    element: Element
    placeholder: str | None
    """The type of a placeholder, empty for one of any content; None for another shape."""
    hidden: bool


class _Presentation:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self._package = package
        start = next((link for link in package.relations() if link.kind == "officeDocument"), None)
        if start is None:
            raise ValueError("no presentation")
        self._root = package.root(start.target)
        self._links = package.relations(start.target)
        self._building = Building(limits.max_characters)
        self._warnings: set[str] = set()
        self._running: set[str] = set()
        self._layouts: set[str] = set()
        size = child(self._root, "sldSz")
        self._size = (_number(size, "cx"), _number(size, "cy"))
        self._authors = self._read_authors()

    def parsed(self) -> ParseResult:
        targets = {link.identifier: link.target for link in self._links}
        slides = children(child(self._root, "sldIdLst"), "sldId")
        read = 0
        for number, item in enumerate(slides, 1):
            target = targets.get(_identifier(item))
            if target is None:
                continue
            try:
                root = self._package.root(target)
            except DAMAGED:
                self._warnings.add(MALFORMED_PARTS)
                continue
            self._building.place(f"slide {number}")
            self._slide(root, self._package.relations(target))
            read += 1
        if slides and not read:
            raise ValueError("no slide can be read")
        if self._building.is_empty:
            return ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if self._building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        about = core_properties(self._package)
        return finish(
            Parsed(
                self._building.text(),
                about.title,
                MEDIA_TYPE,
                tuple(self._warnings),
                {"slides": len(slides), **about.language},
                blocks=self._building.blocks(),
                places=self._building.places(),
            )
        )

    def _slide(self, root: Element, links: list[Relation]) -> None:
        hidden = attribute(root, "show") in {"0", "false"}
        shapes = list(self._shapes(child(root, "cSld", "spTree"), hidden))
        shapes.sort(key=lambda shape: shape.placeholder not in _TITLES)  # a stable sort
        for shape in shapes:
            self._shape(shape, links)
        for link in links:
            try:
                if link.kind == "notesSlide":
                    self._notes(self._package.root(link.target))
                elif link.kind == "comments":
                    self._comments(self._package.root(link.target))
                elif link.kind == "slideLayout":
                    self._layout(link.target)
            except DAMAGED:
                self._warnings.add(MALFORMED_PARTS)

    def _shapes(self, tree: Element | None, hidden: bool, depth: int = 0) -> Iterator[_Shape]:
        """The shapes of a tree, those in groups too."""
        for item in tree if tree is not None and depth < _MAX_GROUPS else ():
            name = local(item)
            if name in {"grpSp", "AlternateContent", "Choice"}:
                yield from self._shapes(item, hidden or _is_hidden(item), depth + 1)
            elif name in {"sp", "graphicFrame", "cxnSp"}:
                properties = child(item, "nvSpPr") if name == "sp" else None
                mark = child(properties, "nvPr", "ph")
                placeholder = None if mark is None else attribute(mark, "type") or ""
                # A group has coordinates of its own, in which the slide's edges are not known.
                unseen = hidden or _is_hidden(item) or (depth == 0 and self._is_outside(item))
                yield _Shape(item, placeholder, unseen)

    def _shape(self, shape: _Shape, links: list[Relation]) -> None:
        element, kind = shape.element, shape.placeholder
        if kind == "sldNum":
            return
        if local(element) == "graphicFrame":
            self._frame(shape, links)
            return
        body = child(element, "txBody")
        if kind in _TITLES or kind in _RUNNING:
            text = " ".join(item.text for item in drawing.paragraphs(body))
            if kind in _TITLES:
                self._building.add(text, Kind.HEADING, level=1, hidden=shape.hidden)
            elif text not in self._running:
                self._running.add(text)
                self._building.add(text, Kind.HEADER if kind == "hdr" else Kind.FOOTER, hidden=shape.hidden)
            return
        self._body(body, kind in _LISTS, shape.hidden)

    def _body(self, body: Element | None, is_list: bool, hidden: bool) -> None:
        """Paragraphs; those that follow each other and are of one sort are one block."""
        found = list(drawing.paragraphs(body))
        part: list[str] = []
        sort: tuple[bool, bool] | None = None
        for item in found:
            listed = not item.plain and (item.level is not None or (is_list and len(found) > 1))
            now = (listed, hidden or item.tiny)
            if sort is not None and sort != now:
                self._flush(part, sort)
            sort = now
            part.append("  " * (item.level or 0) + "- " + item.text if listed else item.text)
        if sort is not None:
            self._flush(part, sort)

    def _flush(self, part: list[str], sort: tuple[bool, bool]) -> None:
        is_list, hidden = sort
        self._building.add("\n".join(part), Kind.LIST if is_list else Kind.PARAGRAPH, hidden=hidden)
        part.clear()

    def _frame(self, shape: _Shape, links: list[Relation]) -> None:
        """A table, or the chart or diagram that the frame names."""
        for table in shape.element.iter("{*}tbl"):
            write_rows(self._building, [" | ".join(row) for row in drawing.table(table)], hidden=shape.hidden)
        named = {
            value
            for item in shape.element.iter("{*}chart", "{*}relIds")
            for key, value in item.attrib.items()
            if key.rpartition("}")[2] in {"id", "dm"}
        }
        wanted = [link for link in links if link.identifier in named]
        for text, rows in drawing.linked(self._package, wanted):
            self._building.add(text, Kind.LIST if text.startswith("- ") else Kind.PARAGRAPH, hidden=shape.hidden)
            write_rows(self._building, [" | ".join(row) for row in rows], hidden=shape.hidden)

    def _notes(self, root: Element) -> None:
        for shape in self._shapes(child(root, "cSld", "spTree"), hidden=False):
            if shape.placeholder in {"body", ""}:
                text = "\n".join(item.text for item in drawing.paragraphs(child(shape.element, "txBody")))
                self._building.add(text, Kind.NOTES)

    def _comments(self, root: Element) -> None:
        """Comments of the old form (`p:cm` with a text) and of the new one (with a text body, and replies)."""
        for item in root.iter("{*}cm", "{*}reply"):
            plain = child(item, "text")
            body = drawing.paragraphs(child(item, "txBody"))
            texts = [plain.text or ""] if plain is not None else [paragraph.text for paragraph in body]
            author = self._authors.get(attribute(item, "authorId") or "")
            text = "\n".join(texts).strip()
            self._building.add(f"{author}: {text}" if author and text else text, Kind.COMMENT)

    def _layout(self, target: str) -> None:
        """Text that the layout and its master put on a slide by themselves."""
        if target in self._layouts:
            return
        self._layouts.add(target)
        root = self._package.root(target)
        for shape in self._shapes(child(root, "cSld", "spTree"), hidden=False):
            if shape.placeholder is None:
                for item in drawing.paragraphs(child(shape.element, "txBody")):
                    if item.text not in self._running:
                        self._running.add(item.text)
                        self._building.add(item.text, Kind.FOOTER, hidden=shape.hidden)
        for link in self._package.relations(target):
            if link.kind == "slideMaster":
                self._layout(link.target)

    def _read_authors(self) -> Mapping[str, str]:
        authors: dict[str, str] = {}
        for link in self._links:
            if link.kind in {"commentAuthors", "authors"}:
                try:
                    for item in self._package.root(link.target):
                        authors[attribute(item, "id") or ""] = attribute(item, "name") or ""
                except DAMAGED:
                    self._warnings.add(MALFORMED_PARTS)
        return authors

    def _is_outside(self, element: Element) -> bool:
        """Whether a shape lies wholly beyond the slide's edges."""
        frame = child(element, "spPr", "xfrm") if local(element) != "graphicFrame" else child(element, "xfrm")
        offset, extent = child(frame, "off"), child(frame, "ext")
        if offset is None or extent is None or not all(self._size):
            return False
        left, top = _number(offset, "x"), _number(offset, "y")
        right, bottom = left + _number(extent, "cx"), top + _number(extent, "cy")
        return left >= self._size[0] or top >= self._size[1] or right <= 0 or bottom <= 0


def _is_hidden(element: Element) -> bool:
    for item in element:
        if local(item).startswith("nv"):
            mark = child(item, "cNvPr")
            return mark is not None and attribute(mark, "hidden") in {"1", "true"}
    return False


def _identifier(element: Element) -> str:
    """The relation that a `sldId` names; its own number is an `id` too, without a namespace."""
    return next((str(value) for key, value in element.attrib.items() if key.endswith("}id")), "")


def _number(element: Element | None, name: str) -> int:
    text = attribute(element, name) or "" if element is not None else ""
    return int(text) if text.lstrip("-").isdecimal() else 0
