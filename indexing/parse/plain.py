"""Plain text."""

from __future__ import annotations

from indexing.parse.decode import decode
from indexing.parse.model import UNCERTAIN_ENCODING, Parsed, ParseLimits, ParseResult, Source, finish


def read_text(source: Source, limits: ParseLimits) -> list[ParseResult]:
    del limits  # the size of a text is the size of its file
    decoded = decode(source.data, source.charset)
    warnings = () if decoded.certain else (UNCERTAIN_ENCODING,)
    return [finish(Parsed(decoded.text, None, "text/plain", warnings))]
