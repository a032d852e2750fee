"""XML as an outline: a line an element that holds a value, paragraphs where text and elements mix.

No document type is loaded, no entity of the document's own is expanded, and nothing is fetched: an entity stays as its
reference. libxml2 bounds depth (256), the size of a text (10 MB) and what attributes expand to by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from lxml import etree

from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.html import read_html
from indexing.parse.model import (
    EMBEDDED_DATA_REMOVED,
    MALFORMED_PARTS,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    clean,
    finish,
)
from indexing.parse.outline import Outline
from indexing.parse.tags import stated

MEDIA_TYPE: Final = "application/xml"

_PARAGRAPHS: Final = frozenset(["p", "para", "simpara", "paragraph", "text", "body", "abstract"])
_HEADINGS: Final = frozenset({"title", "heading", "head", "h1", "h2", "h3"})
_ENTITY = re.compile(rb"<!\s*ENTITY", re.IGNORECASE)
_ENTITIES: Final = 1_000
_LANGUAGE: Final = "{http://www.w3.org/XML/1998/namespace}lang"

Element = Any


def read_xml(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, too_large, empty."""
    if len(source.data) > limits.max_xml_bytes:
        raise ParseFailure("too_large", f"has more than {limits.max_xml_bytes} bytes of XML", remedy="split the file")
    if len(_ENTITY.findall(source.data.replace(b"\0", b""))) > _ENTITIES:
        raise ParseFailure("too_large", f"declares more than {_ENTITIES} entities", remedy="write them out")
    root = _parsed(source.data)
    if _local(root) == "html":
        return read_html(source, limits)
    building = Building(limits.max_characters)
    outline = Outline(building, limits.max_characters)
    warnings = set()
    if any(True for _ in root.iter(etree.Entity)):
        warnings.add(MALFORMED_PARTS)
    _Walk(building, outline).all(root)
    if outline.removed:
        warnings.add(EMBEDDED_DATA_REMOVED)
    title = next((_text(child) for child in root.iter("{*}title") if len(child) == 0), None)
    return [
        finish(
            Parsed(
                building.text(),
                title,
                MEDIA_TYPE,
                tuple(warnings),
                {**stated(root.get(_LANGUAGE))},
                blocks=building.blocks(),
                places=building.places(),
            )
        )
    ]


def _parsed(data: bytes) -> Element:
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data.lstrip(b" \t\r\n"), parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        message = str(error).lower()
        if "entity loop" in message or "entity reference loop" in message or "amplification" in message:
            raise ParseFailure("too_large", "its entities expand without end", remedy="write them out") from None
        if "depth" in message or "huge" in message:
            raise ParseFailure(
                "too_large", "is nested too deeply, or one text is too long", remedy="split it"
            ) from None
        raise ParseFailure("corrupt", "is not well-formed XML", remedy="check it with an XML editor") from None
    return root


class _Walk:
    """Depth is bounded by the parser, to 256."""

    def __init__(self, building: Building, outline: Outline) -> None:
        self._building = building
        self._outline = outline

    def all(self, root: Element) -> None:
        self._attributes(root, 0)
        self._outline.end()
        if _is_mixed(root) or not len(root):
            self._building.add(_flat(root))
            return
        count: dict[str, int] = {}
        for child in root:
            name = _local(child)
            count[name] = count.get(name, 0) + 1
            self._building.place(f"/{_local(root)}/{name}[{count[name]}]"[:200])
            self._one(child, 0)
            self._outline.end()

    def _one(self, element: Element, depth: int) -> None:
        name = _local(element)
        if not len(element) or _is_mixed(element):
            text = _flat(element)
            if name in _HEADINGS and text:
                self._outline.end()
                self._building.add(text, Kind.HEADING, level=min(depth + 1, 6))
            elif name in _PARAGRAPHS or _is_mixed(element):
                self._outline.end()
                self._building.add(text)
            elif text:
                self._outline.line(depth, name, text)
            elif element.attrib:
                self._outline.line(depth, name)
            self._attributes(element, depth + 1)
            return
        self._outline.line(depth, name)
        self._attributes(element, depth + 1)
        for child in element:
            self._one(child, depth + 1)

    def _attributes(self, element: Element, depth: int) -> None:
        for name, value in element.attrib.items():
            local = etree.QName(name).localname
            if value.strip() and not name.startswith("{http://www.w3.org/"):
                self._outline.line(depth, local, value)


def _local(element: Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _is_mixed(element: Element) -> bool:
    """Text beside elements: prose, not data."""
    if not len(element):
        return False
    if any(not isinstance(child.tag, str) for child in element):
        return True
    return any(text and not text.isspace() for text in (element.text, *(child.tail for child in element)))


def _flat(element: Element) -> str:
    return " ".join(_text(element).split())


def _text(element: Element) -> str:
    return clean("".join(_pieces(element)))


def _pieces(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if isinstance(child.tag, str):
            yield from _pieces(child)
        elif child.tag is etree.Entity:
            yield child.text or ""
        yield child.tail or ""
