"""A look into a zip archive before anything unpacks it."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Final

from indexing.parse.failure import ParseFailure
from indexing.parse.model import ParseLimits

MAX_ENTRIES: Final = 10_000
_ENCRYPTED_FLAG: Final = 0x1


_ENTRY: Final = b"PK\x01\x02"


def listed(data: bytes, limits: ParseLimits) -> frozenset[str]:
    """The names in an archive of any kind. Raises `ParseFailure`: corrupt, too_large."""
    return frozenset(entry.filename for entry in entries(data, limits))


def entries(data: bytes, limits: ParseLimits) -> list[zipfile.ZipInfo]:
    """The directory of an archive, which costs some 1 KB of memory an entry and is counted before it is read.

    Raises `ParseFailure`: corrupt, too_large.
    """
    if data.count(_ENTRY) > limits.max_children:
        raise ParseFailure("too_large", f"holds more than {limits.max_children} files", remedy="split it")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.infolist()
    except (zipfile.BadZipFile, struct.error, ValueError, OSError, EOFError, NotImplementedError, OverflowError):
        raise _damaged() from None


def is_encrypted(entry: zipfile.ZipInfo) -> bool:
    return bool(entry.flag_bits & _ENCRYPTED_FLAG)


def measure(data: bytes, limits: ParseLimits) -> frozenset[str]:
    """The names in an archive that is safe to unpack.

    The sizes that the directory declares can be trusted as bounds: `zipfile` reads no more of an entry than
    its declared size. Raises `ParseFailure`: corrupt, encrypted, too_large.
    """
    found = entries(data, limits)
    if any(is_encrypted(entry) for entry in found):
        raise ParseFailure("encrypted", "needs a password", remedy="save a copy without the password and add that")
    expanded = sum(entry.file_size for entry in found)
    xml = max((entry.file_size for entry in found if entry.filename.endswith((".xml", ".rels"))), default=0)
    if len(found) > MAX_ENTRIES or expanded > limits.max_expanded_bytes or xml > limits.max_xml_bytes:
        raise ParseFailure(
            "too_large",
            f"unpacks to {len(found)} parts and {expanded} bytes, the largest XML part {xml}",
            remedy="remove large pictures, or split the file",
        )
    return frozenset(entry.filename for entry in found)


def _damaged() -> ParseFailure:
    return ParseFailure("corrupt", "is a damaged or truncated archive", remedy="fetch or save the file again")
