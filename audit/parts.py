"""A part of an exported log: the lines of consecutive records, and what the manifest says about them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Row

from audit.merkle import STORED_LEVEL, Frontier, leaf_hash
from audit.offline.manifest import Row as Line
from tenancy.errors import Corrupt

FILE: Final = re.compile(r"records-([0-9]{12})-([0-9]{12})\.ndjson")
VERIFY: Final = "`strongroom audit verify` says what was changed; keep the file as it is"


@dataclass(slots=True)
class State:
    """How far the folder is: the tree over all records in it, and the last one's leaf."""

    tree: Frontier
    prev: bytes


@dataclass(slots=True)
class Part:
    """What the manifest says about a part."""

    first: int
    digest: Any = field(default_factory=hashlib.sha256)
    size: int = 0
    records: int = 0
    blocks: list[str] = field(default_factory=list)
    pruned: list[list[int]] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + self.records - 1

    @property
    def name(self) -> str:
        return f"records-{self.first:012}-{self.last:012}.ndjson"

    def take(self, state: State, leaf: bytes, line: bytes, *, pruned: bool) -> None:
        seq = state.tree.size
        self.blocks += [node.hash.hex() for node in state.tree.append(leaf) if node.level == STORED_LEVEL]
        state.prev = leaf
        if pruned and self.pruned and self.pruned[-1][1] == seq - 1:
            self.pruned[-1][1] = seq
        elif pruned:
            self.pruned.append([seq, seq])
        self.digest.update(line)
        self.size += len(line)
        self.records += 1

    def described(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "bytes": self.size,
            "sha256": self.digest.hexdigest(),
            "blocks": self.blocks,
            "pruned": self.pruned,
        }


def line_of(row: Row[Any], state: State) -> bytes:
    """The line of a stored record: its exact bytes as the value of `record`. Raises `Corrupt` where it is not the one
    that follows.
    """
    pruned = not row.payload
    fits = row.seq == state.tree.size and row.prev == state.prev
    if not fits or not (pruned or leaf_hash(row.payload) == row.leaf) or b"\n" in row.payload:
        raise Corrupt(f"record {state.tree.size} is not as it was written", item="audit log", remedy=VERIFY)
    content = b'"pruned":true' if pruned else b'"record":' + row.payload
    return b'{"seq":%d,"leaf":"%s","prev":"%s",%s}\n' % (
        row.seq, row.leaf.hex().encode(), row.prev.hex().encode(), content,
    )  # fmt: skip


def read_part(path: Path, part: Part, state: State) -> bool:
    """Take all lines of a finished file into `part` and `state`; False where one is not what follows."""
    with path.open("rb") as file:
        for line in file:
            try:
                row = Line.read(line)
            except ValueError:
                return False
            if not row.fits() or row.seq != state.tree.size or row.prev != state.prev:
                return False
            part.take(state, row.leaf, line, pruned=row.payload is None)
    return True
