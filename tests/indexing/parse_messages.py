"""A writer of compound files ([MS-CFB]), for small Outlook messages."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

SECTOR, MINI_SECTOR, CUTOFF = 512, 64, 4096
FREE, END, FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
NOTHING = 0xFFFFFFFF


@dataclass
class _Entry:
    name: str
    data: bytes | None = None
    below: dict[str, _Entry] = field(default_factory=dict)
    child: int = NOTHING
    following: int = NOTHING
    start: int = END


def compound_file(streams: Mapping[str, bytes]) -> bytes:
    """Streams by path, "storage/stream". Siblings are a list to the right: readers do not need a balanced tree."""
    root = _Entry("Root Entry")
    for path, data in streams.items():
        at = root
        *storages, name = path.split("/")
        for storage in storages:
            at = at.below.setdefault(storage, _Entry(storage))
        at.below[name] = _Entry(name, data)
    entries: list[_Entry] = []
    _number(root, entries)
    sectors: list[bytes] = []
    fat: list[int] = []

    def place(data: bytes) -> int:
        count = max(-(-len(data) // SECTOR), 1)
        start = len(sectors)
        for index in range(count):
            sectors.append(data[index * SECTOR : (index + 1) * SECTOR].ljust(SECTOR, b"\0"))
            fat.append(len(sectors) if index + 1 < count else END)
        return start

    mini, mini_fat = b"", [END]
    for entry in entries:
        if entry.data and len(entry.data) >= CUTOFF:
            entry.start = place(entry.data)
        elif entry.data:
            entry.start = len(mini) // MINI_SECTOR
            count = -(-len(entry.data) // MINI_SECTOR)
            mini += entry.data.ljust(count * MINI_SECTOR, b"\0")
            mini_fat[entry.start :] = [*range(entry.start + 1, entry.start + count), END]
    root.data, root.start = mini, place(mini)
    mini_table = struct.pack(f"<{len(mini_fat)}I", *mini_fat)
    mini_start = place(mini_table + b"\xff" * (-len(mini_table) % SECTOR))
    directory = place(b"".join(_packed(entry) for entry in entries))
    fats = 1
    while (len(fat) + fats) * 4 > fats * SECTOR:
        fats += 1
    first = len(sectors)
    fat += [FAT] * fats
    table = struct.pack(f"<{len(fat)}I", *fat).ljust(fats * SECTOR, b"\xff")
    sectors += [table[index * SECTOR : (index + 1) * SECTOR] for index in range(fats)]
    places = [*range(first, first + fats), *[FREE] * (109 - fats)]
    head = struct.pack(
        "<8s16sHHHHH6x9I",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
        bytes(16),
        0x3E,
        3,
        0xFFFE,
        9,
        6,
        0,
        fats,
        directory,
        0,
        CUTOFF,
        mini_start,
        -(-len(mini_table) // SECTOR),
        END,
        0,
    )
    return head + struct.pack("<109I", *places) + b"".join(sectors)


def _number(entry: _Entry, entries: list[_Entry]) -> int:
    number = len(entries)
    entries.append(entry)
    before: _Entry | None = None
    for below in entry.below.values():
        place = _number(below, entries)
        if before is None:
            entry.child = place
        else:
            before.following = place
        before = below
    return number


def _packed(entry: _Entry) -> bytes:
    name = entry.name.encode("utf-16-le") + b"\0\0"
    kind = 5 if entry.name == "Root Entry" else 1 if entry.data is None else 2
    return struct.pack(
        "<64sHBBIII16sIQQIQ",
        name,
        len(name),
        kind,
        1,
        NOTHING,
        entry.following,
        entry.child,
        bytes(16),
        0,
        0,
        0,
        0 if kind == 1 else entry.start,
        len(entry.data or b""),
    )
