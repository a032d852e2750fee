"""Compressed bytes as a stream that ends with an error before it takes too much: gzip, bzip2 and xz."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from indexing.parse.failure import ParseFailure

XZ_MEMORY: Final = 128 * 2**20
"""What an xz stream may take to unpack: its dictionary is as large as its header says."""

_STEP: Final = 256 * 1024


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_KINDS: Final[dict[bytes, Callable[[], _Decompressor]]] = {
    b"\x1f\x8b": _Gzip,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=XZ_MEMORY),
}
MARKS: Final = tuple(_KINDS)
"""How compressed files begin."""


class Unpacked(io.RawIOBase):
    """What `data` unpacks to. Reading raises `ParseFailure`: "too_large" beyond `limit` bytes, "corrupt"."""

    def __init__(self, data: bytes, limit: int) -> None:
        self._make = next(make for mark, make in _KINDS.items() if data.startswith(mark))
        self._inner = self._make()
        self._data = data
        self._at = 0
        self._left = limit
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self._next(len(buffer))
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def _next(self, size: int) -> bytes:
        while True:
            if self._inner.eof:
                rest = self._inner.unused_data
                self._at -= len(rest)
                if not rest or self._data[self._at : self._at + 2] != self._data[:2]:
                    self._at = len(self._data)
                    return b""  # the end, or padding behind it
                self._inner = self._make()
            fresh = b""
            if self._inner.needs_input:
                fresh = self._data[self._at : self._at + _STEP]
                self._at += len(fresh)
                if not fresh:
                    raise _damaged("is cut off")
            try:
                chunk = self._inner.decompress(fresh, size)
            except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError):
                raise _damaged("is damaged") from None
            if chunk:
                self._left -= len(chunk)
                if self._left < 0:
                    raise ParseFailure(
                        "too_large", f"unpacks to more than {self._limit} bytes", remedy="unpack it, and add the files"
                    )
                return chunk


def _damaged(reason: str) -> ParseFailure:
    return ParseFailure("corrupt", reason, remedy="fetch or save the file again")
