"""Which reader takes a file that holds other files: mails, mailboxes, archives."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from indexing.parse.mail import MEDIA_TYPE as EML_TYPE
from indexing.parse.mail import read_eml
from indexing.parse.mbox import read_mbox
from indexing.parse.members import is_tar, read_compressed, read_tar, read_zip
from indexing.parse.model import ParseLimits, ParseResult, Source
from indexing.parse.msg import MARK, read_msg
from indexing.parse.unpacking import MARKS

Reader = Callable[[Source, ParseLimits], list[ParseResult]]

EXTENSIONS: Final[dict[str, Reader]] = {"eml": read_eml, "mbox": read_mbox, "mbx": read_mbox, "tar": read_tar}
MEDIA_TYPES: Final[dict[str, Reader]] = {
    EML_TYPE: read_eml,
    "message/global": read_eml,
    "application/mbox": read_mbox,
    "application/x-tar": read_tar,
}
NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(("zip",), "a ZIP archive"),
    **dict.fromkeys(("gz", "tgz", "gzip"), "a gzip file"),
    **dict.fromkeys(("bz2", "tbz", "tbz2"), "a bzip2 file"),
    **dict.fromkeys(("xz", "txz"), "an xz file"),
    "msg": "an Outlook message",
}
"""Extensions whose files are known by how they begin: one that begins otherwise is damaged."""

_ZIPPED: Final = frozenset(
    {"apk", "ear", "ipa", "jar", "key", "kmz", "nupkg", "numbers", "pages", "sketch", "vsdx", "war", "whl", "xpi"}
)
"""Programs and documents that are ZIP archives inside, and whose parts mean nothing to a reader."""
_MAILBOX = re.compile(rb"From \S[^\r\n]{0,998}\r?\n[!-9;-~]{1,200}[ \t]*:")

_MAIL = re.compile(
    rb"(?:Return-Path|Received|Delivered-To|From|To|Subject|Date|Message-ID|MIME-Version|X-[\w-]+):", re.I
)
_MAIL_ID = re.compile(rb"^(?:From:[^\n]*@|Message-ID:\s*<)", re.IGNORECASE | re.MULTILINE)


def is_mail(data: bytes) -> bool:
    """Whether a file of no known kind is a mail, as in a Maildir, whose names say nothing."""
    return _MAIL.match(data) is not None and _MAIL_ID.search(data[:16_384].partition(b"\n\n")[0]) is not None


def by_content(extension: str, data: bytes) -> Reader | None:
    """The reader that a file's first bytes demand. A ZIP that is a document of its own is not looked for here."""
    if data.startswith(MARKS):
        return read_compressed
    if is_tar(data):
        return read_tar
    if extension in {"", "mbox", "mbx", "txt"} and _MAILBOX.match(data):
        return read_mbox
    return None


def by_zip(extension: str) -> Reader | None:
    return None if extension in _ZIPPED else read_zip


def by_compound_file(data: bytes) -> Reader | None:
    return read_msg if MARK in data else None
