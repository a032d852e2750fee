"""Which parser reads a file: by its content where that is telling, else by media type, else by extension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from indexing.parse import bundles, office
from indexing.parse.archive import listed
from indexing.parse.delimited import read_csv
from indexing.parse.failure import ParseFailure
from indexing.parse.html import read_html
from indexing.parse.jsonlines import read_jsonl
from indexing.parse.mail import read_eml
from indexing.parse.markdown import read_markdown
from indexing.parse.members import read_zip
from indexing.parse.model import UNCERTAIN_ENCODING, Nest, Parsed, ParseLimits, ParseResult, Source
from indexing.parse.nesting import Tree
from indexing.parse.ocr import is_picture, read_picture
from indexing.parse.pdf import read_pdf
from indexing.parse.plain import read_text
from indexing.parse.rst import read_rst
from indexing.parse.structured import read_json
from indexing.parse.xml import read_xml

Reader = Callable[[Source, ParseLimits], list[ParseResult]]

EXTENSIONS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("txt", "text", "log", "adoc", "yaml", "yml", "toml", "ini"), read_text),
    **dict.fromkeys(("md", "markdown", "mdown", "mkd"), read_markdown),
    **dict.fromkeys(("html", "htm", "xhtml"), read_html),
    **office.EXTENSIONS,
    **bundles.EXTENSIONS,
    **dict.fromkeys(("csv", "tsv", "tab"), read_csv),
    **dict.fromkeys(("jsonl", "ndjson"), read_jsonl),
    **dict.fromkeys(("rst", "rest"), read_rst),
    **dict.fromkeys(("json", "geojson", "ipynb"), read_json),
    **dict.fromkeys(("xml", "rss", "atom", "xsd", "dita"), read_xml),
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "tif", "tiff", "bmp", "webp"), read_picture),
    "pdf": read_pdf,
}
MEDIA_TYPES: Final[dict[str, Reader]] = {
    "text/plain": read_text,
    "application/json": read_json,
    "application/xml": read_xml,
    "text/xml": read_xml,
    "text/x-rst": read_rst,
    **dict.fromkeys(("image/png", "image/jpeg", "image/gif", "image/tiff", "image/bmp", "image/webp"), read_picture),
    "text/markdown": read_markdown,
    "text/html": read_html,
    "application/xhtml+xml": read_html,
    "application/pdf": read_pdf,
    **office.MEDIA_TYPES,
    **bundles.MEDIA_TYPES,
    "text/csv": read_csv,
    "text/tab-separated-values": read_csv,
    "application/x-ndjson": read_jsonl,
    "application/jsonl": read_jsonl,
}
_REMEDIES: Final = {
    **dict.fromkeys(("doc", "pages", "dot"), "save it as DOCX or PDF"),
    **dict.fromkeys(("xls", "xlsb", "numbers"), "save it as XLSX"),
    **dict.fromkeys(("ppt", "key"), "save it as PDF"),
    **dict.fromkeys(("pst", "ost"), "export the messages as EML, MSG or MBOX"),
    **dict.fromkeys(("7z", "rar", "zst", "lz", "cab", "iso"), "unpack it and add the files"),
}
_READABLE: Final = (
    "readable are text, Markdown, HTML, PDF, DOCX, XLSX, PPTX, OpenDocument, RTF, EPUB, CSV, JSON Lines, mails and "
    "archives"
)

_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE: Final = "EncryptedPackage".encode("utf-16-le")
_ZIPS: Final = (b"PK\x03\x04", b"PK\x05\x06")
_HTML_STARTS: Final = (b"<!doctype html", b"<html")


def parse(
    path_name: str, data: bytes, media_type: str | None = None, *, limits: ParseLimits | None = None
) -> list[ParseResult]:
    """The documents in one file: mostly one, for JSON Lines one a line.

    A file that yields nothing raises `ParseFailure`, with `path_name` as its item. A child that fails is a
    `ParseFailure` among the results and costs the others nothing. `media_type` may carry a charset.
    """
    bounds = limits or ParseLimits()

    def read(name: str, data: bytes, media_type: str | None, charset: str | None, nest: Nest) -> list[ParseResult]:
        return _read(Source(name, data, charset, nest), media_type, bounds)

    declared, charset = _media_type(media_type)
    try:
        results = read(path_name, data, declared, charset, Tree(bounds, read))
    except ParseFailure as failure:
        failure.item = path_name
        raise
    for result in results:
        if isinstance(result, ParseFailure):
            result.item = path_name + result.suffix
    return results


def _read(source: Source, media_type: str | None, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure` where nothing at all can be read."""
    size = len(source.data)
    if size > limits.max_bytes:
        raise ParseFailure(
            "too_large",
            f"has {size} bytes; the limit is {limits.max_bytes}",
            remedy="split the file, or raise the limit",
        )
    if not size:
        raise ParseFailure("empty", "is an empty file", remedy="remove it, or put text in it")
    reader = _recognise(source.name, source.data, media_type, limits)
    results = [_bounded(result, limits) for result in reader(source, limits)]
    if len(results) == 1 and isinstance(results[0], ParseFailure) and not results[0].suffix:
        raise results[0]
    # An unknown kind of file is text only if it surely is.
    if reader is _read_unknown and any(
        isinstance(result, Parsed) and UNCERTAIN_ENCODING in result.warnings for result in results
    ):
        raise _unsupported(source.name)
    return results


