"""PDF through pypdf, page by page."""

from __future__ import annotations

import io
import logging
import time
from typing import Final

from pypdf import PdfReader, apply_configuration, get_configuration
from pypdf.errors import DependencyError, FileNotDecryptedError, LimitReachedError

from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    PAGES_WITHOUT_TEXT,
    Parsed,
    ParseLimits,
    ParseResult,
    Scalar,
    Source,
    finish,
)

# pypdf reports oddities of a file with pieces of its content; those must not reach a log.
logging.getLogger("pypdf").setLevel(logging.CRITICAL)

_PAGE_BREAK: Final = "\n\n"
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


def read_pdf(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: encrypted, corrupt, no_text (a scan), too_large (size or time)."""
    with apply_configuration(_BOUNDS):
        reader = _open(source.data)
        pages = _pages(reader, limits)
    # Layout leaves blanks behind lines; without them an empty line shows where a paragraph ends.
    texts = [
        "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")
        for text in pages
        if text and not text.isspace()
    ]
    if not texts:
        raise ParseFailure(
            "no_text",
            f"none of its {len(pages)} pages holds text: a scan, or images only",
            remedy="run it through text recognition (OCR) and add the result",
        )
    warnings = set()
    if len(texts) < len(pages):
        warnings.add(PAGES_WITHOUT_TEXT)
    if _has_attachments(reader):
        warnings.add(ATTACHMENTS_NOT_READ)
    metadata: dict[str, Scalar] = {"pages": len(pages)}
    return [finish(Parsed(_PAGE_BREAK.join(texts), _title(reader), "application/pdf", tuple(warnings), metadata))]


def _open(data: bytes) -> PdfReader:
    try:
        reader = PdfReader(io.BytesIO(data))  # tries the empty password by itself
        len(reader.pages)
        return reader
    except (FileNotDecryptedError, DependencyError):
        raise ParseFailure(
            "encrypted", "needs a password", remedy="save a copy without the password and add that"
        ) from None
    except Exception as error:  # noqa: BLE001 (pypdf raises whatever a damaged file leads it into)
        raise _corrupt(error) from None


def _pages(reader: PdfReader, limits: ParseLimits) -> list[str | None]:
    """The text of each page; None for a page that cannot be read."""
    deadline = time.monotonic() + limits.seconds
    texts: list[str | None] = []
    size = 0
    failure: Exception | None = None

    def keep_within(*_: object) -> None:
        if size > limits.max_characters or time.monotonic() > deadline:
            raise ParseFailure(
                "too_large",
                f"holds more than {limits.max_characters} characters or takes more than {limits.seconds:.0f} s",
                remedy="split the file",
            )

    for number in range(len(reader.pages)):
        try:
            # Called before every operator: one page of 10 KB may hold minutes of work.
            text: str | None = reader.pages[number].extract_text(visitor_operand_before=keep_within)
        except ParseFailure:
            raise
        except Exception as error:  # noqa: BLE001 (one bad page does not cost the others)
            text, failure = None, error
        texts.append(text)
        size += len(text or "")
        keep_within()
    if failure is not None and all(text is None for text in texts):
        raise _corrupt(failure)
    return texts


def _corrupt(error: Exception) -> ParseFailure:
    if isinstance(error, LimitReachedError):
        return ParseFailure(
            "too_large", "unpacks to more than a page may hold", remedy="save it again with a PDF printer"
        )
    return ParseFailure("corrupt", "is damaged and cannot be read", remedy="save it again with a PDF printer")


def _title(reader: PdfReader) -> str | None:
    try:
        title = reader.metadata.title if reader.metadata else None
    except Exception:  # noqa: BLE001 (a damaged title is no reason to lose the text)
        return None
    # Programs write these where the author gave no title.
    return None if not title or title.strip().lower() in {"untitled", "(anonymous)", "anonymous"} else title


def _has_attachments(reader: PdfReader) -> bool:
    """Embedded files of the document, or file notes on its pages."""
    try:
        names = reader.root_object.get("/Names")
        return (names is not None and "/EmbeddedFiles" in names.get_object()) or any(
            note.get_object().get("/Subtype") == "/FileAttachment"
            for page in reader.pages
            for note in page.get("/Annots", ())
        )
    except Exception:  # noqa: BLE001 (as above)
        return False
