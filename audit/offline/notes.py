"""The tree of RFC 6962, and C2SP's verifier keys and signed notes (c2sp.org/signed-note, c2sp.org/tlog-checkpoint)."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

BLOCK_LEVEL: Final = 8
"""A block is 2^8 records that start at a multiple of 2^8; its root is a node of the tree."""


class Tree:
    """`size` leaves, as the roots of the perfect subtrees of the binary decomposition of `size`, the largest first."""

    def __init__(self, size: int = 0, nodes: Sequence[bytes] = ()) -> None:
        if size.bit_count() != len(nodes) or any(len(node) != 32 for node in nodes):
            raise ValueError("these are not the subtrees of a tree of this size")
        self.size = size
        self.nodes = list(nodes)

    def add(self, leaf: bytes) -> bytes | None:
        """Append a leaf; gives the root of the block that it completes."""
        node, rest, level, block = leaf, self.size, 0, None
        while rest & 1:
            node = hashlib.sha256(b"\x01" + self.nodes.pop() + node).digest()
            rest >>= 1
            level += 1
            if level == BLOCK_LEVEL:
                block = node
        self.nodes.append(node)
        self.size += 1
        return block

    def root(self) -> bytes:
        if not self.nodes:
            return hashlib.sha256(b"").digest()
        node = self.nodes[-1]
        for left in reversed(self.nodes[:-1]):
            node = hashlib.sha256(b"\x01" + left + node).digest()
        return node


@dataclass(frozen=True)
class Key:
    """An Ed25519 public key (32 bytes) under the name of a log; signatures name it by `id`."""

    name: str
    public: bytes

    @classmethod
    def read(cls, vkey: str) -> Key:
        """A verifier key, `NAME+ID+BASE64`. Raises `ValueError`."""
        name, _, rest = vkey.strip().partition("+")
        found, _, encoded = rest.partition("+")
        data = base64.b64decode(encoded, validate=True)
        key = cls(name, data[1:])
        if len(data) != 33 or data[0] != 1 or key.id != found:
            raise ValueError("this is no verifier key for Ed25519")
        return key

    @property
    def id(self) -> str:
        return hashlib.sha256(self.name.encode() + b"\n\x01" + self.public).hexdigest()[:8]

    def signed(self, data: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True)
class Note:
    """A checkpoint: origin, size, root and time. `text` is what the signatures (name, key id, signature) are over."""

    origin: str
    size: int
    root: bytes
    time: str
    text: str
    signatures: tuple[tuple[str, str, bytes], ...]

    @classmethod
    def read(cls, note: str) -> Note:
        """Raises `ValueError`."""
        text, gap, below = note.partition("\n\n")
        origin, size, root, *rest = text.split("\n")
        data = base64.b64decode(root, validate=True)
        if not gap or len(data) != 32 or not re.fullmatch(r"0|[1-9][0-9]{0,17}", size):
            raise ValueError("this is no checkpoint")
        signatures = []
        for line in below.splitlines():
            dash, name, encoded = line.split(" ")
            signed = base64.b64decode(encoded, validate=True)
            if dash != "\u2014":
                raise ValueError("this is no signature line")
            signatures.append((name, signed[:4].hex(), signed[4:]))
        time = next((line[5:] for line in rest if line.startswith("time ")), "")
        return cls(origin, int(size), data, time, f"{text}\n", tuple(signatures))

    def signed_by(self, keys: Iterable[Key]) -> bool:
        data, known = self.text.encode(), list(keys)
        return any(
            key.name == name == self.origin and key.id == found and key.signed(data, signature)
            for name, found, signature in self.signatures
            for key in known
        )