def _bounded(result: ParseResult, limits: ParseLimits) -> ParseResult:
    """No text is longer than it may be, also of formats that are text as they are."""
    if isinstance(result, Parsed) and len(result.text) > limits.max_characters:
        reason = f"holds more than {limits.max_characters} characters"
        return ParseFailure("too_large", reason, remedy="split the file", suffix=result.suffix)
    return result


def _recognise(name: str, data: bytes, media_type: str | None, limits: ParseLimits) -> Reader:
    extension = _extension(name)
    reader = MEDIA_TYPES.get(media_type or "") or EXTENSIONS.get(extension)
    magic = _by_content(name, data, limits)
    if magic is not None:
        return magic
    if reader is read_pdf and b"%PDF-" not in data[:1024]:
        raise ParseFailure("corrupt", "is not a PDF file", remedy="check the file and its extension")
    if extension in bundles.NAMES and media_type not in MEDIA_TYPES:
        raise ParseFailure("corrupt", f"is not {bundles.NAMES[extension]}", remedy="check the file and its extension")
    if reader in office.NAMES:
        raise ParseFailure("corrupt", f"is not {office.NAMES[reader]}", remedy="check the file and its extension")
    if reader in {None, read_text} and data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML_STARTS):
        return read_html
    if reader is None and extension in _REMEDIES:
        raise _unsupported(name)
    if reader is None and data[:1024].lstrip(b"\xef\xbb\xbf").startswith(b"<?xml"):
        return read_xml
    if reader is None and bundles.is_mail(data):
        return read_eml
    return reader or _read_unknown


def _by_content(name: str, data: bytes, limits: ParseLimits) -> Reader | None:
    """The reader that a file's first bytes demand, whatever its name says."""
    if data.startswith(b"%PDF-"):
        return read_pdf
    if data.startswith(_OLE):
        found = bundles.by_compound_file(data)
        if found is not None:
            return found
        if _ENCRYPTED_PACKAGE in data:
            raise ParseFailure("encrypted", "needs a password", remedy="save a copy without the password and add that")
        raise ParseFailure("unsupported", "is a file of the old Office formats", remedy="save it as DOCX, PDF or CSV")
    if data.startswith(_ZIPS):
        extension = _extension(name)
        found = office.by_parts(listed(data, limits)) or bundles.by_zip(extension)
        if found is None:
            raise _unsupported(name)
        return None if found is read_zip and extension in office.EXTENSIONS else found
    if is_picture(data):
        return read_picture
    return office.by_start(data) or bundles.by_content(_extension(name), data)


def _read_unknown(source: Source, limits: ParseLimits) -> list[ParseResult]:
    return read_text(source, limits)


def _unsupported(name: str) -> ParseFailure:
    extension = _extension(name)
    kind = f"files of type .{extension} are not read" if extension else "the type of this file is unknown"
    return ParseFailure("unsupported", kind, remedy=_REMEDIES.get(extension, _READABLE))


def _media_type(value: str | None) -> tuple[str | None, str | None]:
    """Split "text/html; charset=x" into type and charset."""
    if not value:
        return None, None
    kind, _, parameters = value.partition(";")
    for parameter in parameters.split(";"):
        key, _, given = parameter.partition("=")
        if key.strip().lower() == "charset":
            return kind.strip().lower(), given.strip().strip('"') or None
    return kind.strip().lower(), None


def _extension(name: str) -> str:
    last = name.replace("\\", "/").rpartition("/")[2]
    return last.rpartition(".")[2].lower() if "." in last.lstrip(".") else ""
