"""RTF as Outlook keeps it in a message ([MS-OXRTFCP]): a dictionary of 4 KB that begins with common RTF."""

from __future__ import annotations

import struct
from typing import Final

from indexing.parse.failure import ParseFailure

MAX_BYTES: Final = 8 * 2**20
"""Packed. It unpacks to at most 8.5 times as much."""

_START: Final = (
    b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \\froman \\fswiss \\fmodern \\fscript \\fdecor "
    b"MS Sans SerifSymbolArialTimes New RomanCourier{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20"
    b"\\b\\i\\u\\tab\\tx"
)
_SIZE: Final = 4096
_HEADER: Final = 16
_PACKED, _PLAIN = b"LZFu", b"MELA"


def unpack(data: bytes) -> bytes:
    """The RTF in the property PidTagRtfCompressed. Raises `ParseFailure` ("corrupt", "too_large")."""
    if len(data) > MAX_BYTES:
        raise ParseFailure("too_large", "has a body that is too long", remedy="save the message as EML")
    if len(data) < _HEADER or data[8:12] not in {_PACKED, _PLAIN}:
        raise ParseFailure("corrupt", "has a damaged body", remedy="save the message again")
    size = int(struct.unpack("<I", data[4:8])[0])
    if data[8:12] == _PLAIN:
        return data[_HEADER : _HEADER + size]
    ring = bytearray(_START.ljust(_SIZE, b"\0"))
    at, write, out = _HEADER, len(_START), bytearray()
    while at < len(data):
        flags = data[at]
        at += 1
        for bit in range(8):
            if flags >> bit & 1:
                if at + 1 >= len(data):
                    return bytes(out)
                pair = data[at] << 8 | data[at + 1]
                at += 2
                offset, length = pair >> 4, (pair & 15) + 2
                if offset == write:
                    return bytes(out)  # the end is marked by a reference to itself
                for step in range(length):
                    byte = ring[(offset + step) % _SIZE]
                    out.append(byte)
                    ring[write] = byte
                    write = (write + 1) % _SIZE
            else:
                if at >= len(data):
                    return bytes(out)
                out.append(data[at])
                ring[write] = data[at]
                write, at = (write + 1) % _SIZE, at + 1
    return bytes(out)
