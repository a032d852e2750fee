"""What a PDF holds beside the text of its pages: annotations, form fields, embedded files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from pypdf import PdfReader
from pypdf.errors import LimitReachedError

from indexing.parse.failure import ParseFailure
from indexing.parse.model import Kind, ParseResult, Source

_MAX_NOTES: Final = 2_000
"""Annotations of one page that are read."""
_HIDDEN_FLAGS: Final = 0b100010
"""Hidden, and not shown on screen (ISO 32000-1, table 165)."""
_PASSWORD_FIELD: Final = 1 << 13
_MAX_TREE: Final = 5_000
_UNREAD: Final = frozenset({"/Link", "/Popup", "/FileAttachment", "/Movie", "/Sound", "/Screen", "/3D", "/Watermark"})


class Note(NamedTuple):
    text: str
    kind: Kind
    hidden: bool


def notes(reader: PdfReader, number: int) -> list[Note]:
    """The comments on a page and the values in its form fields; `number` from 0 on."""
    found = []
    try:
        for annotation in list(_array(reader.pages[number].get("/Annots")))[:_MAX_NOTES]:
            note = _note(_dictionary(annotation))
            if note is not None:
                found.append(note)
    except Exception:  # noqa: BLE001 (damaged annotations are no reason to lose the page)
        return found
    return found


def _note(annotation: Mapping[str, Any]) -> Note | None:
    kind = annotation.get("/Subtype")
    hidden = bool(int(annotation.get("/F", 0)) & _HIDDEN_FLAGS)
    if kind == "/Widget":
        value = _inherited(annotation, "/V")
        name = _text(_inherited(annotation, "/TU")) or _text(_inherited(annotation, "/T"))
        secret = int(_inherited(annotation, "/Ff") or 0) & _PASSWORD_FIELD
        text = _text(value)
        return Note(f"{name}: {text}" if name else text, Kind.PARAGRAPH, hidden) if text and not secret else None
    text = _text(annotation.get("/Contents"))
    if kind in _UNREAD or not text:
        return None
    author = _text(annotation.get("/T"))
    return Note(f"{author}: {text}" if author else text, Kind.COMMENT, hidden)


def _inherited(field: Mapping[str, Any], key: str) -> Any:
    for _ in range(16):
        if key in field:
            return field.get(key)
        field = _dictionary(field.get("/Parent"))
    return None


def has_attachments(reader: PdfReader) -> bool:
    try:
        return next(_specifications(reader), None) is not None
    except Exception:  # noqa: BLE001 (damaged lists of files are no reason to lose the text)
        return False


def attachments(reader: PdfReader, source: Source, keep_within: Callable[[], None]) -> list[ParseResult]:
    """The embedded files, read as children "#attachment-1/name"; none where `source` has no nest."""
    results: list[ParseResult] = []
    if source.nest is None:
        return results
    known: set[int] = set()
    number = 0
    specifications = _specifications(reader)
    while True:
        keep_within()
        try:
            found = next(specifications, None)
            if found is None:
                break
            stream = _stream(found)
            if stream is None or id(stream) in known:
                continue
            known.add(id(stream))
            number += 1
            name = _text(found.get("/UF")) or _text(found.get("/F")) or f"attachment-{number}"
        except Exception:  # noqa: BLE001 (as above; what was read before stays)
            break
        suffix = f"#attachment-{number}/{name}"
        try:
            data = bytes(stream.get_data())
        except LimitReachedError:
            failure = ParseFailure("too_large", "unpacks to more than it may", remedy="add it by itself")
            results.extend(source.nest.refuse(suffix, failure))
            continue
        except Exception:  # noqa: BLE001 (pypdf raises whatever a damaged file leads it into)
            failure = ParseFailure("corrupt", "is damaged in its PDF", remedy="attach it again, or add it by itself")
            results.extend(source.nest.refuse(suffix, failure))
            continue
        results.extend(source.nest.read(suffix, name, data))
    return results


def _specifications(reader: PdfReader) -> Iterator[Mapping[str, Any]]:
    """File specifications of the document's name tree, then of file notes on its pages."""
    root = _dictionary(reader.root_object)
    trees = [_dictionary(_dictionary(root.get("/Names")).get("/EmbeddedFiles"))]
    seen = 0
    while trees and seen < _MAX_TREE:
        tree = trees.pop()
        seen += 1
        yield from (_dictionary(item) for item in _array(tree.get("/Names"))[1::2])
        trees.extend(_dictionary(kid) for kid in _array(tree.get("/Kids")))
    for page in reader.pages:
        for annotation in _array(page.get("/Annots"))[:_MAX_NOTES]:
            note = _dictionary(annotation)
            if note.get("/Subtype") == "/FileAttachment":
                yield _dictionary(note.get("/FS"))


def _stream(specification: Mapping[str, Any]) -> Any:
    files = _dictionary(specification.get("/EF"))
    for key in ("/UF", "/F"):
        found: Any = files.get(key)
        stream = found.get_object() if hasattr(found, "get_object") else found
        if hasattr(stream, "get_data"):
            return stream
    return None


def _text(value: Any) -> str:
    found = value.get_object() if hasattr(value, "get_object") else value
    # A name is what a box that is ticked has for a value; "/Off" is one that is not.
    return "" if not isinstance(found, str) or found == "/Off" else str(found).strip().removeprefix("/")


def _array(value: Any) -> list[Any]:
    found = value.get_object() if hasattr(value, "get_object") else value
    return found if isinstance(found, list) else []


def _dictionary(value: Any) -> Mapping[str, Any]:
    found = value.get_object() if hasattr(value, "get_object") else value
    return found if isinstance(found, Mapping) else {}
