"""EPUB 2 and 3: the pages of the spine in their order, each a place by its title in the table of contents."""

from __future__ import annotations

import posixpath
import re
import time
from typing import Final

from indexing.parse import html
from indexing.parse.building import Building
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    UNCERTAIN_ENCODING,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)
from indexing.parse.package import DAMAGED, Element, Package, attribute, child, children, local, parse_xml, unquote
from indexing.parse.tags import stated

MEDIA_TYPE: Final = "application/epub+zip"

_PAGES: Final = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml"})
_NCX: Final = "application/x-dtbncx+xml"
# XHTML closes these at once; an HTML parser would take all that follows for their content.
_CLOSED = re.compile(r"<(title|script|style|iframe|textarea|noscript|xmp|noembed|template)\b([^<>]*)/>", re.IGNORECASE)
_MAX_PAGES: Final = 20_000


def read_epub(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, encrypted, too_large (size or time), no_text."""
    package = Package(source.data, limits)
    try:
        return [_Book(package, limits).parsed()]
    except DAMAGED:
        raise ParseFailure(
            "corrupt", "is not a readable EPUB book", remedy="fetch it again, or save it as PDF"
        ) from None


class _Book:
    def __init__(self, package: Package, limits: ParseLimits) -> None:
        self._package = package
        self._limits = limits
        self._warnings: set[str] = set()
        container = package.root("META-INF/container.xml")
        book = next((item for item in container.iter("{*}rootfile") if attribute(item, "full-path")), None)
        if book is None:
            raise ValueError("no book")
        path = attribute(book, "full-path") or ""
        self._root = parse_xml(package.read(path), doctype=True)
        self._items = {
            attribute(item, "id") or "": (
                _path(path, attribute(item, "href") or ""),
                attribute(item, "media-type") or "",
                attribute(item, "properties") or "",
            )
            for item in children(child(self._root, "manifest"), "item")
        }
        self._sealed = self._encrypted()

    def parsed(self) -> ParseResult:
        deadline = time.monotonic() + self._limits.seconds
        building = Building(self._limits.max_characters)
        titles = self._titles()
        read = failed = 0
        for number, item in enumerate(children(child(self._root, "spine"), "itemref")[:_MAX_PAGES], 1):
            path, media_type, _ = self._items.get(attribute(item, "idref") or "", ("", "", ""))
            if media_type not in _PAGES:
                continue
            if path in self._sealed:
                raise ParseFailure(
                    "encrypted", "is protected against copying", remedy="ask its publisher for a copy without"
                )
            try:
                data = self._package.read(path)
            except KeyError:
                failed += 1
                continue
            building.place(titles.get(path) or f"part {number}")
            self._page(building, data, deadline - time.monotonic())
            read += 1
        if failed and not read:
            raise ValueError("no page can be read")
        if failed:
            self._warnings.add(MALFORMED_PARTS)
        if building.is_empty:
            return ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        title = child(self._root, "metadata", "title")
        languages = [item.text for item in children(child(self._root, "metadata"), "language")]
        return finish(
            Parsed(
                building.text(),
                title.text if title is not None else None,
                MEDIA_TYPE,
                tuple(self._warnings),
                {**stated(*languages)},
                blocks=building.blocks(),
                places=building.places(),
            )
        )

    def _page(self, building: Building, data: bytes, seconds: float) -> None:
        if seconds <= 0:
            raise ParseFailure(
                "too_large", f"takes more than {self._limits.seconds:.0f} s to read", remedy="split the book"
            )
        decoded = decode(data, html.declared_charset(data) or "utf-8")
        if not decoded.certain:
            self._warnings.add(UNCERTAIN_ENCODING)
        html.add_page(building, html.extract(_CLOSED.sub(r"<\1\2></\1>", decoded.text), seconds))

    def _titles(self) -> dict[str, str]:
        """Page -> the first title that the table of contents (EPUB 3, or the NCX of EPUB 2) has for it."""
        titles: dict[str, str] = {}
        for path, media_type, properties in self._items.values():
            if media_type != _NCX and "nav" not in properties.split():
                continue
            try:
                root = parse_xml(self._package.read(path), doctype=True)
            except DAMAGED:
                self._warnings.add(MALFORMED_PARTS)
                continue
            for link, text in _links(root):
                target = _path(path, link.partition("#")[0])
                if text:
                    titles.setdefault(target, text)
        return titles

    def _encrypted(self) -> frozenset[str]:
        """The parts that are encrypted; fonts often are, and their text can be read all the same."""
        if "META-INF/encryption.xml" not in self._package:
            return frozenset()
        root = self._package.root("META-INF/encryption.xml")
        return frozenset(unquote(attribute(item, "URI") or "") for item in root.iter("{*}CipherReference"))


def _links(root: Element) -> list[tuple[str, str]]:
    """Target and text of the entries of a table of contents."""
    found = []
    for item in root.iter("{*}navPoint", "{*}a"):
        if local(item) == "a":
            found.append((attribute(item, "href") or "", " ".join("".join(item.itertext()).split())))
        else:
            content, label = child(item, "content"), child(item, "navLabel")
            text = " ".join("".join(label.itertext()).split()) if label is not None else ""
            found.append((attribute(content, "src") or "" if content is not None else "", text))
    return found


def _path(base: str, href: str) -> str:
    return posixpath.normpath(posixpath.join("/", posixpath.dirname(base), unquote(href))).lstrip("/")
