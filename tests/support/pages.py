"""What lies in a file of SQLCipher, decrypted page by page: also free pages, and those of the write-ahead log.

SQLCipher 4 with a raw key (https://www.zetetic.net/sqlcipher/design/): pages of 4,096 bytes, AES-256-CBC; the last 80
bytes of a page are its IV (16) and its HMAC (64), the first 16 of a file are the salt of the key of the HMAC.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

PAGE: Final = 4_096
_RESERVED: Final = 80
_SALT: Final = 16
_WAL_HEADER: Final = 32
_FRAME: Final = 24


def pages(path: Path, key: bytes) -> Iterator[bytes]:
    """Every page of the database `path` and of its write-ahead log, in the clear."""
    data = path.read_bytes()
    for at in range(0, len(data) - PAGE + 1, PAGE):
        yield _open(data[at : at + PAGE], key, first=at == 0)
    log = path.with_name(f"{path.name}-wal")
    frames = log.read_bytes() if log.exists() else b""
    for at in range(_WAL_HEADER, len(frames) - PAGE - _FRAME + 1, PAGE + _FRAME):
        number = int.from_bytes(frames[at : at + 4], "big")
        yield _open(frames[at + _FRAME : at + _FRAME + PAGE], key, first=number == 1)


def contents(path: Path, key: bytes) -> bytes:
    """All pages in one. Raises `ValueError` where the key is another one: nothing would be found then."""
    found = b"".join(pages(path, key))
    # A schema stands in every database, and its words in no wrongly decrypted one.
    if b"CREATE TABLE" not in found:
        raise ValueError(f"{path.name} does not open with this key")
    return found


def _open(page: bytes, key: bytes, *, first: bool) -> bytes:
    start = _SALT if first else 0
    iv = page[PAGE - _RESERVED : PAGE - _RESERVED + 16]
    cipher = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    return cipher.update(page[start : PAGE - _RESERVED]) + cipher.finalize()
