"""MBOX: each message a child, named by its Message-ID, so that removing one renames no other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from indexing.parse.failure import ParseFailure
from indexing.parse.mail import MEDIA_TYPE, message_id
from indexing.parse.model import ParseLimits, ParseResult, Source

_START = re.compile(rb"^From [^\r\n]{0,998}\r?\n(?=[!-9;-~]{1,200}[ \t]*:|\r?\n)", re.MULTILINE)
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_MAX_NAME: Final = 120


def read_mbox(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure` ("corrupt") for a file without messages, "too_large" beyond `limits.max_children`."""
    del limits  # those of the tree hold
    nest = source.nest
    if nest is None:
        raise ParseFailure("unsupported", "a mailbox cannot be read here", remedy="add the mailbox itself")
    results: list[ParseResult] = []
    found = False
    for data in _messages(source.data):
        found = True
        results += nest.read(f"#message/{_name(data)}", "message.eml", data, MEDIA_TYPE)
    if not found:
        raise ParseFailure("corrupt", "holds no messages", remedy="export the mailbox again")
    return results


def _messages(data: bytes) -> Iterator[bytes]:
    """A message begins at a line "From ..." that a header follows; quoting of such lines in texts is undone."""
    start = end = None
    for line in _START.finditer(data):
        if start is not None and not _is_blank_before(data, line.start()):
            continue
        end = line.start()
        if start is not None:
            yield _QUOTED.sub(rb"\1", data[start:end])
        start = line.end()
    if start is not None:
        yield _QUOTED.sub(rb"\1", data[start:])


def _is_blank_before(data: bytes, at: int) -> bool:
    return data[max(at - 2, 0) : at] == b"\n\n" or data[max(at - 4, 0) : at] == b"\r\n\r\n"


def _name(data: bytes) -> str:
    name = message_id(data).replace("/", "_")
    if name and len(name) <= _MAX_NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "replace") or data).hexdigest()[:24]
