"""The Merkle tree of an audit log, append-only (RFC 6962, section 2.1; RFC 9162 keeps the same hashes).

leaf = SHA-256(0x00 || record), node = SHA-256(0x01 || left || right). A tree of any size is kept as its frontier:
the roots of the perfect subtrees in its binary decomposition, largest first (a "compact range"), so appending costs
O(log n) and needs no older leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tenancy.errors import Corrupt

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()
STORED_LEVEL: Final = 8
"""Roots of perfect subtrees of 2^8 leaves and more are stored, so that a proof reads few leaves."""


@dataclass(frozen=True, slots=True)
class Node:
    """The root of the perfect subtree over leaves `at << level` to `((at + 1) << level) - 1`."""

    level: int
    at: int
    hash: bytes


def leaf_hash(record: bytes) -> bytes:
    """The 32-byte hash of one stored record; the prefix keeps a node from being passed off as a record."""
    return hashlib.sha256(b"\x00" + record).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


class Frontier:
    """`size` leaves, as one hash for each set bit of `size`, the largest subtree first."""

    __slots__ = ("_nodes", "size")

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        if size < 0 or len(nodes) != size.bit_count() or any(len(node) != HASH_BYTES for node in nodes):
            raise Corrupt("a stored Merkle frontier does not fit its tree size", item=f"size {size}")
        self.size = size
        self._nodes = list(nodes)

    def append(self, leaf: bytes) -> Sequence[Node]:
        """Add one leaf hash: it merges with every perfect subtree that it completes. Returns those that are stored."""
        node, rest, level = leaf, self.size, 0
        stored: list[Node] = []
        while rest & 1:
            node = node_hash(self._nodes.pop(), node)
            rest >>= 1
            level += 1
            if level >= STORED_LEVEL:
                stored.append(Node(level, rest, node))
        self._nodes.append(node)
        self.size += 1
        return stored

    def extend(self, leaves: Iterable[bytes]) -> None:
        for leaf in leaves:
            self.append(leaf)

    def root(self) -> bytes:
        """The tree head: the subtrees joined from the smallest up; of an empty tree, the hash of nothing."""
        if not self._nodes:
            return EMPTY_ROOT
        node = self._nodes[-1]
        for left in reversed(self._nodes[:-1]):
            node = node_hash(left, node)
        return node

    def to_bytes(self) -> bytes:
        return b"".join(self._nodes)

    @classmethod
    def from_bytes(cls, size: int, data: bytes) -> Frontier:
        """Raises `Corrupt` when `data` is not the frontier of a tree of `size` leaves."""
        return cls(size, [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)])
