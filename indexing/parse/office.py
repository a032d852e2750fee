"""Which parser reads a file of an office program: a zip archive that is told by its parts, or RTF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from indexing.parse.docx import MEDIA_TYPE as DOCX_TYPE
from indexing.parse.docx import read_docx
from indexing.parse.epub import MEDIA_TYPE as EPUB_TYPE
from indexing.parse.epub import read_epub
from indexing.parse.failure import ParseFailure
from indexing.parse.model import ParseLimits, ParseResult, Source
from indexing.parse.odf import SHEET_TYPE, SLIDES_TYPE, TEXT_TYPE, read_odf
from indexing.parse.pptx import MEDIA_TYPE as PPTX_TYPE
from indexing.parse.pptx import read_pptx
from indexing.parse.rtf import MEDIA_TYPE as RTF_TYPE
from indexing.parse.rtf import START as RTF_START
from indexing.parse.rtf import read_rtf
from indexing.parse.xlsx import MEDIA_TYPE as XLSX_TYPE
from indexing.parse.xlsx import read_xlsx

Reader = Callable[[Source, ParseLimits], list[ParseResult]]

EXTENSIONS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("docx", "docm", "dotx", "dotm"), read_docx),
    **dict.fromkeys(("xlsx", "xlsm", "xltx", "xltm"), read_xlsx),
    **dict.fromkeys(("pptx", "pptm", "ppsx", "ppsm", "potx"), read_pptx),
    **dict.fromkeys(("odt", "ott", "ods", "ots", "odp", "otp"), read_odf),
    "rtf": read_rtf,
    "epub": read_epub,
}
MEDIA_TYPES: Final[dict[str, Reader]] = {
    DOCX_TYPE: read_docx,
    XLSX_TYPE: read_xlsx,
    PPTX_TYPE: read_pptx,
    **dict.fromkeys((TEXT_TYPE, SHEET_TYPE, SLIDES_TYPE), read_odf),
    EPUB_TYPE: read_epub,
    **dict.fromkeys((RTF_TYPE, "text/rtf"), read_rtf),
}
NAMES: Final[dict[Reader, str]] = {
    read_docx: "a Word file",
    read_xlsx: "an Excel file",
    read_pptx: "a PowerPoint file",
    read_odf: "an OpenDocument file",
    read_epub: "an EPUB book",
}
"""What a file is not whose name promises one of these and whose content is no such archive."""

_PARTS: Final[dict[str, Reader]] = {"word/": read_docx, "xl/": read_xlsx, "ppt/": read_pptx}


def by_parts(names: frozenset[str]) -> Reader | None:
    """The reader of an archive with parts of these names; None for one that no office program wrote.

    Raises `ParseFailure` ("unsupported") for a binary workbook.
    """
    if "xl/workbook.bin" in names:
        raise ParseFailure("unsupported", "is a binary workbook (XLSB)", remedy="save it as XLSX")
    if "[Content_Types].xml" in names:
        for folder, reader in _PARTS.items():
            if any(name.startswith(folder) for name in names):
                return reader
    if {"content.xml", "META-INF/manifest.xml"} <= names:
        return read_odf
    return read_epub if "META-INF/container.xml" in names else None


def by_start(data: bytes) -> Reader | None:
    """The reader that a file's first bytes demand, if it is no archive."""
    return read_rtf if data[:64].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(RTF_START) else None
