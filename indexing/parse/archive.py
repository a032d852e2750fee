"""A look into a zip archive before anything unpacks it."""

from __future__ import annotations

import io
import zipfile
from typing import Final

from indexing.parse.failure import ParseFailure
from indexing.parse.model import ParseLimits

MAX_ENTRIES: Final = 10_000
_ENCRYPTED_FLAG: Final = 0x1


def measure(data: bytes, limits: ParseLimits) -> frozenset[str]:
    """The names in an archive that is safe to unpack.

    The sizes that the directory declares can be trusted as bounds: `zipfile` reads no more of an entry than
    its declared size. Raises `ParseFailure`: corrupt, encrypted, too_large.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError):
        raise ParseFailure(
            "corrupt", "is a damaged or truncated archive", remedy="fetch or save the file again"
        ) from None
    if any(entry.flag_bits & _ENCRYPTED_FLAG for entry in entries):
        raise ParseFailure("encrypted", "needs a password", remedy="save a copy without the password and add that")
    expanded = sum(entry.file_size for entry in entries)
    xml = max((entry.file_size for entry in entries if entry.filename.endswith((".xml", ".rels"))), default=0)
    if len(entries) > MAX_ENTRIES or expanded > limits.max_expanded_bytes or xml > limits.max_xml_bytes:
        raise ParseFailure(
            "too_large",
            f"unpacks to {len(entries)} parts and {expanded} bytes, the largest XML part {xml}",
            remedy="remove large pictures, or split the file",
        )
    return frozenset(entry.filename for entry in entries)
