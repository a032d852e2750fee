"""Zip archives of XML parts: what OOXML (ECMA-376 part 2), OpenDocument and EPUB files are.

Parts are unpacked one by one as they are asked for, after `archive.measure` has bounded them all. XML with a document
type is refused, external targets are never followed.
"""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from lxml import etree

from indexing.parse.archive import measure
from indexing.parse.failure import ParseFailure
from indexing.parse.model import ParseLimits, ParseResult, Source
from indexing.parse.tags import stated

Element = Any
"""An lxml element; lxml has no types."""

DAMAGED: Final = (
    SyntaxError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    TypeError,
    OverflowError,
    RecursionError,
)
"""What a part that is damaged or makes no sense raises; lxml's XMLSyntaxError is a SyntaxError."""
_UNZIP: Final = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError)

_MOST_TARGETS: Final = 10_000
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


class Relation(NamedTuple):
    """A link from one part to another. `kind` is the last step of its type, `target` the name of a part."""

    identifier: str
    kind: str
    target: str


class Package:
    """The parts of one archive by name. Raises `ParseFailure` as `measure` does, and "corrupt" for a part that cannot
    be unpacked."""

    def __init__(self, data: bytes, limits: ParseLimits) -> None:
        self._names = measure(data, limits)
        self._folded = {name.casefold(): name for name in self._names}
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._types: Element | None = None

    def __contains__(self, name: str) -> bool:
        return self._name(name) is not None

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def read(self, name: str) -> bytes:
        """Raises KeyError where there is no such part."""
        try:
            return self._archive.read(self._known(name))
        except _UNZIP:
            raise _corrupt() from None

    def size(self, name: str) -> int:
        """Bytes that a part unpacks to. Raises KeyError."""
        return self._archive.getinfo(self._known(name)).file_size

    def root(self, name: str) -> Element:
        """The XML of a part. Raises KeyError, and `DAMAGED` for what is no XML or declares a document type."""
        return parse_xml(self.read(name))

    def stream(self, name: str, *tags: str) -> Iterator[Element]:
        """The elements of a part with the local names `tags`, each emptied after use, so that memory stays small."""
        try:
            with self._archive.open(self._known(name)) as part:
                events = etree.iterparse(
                    part,
                    tag=["{*}" + tag for tag in tags],
                    resolve_entities=False,
                    no_network=True,
                    load_dtd=False,
                    remove_comments=True,
                    remove_pis=True,
                )
                for _, element in events:
                    if element.getroottree().docinfo.doctype:
                        raise ValueError("document type declaration")
                    yield element
                    element.clear(keep_tail=False)
                    while element.getprevious() is not None:
                        del element.getparent()[0]
        except _UNZIP:
            raise _corrupt() from None

    def relations(self, name: str = "") -> list[Relation]:
        """The links of a part, or of the whole package; none for a part whose links are damaged."""
        folder, _, base = name.rpartition("/")
        links = posixpath.join(folder, "_rels", base + ".rels")
        if links not in self:
            return []
        try:
            root = self.root(links)
        except DAMAGED:
            return []
        found: list[Relation] = []
        for link in root:
            target = link.get("Target")
            if target and link.get("TargetMode") != "External" and len(found) < _MOST_TARGETS:
                path = posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")
                found.append(Relation(link.get("Id") or "", (link.get("Type") or "").rpartition("/")[2], path))
        return found

    def content_type(self, name: str) -> str:
        """The media type that an OOXML package gives a part; empty where it gives none."""
        if self._types is None:
            try:
                self._types = self.root("[Content_Types].xml")
            except DAMAGED:
                return ""
        extension = name.rpartition(".")[2].casefold()
        default = ""
        for item in self._types:
            if (item.get("PartName") or "").lstrip("/").casefold() == name.casefold():
                return (item.get("ContentType") or "").partition(";")[0].strip().lower()
            if (item.get("Extension") or "").casefold() == extension:
                default = item.get("ContentType") or ""
        return default.partition(";")[0].strip().lower()

    def _name(self, name: str) -> str | None:
        """The name as the archive has it: some programs write it in other case."""
        return name if name in self._names else self._folded.get(name.casefold())

    def _known(self, name: str) -> str:
        known = self._name(name)
        if known is None:
            raise KeyError(name)
        return known


def parse_xml(data: bytes, *, doctype: bool = False) -> Element:
    """Entities are not resolved, and nothing is loaded. Raises SyntaxError, and ValueError where a document type is
    declared (entity bombs) unless `doctype` allows one, which EPUB 2 wants."""
    root = etree.fromstring(
        data,
        etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True),
    )
    if root.getroottree().docinfo.doctype and not doctype:
        raise ValueError("document type declaration")
    return root


def unquote(path: str) -> str:
    """A path with its escapes resolved (RFC 3986, 2.1); bytes that are no UTF-8 are replaced."""
    return _ESCAPES.sub(lambda found: bytes.fromhex(found.group().replace("%", "")).decode("utf-8", "replace"), path)


def local(element: Element) -> str:
    """The local name; empty for entities that were not resolved."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def attribute(element: Element, name: str) -> str | None:
    """An attribute by its local name, as the transitional and the strict namespaces differ."""
    plain = element.get(name)
    if plain is not None:
        return str(plain)
    return next((str(value) for key, value in element.attrib.items() if key.rpartition("}")[2] == name), None)


def children(element: Element | None, name: str) -> list[Element]:
    return [] if element is None else [item for item in element if local(item) == name]


def child(element: Element | None, *path: str) -> Element | None:
    """The first element on a path of local names."""
    for name in path:
        if element is None:
            return None
        element = next((item for item in element if local(item) == name), None)
    return element


class Properties(NamedTuple):
    """What an OOXML package says about itself; `language` as metadata."""

    title: str | None = None
    language: Mapping[str, str] = MappingProxyType({})


def core_properties(package: Package) -> Properties:
    """Title and language that an OOXML package's properties give.

    The language of its styles is none of them: it is that of the program, until somebody changes it.
    """
    for relation in package.relations():
        if relation.kind == "core-properties":
            try:
                root = package.root(relation.target)
                title, language = child(root, "title"), child(root, "language")
            except DAMAGED:
                break
            text = (title.text or "").strip() if title is not None else ""
            # Programs write these where the author gave no title.
            given = None if text.lower() in {"powerpoint presentation", "powerpoint-präsentation"} else text
            return Properties(given, stated(language.text) if language is not None else {})
    return Properties()


def embedded(package: Package, source: Source) -> list[ParseResult]:
    """The files embedded in an OOXML package, read as children; none where `source` has no nest."""
    results: list[ParseResult] = []
    nest = source.nest
    for number, name in enumerate(embedded_names(package), 1):
        if nest is None:
            break
        base = name.rpartition("/")[2]
        suffix = f"#attachment-{number}/{base}"
        try:
            data = package.read(name)
        except (ParseFailure, KeyError):
            failure = ParseFailure("corrupt", "is damaged in its file", remedy="embed it again, or add it by itself")
            results.extend(nest.refuse(suffix, failure))
            continue
        results.extend(nest.read(suffix, base, data))
    return results


def embedded_names(package: Package) -> list[str]:
    return sorted(name for name in package.names if "/embeddings/" in name and not name.endswith("/"))


def _corrupt() -> ParseFailure:
    return ParseFailure("corrupt", "is a damaged or truncated archive", remedy="fetch or save the file again")
