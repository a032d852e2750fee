"""PDF through pypdf, page by page: text with its structure, notes and form fields, embedded files as children."""

from __future__ import annotations

import io
import logging
import time
from typing import Any, Final

from pypdf import PdfReader, apply_configuration, get_configuration
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

from indexing.parse import ocr, pdf_layout, pdf_parts
from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    HIDDEN_TEXT,
    PAGES_WITHOUT_TEXT,
    RECOGNISED_TEXT,
    Parsed,
    ParseLimits,
    ParseResult,
    Scalar,
    Source,
    finish,
)
from indexing.parse.pdf_page import Page, read_page
from indexing.parse.pdf_tables import Table
from indexing.parse.tags import stated

# pypdf reports oddities of a file with pieces of its content; those must not reach a log.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)

# One content stream is read as a whole before the clock is looked at. A dense page has some ten thousand
# operands; with pypdf's own bounds a file of 70 KB took 20 s.
_MAX_STREAM_BYTES: Final = 16 * 2**20
_BOUNDS: Final = get_configuration().with_overwrites(
    stream_parsing_work_maximum_count=500_000,
    array_based_stream_maximum_output_length=_MAX_STREAM_BYTES,
    lzw_maximum_output_length=_MAX_STREAM_BYTES,
    run_length_maximum_output_length=_MAX_STREAM_BYTES,
    zlib_maximum_output_length=_MAX_STREAM_BYTES,
)
_MAX_PAGES: Final = 20_000


def read_pdf(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: encrypted, corrupt, no_text (a scan), too_large (size or time).

    The document comes first, then the files embedded in it. A scan with embedded files is a failure among the results.
    """
    with apply_configuration(_BOUNDS):
        reader = _open(source.data)
        clock = _Clock(limits)
        pages = _pages(reader, clock)
        result = _document(reader, pages, source, limits)
        return [result, *pdf_parts.attachments(reader, source, clock)]


class _Clock:
    """Bounds on time and characters, looked at before every operator: one page of 10 KB may hold minutes of work."""

    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self.size = 0

    def __call__(self, *_: object) -> None:
        limits = self._limits
        if self.size > limits.max_characters or time.monotonic() > self._deadline:
            raise ParseFailure(
                "too_large",
                f"holds more than {limits.max_characters} characters or takes more than {limits.seconds:.0f} s",
                remedy="split the file",
            )


def _open(data: bytes) -> PdfReader:
    try:
        reader = PdfReader(io.BytesIO(data))  # tries the empty password by itself
        count = len(reader.pages)
    except (FileNotDecryptedError, DependencyError):
        raise ParseFailure(
            "encrypted", "needs a password", remedy="save a copy without the password and add that"
        ) from None
    except Exception as error:  # noqa: BLE001 (pypdf raises whatever a damaged file leads it into)
        raise _corrupt(error) from None
    if count > _MAX_PAGES:
        raise ParseFailure("too_large", f"has {count} pages; the limit is {_MAX_PAGES}", remedy="split the file")
    return reader


def _pages(reader: PdfReader, clock: _Clock) -> list[Page | None]:
    """Each page; None for one that cannot be read."""
    pages: list[Page | None] = []
    failure: Exception | None = None
    for number in range(len(reader.pages)):
        try:
            page: Page | None = read_page(reader.pages[number], clock)
        except ParseFailure:
            raise
        except Exception as error:  # noqa: BLE001 (one bad page does not cost the others)
            page, failure = None, error
        pages.append(page)
        clock.size += sum(len(piece.text) for piece in page.pieces) if page else 0
        clock()
    if failure is not None and all(page is None for page in pages):
        raise _corrupt(failure)
    return pages


def _document(reader: PdfReader, pages: list[Page | None], source: Source, limits: ParseLimits) -> ParseResult:
    flows = [pdf_layout.flow(page) if page else [] for page in pages]
    building = Building(limits.max_characters)
    writer = pdf_layout.Writer(building, pdf_layout.style(flows), _outline(reader))
    margins = pdf_layout.margins(flows)
    scan = ocr.Scan(source.data, limits)
    blank = 0
    recognised = any(page.recognised for page in pages if page)
    for number, items in enumerate(flows):
        building.place(f"page {number + 1}")
        writer.write(number, items, margins.get(number, {}))
        if not any(isinstance(item, Table) or item.text for item in items):
            found = scan.page(number)
            for paragraph in found:
                building.add(paragraph)
            recognised |= any(found)
            blank += not any(found)
        for note in pdf_parts.notes(reader, number):
            building.add(note.text, note.kind, hidden=note.hidden)
    if building.is_empty:
        return ParseFailure(
            "no_text",
            f"none of its {len(pages)} pages holds text: a scan, or images only"
            + (f"; {reason}" if (reason := ocr.missing()) else ""),
            remedy="install the extra ocr, or run it through text recognition and add the result",
        )
    warnings = set()
    if blank:
        warnings.add(PAGES_WITHOUT_TEXT)
    if building.hidden:
        warnings.add(HIDDEN_TEXT)
    if recognised:
        warnings.add(RECOGNISED_TEXT)
    if source.nest is None and pdf_parts.has_attachments(reader):
        warnings.add(ATTACHMENTS_NOT_READ)
    metadata: dict[str, Scalar] = {"pages": len(pages), **_language(reader)}
    return finish(
        Parsed(
            building.text(),
            _title(reader),
            "application/pdf",
            tuple(warnings),
            metadata,
            blocks=building.blocks(),
            places=building.places(),
        )
    )


def _outline(reader: PdfReader) -> dict[int, dict[str, int]]:
    """The bookmarks: page from 0 on -> title, folded -> level of a heading."""
    titles: dict[int, dict[str, int]] = {}

    def walk(entries: list[Any], level: int) -> None:
        for entry in entries:
            if isinstance(entry, list):
                walk(entry, level + 1)
            else:
                page = reader.get_destination_page_number(entry)
                if page is not None and isinstance(entry.title, str):
                    titles.setdefault(page, {})[" ".join(entry.title.split()).casefold()] = min(level, 6)

    try:
        walk(reader.outline, 1)
    except Exception:  # noqa: BLE001 (damaged bookmarks are no reason to lose the text)
        return titles
    return titles


def _corrupt(error: Exception) -> ParseFailure:
    if isinstance(error, LimitReachedError):
        return ParseFailure(
            "too_large", "unpacks to more than a page may hold", remedy="save it again with a PDF printer"
        )
    return ParseFailure("corrupt", "is damaged and cannot be read", remedy="save it again with a PDF printer")


def _language(reader: PdfReader) -> dict[str, str]:
    try:
        return stated(reader.root_object.get("/Lang"))
    except Exception:  # noqa: BLE001 (as above)
        return {}


def _title(reader: PdfReader) -> str | None:
    try:
        title = reader.metadata.title if reader.metadata else None
    except Exception:  # noqa: BLE001 (as above)
        return None
    # Programs write these where the author gave no title.
    return None if not title or title.strip().lower() in {"untitled", "(anonymous)", "anonymous"} else title
