"""MSG, the mail format of Outlook ([MS-OXMSG]): a compound file whose streams are named by property tags."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Final

from olefile import STGTY_STREAM, OleFileIO

from indexing.parse import html, letter, mime, rtf_packed
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.letter import Attached, Body, Letter
from indexing.parse.model import MALFORMED_PARTS, UNCERTAIN_ENCODING, ParseLimits, ParseResult, Source
from indexing.parse.rtf import read_rtf

MEDIA_TYPE: Final = "application/vnd.ms-outlook"
MARK: Final = "__substg1.0_".encode("utf-16-le")
"""In the directory of every MSG file."""

MAX_DEPTH: Final = 8
_MAX_ATTACHED: Final = 2_000

# Property tags ([MS-OXPROPS]).
_SUBJECT, _SENT = 0x0037, 0x0039
_FROM_NAME, _FROM_ADDRESS, _FROM_SMTP = 0x0C1A, 0x0C1F, 0x5D01
_TO, _CC = 0x0E04, 0x0E03
_BODY, _RTF, _HTML = 0x1000, 0x1009, 0x1013
_HEADERS, _PAGE, _STRING_PAGE = 0x007D, 0x3FDE, 0x3FFD
_DATA, _SHORT_NAME, _LONG_NAME, _MIME, _CONTENT_ID, _IS_HIDDEN = 0x3701, 0x3704, 0x3707, 0x370E, 0x3712, 0x7FFE
_WIDE, _NARROW, _BINARY, _STORAGE = 0x001F, 0x001E, 0x0102, 0x000D

_CP1252: Final = struct.pack("<I", 1252)
_LAST_TICK: Final = 2_650_467_744_000_000_000  # the year 9999
_UNTOLD: Final = "application/octet-stream"
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_CODE_PAGES: Final = {65001: "utf-8", 28591: "iso-8859-1", 20127: "us-ascii", 936: "gb18030", 50220: "iso2022_jp"}
_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)

Path = tuple[str, ...]


def read_msg(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The message, then what its attachments hold. Raises `ParseFailure`: corrupt, too_large."""
    try:
        with OleFileIO(io.BytesIO(source.data)) as ole:
            found = _Message(ole, len(source.data), (), limits).letter()
    except ParseFailure:
        raise
    except Exception:  # noqa: BLE001 (olefile raises whatever a damaged file leads it into)
        raise ParseFailure("corrupt", "is not a readable Outlook message", remedy="save it again, or as EML") from None
    return letter.results(found, source, limits)


