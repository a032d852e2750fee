"""A mail taken apart into its parts (RFC 2045, 2046, 2047, 2231), tolerant of what real mails hold.

The standard library decodes headers and encoded words. Its parser of whole messages is not used: parts in parts cost it
recursion and time that nothing bounds. Here a part is a range of the mail's bytes, so that nesting copies nothing.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesHeaderParser
from email.policy import compat32
from typing import Final, TypeVar

from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure

MAX_DEPTH: Final = 30
MAX_PARTS: Final = 2_000
MAX_HEADER: Final = 256 * 1024
"""Bytes of the header of a mail or a part that are looked at."""
MAX_VALUE: Final = 16 * 1024
"""Characters of one header field that are looked at."""

MAX_PARAMETERS: Final = 2_000
"""Characters of a field with parameters."""
_WITH_PARAMETERS: Final = frozenset({"content-type", "content-disposition"})
_MAX_FILENAME: Final = 500

_BLANK_LINE = re.compile(rb"\r?\n\r?\n|\r\r")
_FIELD = re.compile(rb"[!-9;-~]{1,200}[ \t]*:")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Part:
    """A part without parts: `raw` is its body as it stands in the mail. `shown_as` is the type of the multipart around
    it, and `choice` numbers the alternatives of one content: None where there is only this one."""

    header: Message
    raw: bytes
    path: tuple[int, ...] = ()
    choice: tuple[int, ...] | None = None

    @property
    def media_type(self) -> str:
        return guarded(self.header.get_content_type, "text/plain")

    @property
    def charset(self) -> str | None:
        return guarded(self.header.get_content_charset, None)

    @property
    def is_attached(self) -> bool:
        return guarded(self.header.get_content_disposition, None) == "attachment"

    @property
    def is_referred_to(self) -> bool:
        """Whether it is part of how a body looks, such as the picture of a signature."""
        return self.header.get("Content-ID") is not None

    @property
    def filename(self) -> str | None:
        name = guarded(self.header.get_filename, None)
        return words(name[:_MAX_FILENAME]) or None if name else None

    def content(self) -> bytes:
        """The body with its transfer encoding undone."""
        encoding = guarded(lambda: str(self.header.get("Content-Transfer-Encoding", "")), "").strip().lower()
        if encoding == "base64":
            return _base64(self.raw)
        if encoding == "quoted-printable":
            return binascii.a2b_qp(self.raw)
        if encoding in {"x-uuencode", "uuencode", "uue", "x-uue"}:
            return _uuencoded(self.raw)
        return self.raw


def guarded(read: Callable[[], _T], otherwise: _T) -> _T:
    """What the standard library makes of a header; `otherwise` where the header leads it into an error."""
    try:
        return read()
    except Exception:  # noqa: BLE001 (a hostile header raises LookupError, TypeError, IndexError and more)
        return otherwise


def split_header(data: bytes, start: int = 0, end: int | None = None) -> tuple[Message, int]:
    """The header that begins at `start`, and where its body begins."""
    end = len(data) if end is None else end
    first = _FIELD.match(data, start, min(end, start + 300))
    if first is None:
        blank = re.compile(rb"\r?\n").match(data, start, end)
        return Message(), blank.end() if blank else start  # an empty header: text from the first line on
    found = _BLANK_LINE.search(data, start, end)
    stop, body = (found.start(), found.end()) if found else (end, end)
    header = BytesHeaderParser(policy=compat32).parsebytes(data[start : min(stop, start + MAX_HEADER)])
    for name, value in list(header.raw_items()):
        # The library's search for the end of a parameter looks at all of the value again and again.
        if len(str(value)) > MAX_PARAMETERS and name.lower() in _WITH_PARAMETERS:
            header.replace_header(name, str(value)[:MAX_PARAMETERS])
    return header, body


def parts(header: Message, data: bytes, start: int, end: int) -> Iterator[Part]:
    """The parts of a mail that hold content, in order.

    Raises `ParseFailure` ("too_large") where there are too many, or too deep ones.
    """
    budget = [MAX_PARTS]
    yield from _parts(header, data, start, end, (), None, budget)


def _parts(
    header: Message,
    data: bytes,
    start: int,
    end: int,
    path: tuple[int, ...],
    choice: tuple[int, ...] | None,
    budget: list[int],
) -> Iterator[Part]:
    budget[0] -= 1
    if budget[0] < 0 or len(path) > MAX_DEPTH:
        raise ParseFailure(
            "too_large",
            f"has more than {MAX_PARTS} parts, or parts more than {MAX_DEPTH} deep",
            remedy="save its text and attachments as files",
        )
    kind = guarded(header.get_content_type, "text/plain")
    boundary = guarded(header.get_boundary, None)
    ranges = _ranges(data, start, end, boundary) if kind.startswith("multipart/") and boundary else None
    if not ranges:
        yield Part(header, data[start:end], path, choice)
        return
    for number, (first, last) in enumerate(ranges):
        inner, body = split_header(data, first, last)
        if kind == "multipart/digest" and inner.get("Content-Type") is None:
            inner["Content-Type"] = "message/rfc822"
        chosen = (*path, number) if kind == "multipart/alternative" else choice
        yield from _parts(inner, data, body, last, (*path, number), chosen, budget)


def _ranges(data: bytes, start: int, end: int, boundary: str) -> list[tuple[int, int]]:
    mark = re.escape(boundary.encode("utf-8", "surrogateescape").rstrip())
    line = re.compile(rb"^--" + mark + rb"(--)?[ \t]*\r?$", re.MULTILINE)
    ranges: list[tuple[int, int]] = []
    begun: int | None = None
    for found in line.finditer(data, start, end):
        if begun is not None:
            last = found.start()
            last -= (data[max(last - 2, begun) : last] == b"\r\n" and 2) or data[max(last - 1, begun) : last] == b"\n"
            ranges.append((begun, max(last, begun)))
        begun = min(found.end() + 1, end)
        if found.group(1):
            return ranges
        if len(ranges) > MAX_PARTS:
            break
    if begun is not None and begun < end:
        ranges.append((begun, end))  # the mail was cut off
    return ranges


def words(value: object) -> str:
    """A header field as text: encoded words decoded, also raw 8-bit text, on one line."""
    text = str(value)[:MAX_VALUE]
    raw = text.encode("utf-8", "surrogateescape")
    if not raw.isascii():
        text = guarded(lambda: decode(raw).text, raw.decode("utf-8", "replace"))
    if "=?" in text:
        try:
            pieces = decode_header(text)
        except (HeaderParseError, ValueError, binascii.Error):
            pieces = [(text, None)]
        text = "".join(_word(piece, charset) for piece, charset in pieces)
    return " ".join(text.split())


def field(header: Message, name: str) -> str:
    """The first field of this name, decoded; empty where there is none. Raw 8-bit text stays as it came."""
    for found, value in header.raw_items():
        if found.lower() == name.lower():
            return words(value)
    return ""


def _word(piece: str | bytes, charset: str | None) -> str:
    if isinstance(piece, str):
        return piece
    if charset is None:
        return guarded(lambda: piece.decode("raw-unicode-escape"), piece.decode("latin-1"))
    return guarded(lambda: decode(piece, charset).text, piece.decode("utf-8", "replace"))


def _base64(raw: bytes) -> bytes:
    try:
        return binascii.a2b_base64(raw)
    except binascii.Error:
        kept = re.sub(rb"[^A-Za-z0-9+/]", b"", raw)
        kept = kept[: len(kept) - (len(kept) % 4 == 1)]
        return binascii.a2b_base64(kept + b"=" * (-len(kept) % 4))


def _uuencoded(raw: bytes) -> bytes:
    lines = []
    for line in raw.splitlines():
        if line.startswith((b"begin ", b"end")) or not line.strip():
            continue
        try:
            lines.append(binascii.a2b_uu(line))
        except binascii.Error:
            continue
    return b"".join(lines)
