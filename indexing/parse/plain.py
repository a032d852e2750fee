"""Plain text, and text that is wrapped in base64 from its first to its last character."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from indexing.parse.decode import decode
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    HIDDEN_TEXT,
    UNCERTAIN_ENCODING,
    Block,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    clean,
    finish,
)

_MIN_WRAPPED: Final = 40
_WRAPPED = re.compile(rb"\s*(?:[A-Za-z0-9+/]{1,1000}\s{1,4})*[A-Za-z0-9+/]{1,1000}={0,2}\s*")
_MIXED = re.compile(rb"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9+/]*[0-9+/])")


def read_text(source: Source, limits: ParseLimits) -> list[ParseResult]:
    del limits  # the size of a text is the size of its file
    wrapped = _unwrapped(source.data)
    if wrapped is not None:
        # Nobody who opens the file can read it: what it says may be meant for a program.
        block = Block(0, len(wrapped), Kind.PARAGRAPH, hidden=True)
        flags = (HIDDEN_TEXT, UNCERTAIN_ENCODING)
        return [finish(Parsed(wrapped, None, "text/plain", flags, blocks=(block,)))]
    decoded = decode(source.data, source.charset)
    warnings = () if decoded.certain else (UNCERTAIN_ENCODING,)
    return [finish(Parsed(decoded.text, None, "text/plain", warnings))]


def _unwrapped(data: bytes) -> str | None:
    """The text in a file that is base64 as a whole; None for any other, and where no text comes out."""
    packed = b"".join(data.split()) if len(data) >= _MIN_WRAPPED and _WRAPPED.fullmatch(data) else b""
    if len(packed) < _MIN_WRAPPED or len(packed) % 4 or _MIXED.match(packed) is None:
        return None
    try:
        text = clean(decode(base64.b64decode(packed, validate=True)).text).strip()
    except (binascii.Error, ParseFailure):
        return None
    return text or None
