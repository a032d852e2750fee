"""Files in, text out: `parse` and the types it gives."""

from indexing.parse.failure import ParseFailure, Status
from indexing.parse.model import Parsed, ParseLimits, ParseResult
from indexing.parse.registry import parse

__all__ = ["ParseFailure", "ParseLimits", "ParseResult", "Parsed", "Status", "parse"]
