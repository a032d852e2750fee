"""Files opened as they were found, and told whether they stayed as they were while they were read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from indexing.parse import ParseFailure
from indexing.walk import Found
from tenancy.errors import InvalidInput

_BUFFER = 64 * 2**10
"""Bytes. What is not longer is read once, and is not read again for parsing."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An open file, or its content where that is short, and what it was when it was opened."""

    entry: Found
    file: BinaryIO
    content: bytes | BinaryIO
    before: os.stat_result

    def stayed(self) -> bool:
        """Whether the file lies where it lay, and nobody wrote to it or changed its owner or mode since it was opened,
        as far as its size and times of change tell."""
        try:
            with _folder_of(self.entry) as folder:
                there = os.stat(self.entry.target.name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return _known_by(self.before) == _known_by(os.fstat(self.file.fileno())) == _known_by(there)


@contextmanager
def opened(entry: Found, max_bytes: int) -> Iterator[Opened]:
    """The file that was found, and nothing else that may have come into its place meanwhile.

    Raises `InvalidInput` where it cannot be read, `ParseFailure` ("too_large") beyond `max_bytes`.
    """
    try:
        with _folder_of(entry) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(entry.target.name, flags, dir_fd=folder)
    except OSError as error:
        raise _unreadable(entry, error) from error
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput("this is not a file", item=entry.name, remedy="remove it")
        if status.st_size > max_bytes:
            raise ParseFailure(
                "too_large",
                f"has {status.st_size} bytes, more than {max_bytes}",
                item=entry.name,
                remedy="split the file, or raise the limit",
            )
        try:
            content = file.read(_BUFFER + 1) if status.st_size <= _BUFFER else None
        except OSError as error:
            raise _unreadable(entry, error) from error
        short = content is not None and len(content) <= _BUFFER
        yield Opened(entry, file, content if short and content is not None else file, status)


@contextmanager
def _folder_of(entry: Found) -> Iterator[int]:
    """The folder of the file, reached step by step: a link that took a folder's place is not followed."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(entry.root.path, flags)
    try:
        for part in entry.target.relative_to(entry.root.path).parts[:-1]:
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _known_by(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _unreadable(entry: Found, error: OSError) -> InvalidInput:
    return InvalidInput(f"the file cannot be read: {error.strerror}", item=entry.name, remedy="check its permissions")