class _Message:
    """A message in a compound file: the whole file, or the storage at `path` for a message within a message."""

    def __init__(self, ole: OleFileIO, size: int, path: Path, limits: ParseLimits) -> None:
        self._ole = ole
        self._size = size
        self._path = path
        self._limits = limits
        self._numbers = self._fixed(path, 24 if path else 32)
        page = struct.unpack("<I", self._numbers.get(_STRING_PAGE, self._numbers.get(_PAGE, _CP1252))[:4])[0]
        self._charset = _CODE_PAGES.get(page, f"cp{page}")

    def letter(self) -> Letter:
        found = Letter(MEDIA_TYPE, subject=" ".join(self._text(_SUBJECT).split()))
        name, address = self._text(_FROM_NAME), self._text(_FROM_SMTP) or self._text(_FROM_ADDRESS)
        sender = f"{name} <{address}>".strip() if "@" in address and address != name else name
        sent = self._moment(_SENT)
        if not sender or not sent:
            header = mime.split_header(self._text(_HEADERS).encode("utf-8", "replace"))[0]
            sender, sent = sender or mime.field(header, "From"), sent or mime.field(header, "Date")
        found.fields = [("From", sender), ("To", self._text(_TO)), ("Cc", self._text(_CC)), ("Date", sent)]
        found.metadata = {
            name.lower(): value[: letter.MAX_FIELD] for name, value in found.fields if value and name != "Cc"
        }
        body = self._body(found)
        found.bodies = [] if body is None else [body]
        for storage in self._storages():
            attached = self._attached(storage)
            if attached is not None:
                found.attached.append(attached)
        return found

    def _body(self, found: Letter) -> Body | None:
        plain = self._text(_BODY)
        others: tuple[Body, ...] = (Body(plain, False),) if plain.strip() else ()
        page = self._text(_HTML)
        raw = self._stream((*self._path, _name(_HTML, _BINARY)))
        if not page and raw:
            number = struct.unpack("<I", self._numbers.get(_PAGE, b"\0\0\0\0")[:4])[0]
            decoded = decode(raw, _CODE_PAGES.get(number, f"cp{number}") if number else html.declared_charset(raw))
            page = decoded.text
            found.warnings |= set() if decoded.certain else {UNCERTAIN_ENCODING}
        if not page.strip() and not others:
            others = self._rich_text(found)
        return Body(page, True, others) if page.strip() else (others[0] if others else None)

    def _rich_text(self, found: Letter) -> tuple[Body, ...]:
        packed = self._stream((*self._path, _name(_RTF, _BINARY)))
        if not packed:
            return ()
        try:
            (parsed,) = read_rtf(Source("body.rtf", rtf_packed.unpack(packed)), self._limits)
        except ParseFailure:
            found.warnings.add(MALFORMED_PARTS)
            return ()
        if isinstance(parsed, ParseFailure):
            return ()
        found.warnings |= set(parsed.warnings)
        return (Body(parsed.text, False),)

    def _storages(self) -> list[Path]:
        depth = len(self._path)
        names = {
            path[depth]
            for path in self._ole.listdir(streams=True, storages=True)
            if len(path) > depth
            and tuple(path[:depth]) == self._path
            and path[depth].startswith("__attach_version1.0_")
        }
        if len(names) > _MAX_ATTACHED:
            raise ParseFailure("too_large", f"has more than {_MAX_ATTACHED} attachments", remedy="save them as files")
        return [(*self._path, name) for name in sorted(names)]

    def _attached(self, storage: Path) -> Attached | None:
        """None for the pictures of the body."""
        name = self._text(_LONG_NAME, storage) or self._text(_SHORT_NAME, storage) or "unnamed"
        inner = (*storage, _name(_DATA, _STORAGE))
        if self._ole.exists(list(inner)):
            if len(inner) > 2 * MAX_DEPTH:
                failure = ParseFailure("too_large", "is nested too deep", remedy="save the inner message by itself")
                return Attached(f"{name}.eml", failure)
            try:
                found = _Message(self._ole, self._size, inner, self._limits).letter()
            except ParseFailure as failure:
                return Attached(f"{name}.eml", failure)
            return Attached(
                f"{found.subject[:80].replace('/', '-') or 'message'}.eml", as_mail(found), "message/rfc822"
            )
        kind = self._text(_MIME, storage) or None
        fixed = self._fixed(storage, 8)
        if fixed.get(_IS_HIDDEN, b"\0")[:1] == b"\1" or (
            self._text(_CONTENT_ID, storage) and (kind or "").startswith("image/")
        ):
            return None
        return Attached(name, self._stream((*storage, _name(_DATA, _BINARY))), kind)

    def _text(self, tag: int, path: Path | None = None) -> str:
        where = self._path if path is None else path
        wide = self._stream((*where, _name(tag, _WIDE)))
        if wide:
            return wide.decode("utf-16-le", "replace").rstrip("\0")
        narrow = self._stream((*where, _name(tag, _NARROW)))
        return decode(narrow, self._charset).text.rstrip("\0") if narrow else ""

    def _stream(self, path: Path) -> bytes:
        """Empty where there is none. A chain of sectors may run in a circle: no stream is larger than its file."""
        if not self._ole.exists(list(path)) or self._ole.get_type(list(path)) != STGTY_STREAM:
            return b""
        if self._ole.get_size(list(path)) > self._size:
            raise ParseFailure("corrupt", "holds a part that is larger than itself", remedy="save it again")
        return bytes(self._ole.openstream(list(path)).read())

    def _fixed(self, path: Path, start: int) -> dict[int, bytes]:
        """The values of eight bytes by property tag."""
        data = self._stream((*path, "__properties_version1.0"))[start:]
        entries = (data[at : at + 16] for at in range(0, len(data) - 15, 16))
        return {struct.unpack("<H", entry[2:4])[0]: entry[8:] for entry in entries}

    def _moment(self, tag: int) -> str:
        ticks = struct.unpack("<Q", self._numbers.get(tag, bytes(8)))[0]
        if not 0 < ticks < _LAST_TICK:
            return ""
        return (_EPOCH + timedelta(microseconds=ticks // 10)).strftime("%Y-%m-%dT%H:%M:%SZ")


def as_mail(found: Letter) -> bytes:
    """A message within a message as a mail (RFC 2045): the same bytes for the same message."""
    head = "".join(f"{name}: {_encoded_word(value)}\r\n" for name, value in [("Subject", found.subject), *found.fields])
    parts = [
        _part(f"text/{'html' if body.is_html else 'plain'}; charset=utf-8", body.text.encode("utf-8", "replace"))
        for body in found.bodies
    ]
    for attached in found.attached:
        kind = attached.media_type if attached.media_type and _TYPE.fullmatch(attached.media_type) else _UNTOLD
        # One that cannot be read is named, and empty.
        data = attached.data if isinstance(attached.data, bytes) else b""
        parts.append(_part(kind, data, f'attachment; filename="{_encoded_word(attached.name)}"'))
    boundary = hashlib.sha256(b"\0".join(parts)).hexdigest()
    head += f"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary={boundary}\r\n\r\n"
    divider = f"--{boundary}\r\n".encode()
    return head.encode() + b"".join(divider + part for part in parts) + f"--{boundary}--\r\n".encode()


def _part(kind: str, data: bytes, disposition: str | None = None) -> bytes:
    head = f"Content-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n"
    head += f"Content-Disposition: {disposition}\r\n" if disposition else ""
    return head.encode() + b"\r\n" + base64.encodebytes(data) + b"\r\n"


def _encoded_word(text: str) -> str:
    return f"=?utf-8?B?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?=" if text else ""


def _name(tag: int, kind: int) -> str:
    return f"__substg1.0_{tag:04X}{kind:04X}"
