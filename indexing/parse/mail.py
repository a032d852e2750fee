"""EML: one mail, with its attachments and the mails in it as children."""

from __future__ import annotations

from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Final

from indexing.parse import letter, mime
from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.letter import Attached, Body, Letter
from indexing.parse.mime import Part, field, guarded
from indexing.parse.model import MALFORMED_PARTS, UNCERTAIN_ENCODING, ParseLimits, ParseResult, Source

MEDIA_TYPE: Final = "message/rfc822"

_SHOWN: Final = ("From", "To", "Cc", "Date")
_SIGNATURES: Final = frozenset(
    {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
)
_SEALED: Final = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_REPORTS: Final = frozenset({"message/delivery-status", "message/disposition-notification", "text/rfc822-headers"})
_UNTOLD: Final = frozenset({"application/octet-stream", "application/binary", "application/x-unknown"})
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def read_eml(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The mail, then what its attachments hold. Raises `ParseFailure` ("too_large") for too many or too deep parts."""
    data, in_utf8 = _as_bytes(source.data)
    header, start = mime.split_header(data)
    found = Letter(MEDIA_TYPE, subject=field(header, "Subject"))
    found.fields = [(name, field(header, name)) for name in _SHOWN]
    found.metadata = _metadata(header)
    gathering = _Gathering(found, "utf-8" if in_utf8 else None)
    for part in mime.parts(header, data, start, len(data)):
        gathering.take(part)
    gathering.finish()
    return letter.results(found, source, limits)


def message_id(data: bytes) -> str:
    """The Message-ID of a mail without its brackets; empty where it has none."""
    return field(mime.split_header(data)[0], "Message-ID").strip("<> ")


def _as_bytes(data: bytes) -> tuple[bytes, bool]:
    """A mail saved as UTF-16 becomes UTF-8, which then holds for its parts whatever they declare."""
    if data.startswith(_WIDE_MARKS) or b"\0" in data[1:64:2] or b"\0" in data[0:64:2]:
        decoded = decode(data)
        if decoded.encoding.startswith("utf-16"):
            return decoded.text.removeprefix("\ufeff").encode("utf-8", "replace"), True
    return data.removeprefix(b"\xef\xbb\xbf"), False


def _metadata(header: Message) -> dict[str, str | int | float | bool]:
    known = {name.lower(): field(header, name)[: letter.MAX_FIELD] for name in ("From", "To", "Date")}
    known["date"] = _date(known["date"])
    return {name: value for name, value in known.items() if value}


def _date(value: str) -> str:
    """ISO 8601 in UTC; as written where it is no date."""

    def read() -> str:
        moment: datetime = parsedate_to_datetime(value)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    return guarded(read, value)


class _Gathering:
    """Sorts the parts of a mail into bodies and attachments."""

    def __init__(self, found: Letter, charset: str | None) -> None:
        self._letter = found
        self._charset = charset
        self._contents: list[list[tuple[int, Body]]] = []
        self._choices: dict[tuple[int, ...], list[tuple[int, Body]]] = {}
        self._sealed = False

    def take(self, part: Part) -> None:
        kind = part.media_type
        if kind in _SIGNATURES or kind == "application/pgp-encrypted":
            self._sealed |= kind == "application/pgp-encrypted"
        elif kind in _REPORTS and not part.is_attached:
            self._contents.append([(0, Body(self._text(part), False))])
        elif kind in {"text/plain", "text/html"} and not part.is_attached and not self._is_file(part):
            self._body(part, Body(self._text(part), kind == "text/html"))
        elif not self._is_decoration(part):
            self._letter.attached.append(self._attached(part, kind))

    def finish(self) -> None:
        """Of each content's alternatives, show the page if there is one, as mail programs do, else the text."""
        for content in self._contents:
            ranked = sorted(content, key=lambda numbered: (not numbered[1].is_html, -numbered[0]))
            best, first = ranked[0]
            others = tuple(body for number, body in ranked if number != best)
            same = [body.text for number, body in content if number == best and body.is_html == first.is_html]
            self._letter.bodies.append(Body("\n".join(same), first.is_html, others))

    def _body(self, part: Part, body: Body) -> None:
        content = [] if part.choice is None else self._choices.setdefault(part.choice[:-1], [])
        if not content:
            self._contents.append(content)
        content.append((0 if part.choice is None else part.choice[-1], body))

    def _text(self, part: Part) -> str:
        content = part.content()
        if not content:
            return ""
        try:
            decoded = decode(content, self._charset or part.charset)
        except ParseFailure:
            self._letter.warnings.add(MALFORMED_PARTS)  # binary data that calls itself text
            return ""
        if not decoded.certain:
            self._letter.warnings.add(UNCERTAIN_ENCODING)
        flowed = guarded(lambda: str(part.header.get_param("format", "")).lower() == "flowed", False)
        return _unflowed(decoded.text) if flowed else decoded.text

    def _is_file(self, part: Part) -> bool:
        """A named text is a file, unless it is all that the mail says."""
        return part.filename is not None and bool(self._contents)

    def _is_decoration(self, part: Part) -> bool:
        """Pictures of the body, and other forms of what is shown (an invitation for calendars)."""
        if part.is_attached:
            return False
        if part.media_type.startswith("image/"):
            return part.is_referred_to or part.filename is None
        return part.choice is not None and part.filename is None

    def _attached(self, part: Part, kind: str) -> Attached:
        name = part.filename or _unnamed(part, kind)
        data: bytes | ParseFailure = part.content()
        if self._sealed or (kind in _SEALED and "signed" not in str(part.header["Content-Type"])):
            data = ParseFailure("encrypted", "is encrypted mail", remedy="save it decrypted and add that")
        elif kind == "message/external-body":
            data = ParseFailure("unsupported", "is kept elsewhere, and not fetched", remedy="fetch it and add the file")
        return Attached(name, data, None if kind in _UNTOLD else kind, part.charset)


def _unnamed(part: Part, kind: str) -> str:
    if kind == MEDIA_TYPE:
        subject = field(mime.split_header(part.content())[0], "Subject")
        return f"{subject[:80].replace('/', '-') or 'message'}.eml"
    return {"text/calendar": "invitation.ics", "text/html": "text.html", "text/plain": "text.txt"}.get(kind, "unnamed")


def _unflowed(text: str) -> str:
    """Lines that were broken for sending are one again (RFC 3676)."""
    lines: list[str] = []
    open_line = False
    for line in text.replace("\r\n", "\n").split("\n"):
        line = line.removeprefix(" ") if line.startswith(" ") else line
        if open_line:
            lines[-1] += line
        else:
            lines.append(line)
        open_line = line.endswith(" ") and line != "-- "
    return "\n".join(lines)
