"""The manifest of one export, and a line of a part."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from .notes import Key, Note, Tree

FORMAT: Final = "strongroom audit export"
VERSION: Final = 1
SIGNED: Final = b"strongroom audit manifest\n"
NAME: Final = re.compile(r"manifest-([0-9]{6})\.json")
_PART: Final = re.compile(r"records-[0-9]{12}-[0-9]{12}\.ndjson")
_ROW: Final = re.compile(
    rb'\{"seq":(0|[1-9][0-9]{0,17}),"leaf":"([0-9a-f]{64})","prev":"([0-9a-f]{64})",'
    rb'(?:"pruned":true|"record":(.*))\}\n',
    re.DOTALL,
)


def name_of(number: int) -> str:
    return f"manifest-{number:06}.json"


def genesis(log: str) -> bytes:
    """The `prev` of a log's first record."""
    return hashlib.sha256(b"strongroom audit log\0" + log.encode()).digest()


@dataclass(frozen=True)
class Part:
    """A file of records `first` to `last`, of `size` bytes. `blocks` are the roots of the blocks that end in it,
    `pruned` the ranges (first, last) of records whose bytes were destroyed.
    """

    file: str
    first: int
    last: int
    size: int
    sha256: str
    blocks: tuple[bytes, ...]
    pruned: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Listed:
    """A key that the log had or has: signed, if it is not the first, by the key before it."""

    key: Key
    signed_by: str | None
    signature: bytes


@dataclass(frozen=True)
class Manifest:
    """One export of a chain: records `first` to `size - 1`. `tree` and `last_leaf` are the state at its end, `previous`
    is the SHA-256 of the manifest before, `signed` what the signature is over, `digest` the file's SHA-256.
    """

    number: int
    log: str
    first: int
    size: int
    parts: tuple[Part, ...]
    nodes: tuple[bytes, ...]
    last_leaf: bytes
    checkpoint: str
    keys: tuple[Listed, ...]
    previous: str | None
    signer: str
    signature: bytes
    signed: bytes
    digest: str

    @property
    def origin(self) -> str:
        return f"strongroom/{self.log}"

    @property
    def note(self) -> Note:
        return Note.read(self.checkpoint)

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Raises `ValueError` for anything but a manifest, whoever signed it."""
        try:
            return _manifest(data)
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"a field is missing or of another kind ({error})") from None


@dataclass(frozen=True)
class Row:
    """A line of a part; `payload` is None where the record was pruned."""

    seq: int
    leaf: bytes
    prev: bytes
    payload: bytes | None

    @classmethod
    def read(cls, line: bytes) -> Row:
        """Raises `ValueError`."""
        found = _ROW.fullmatch(line)
        if found is None:
            raise ValueError("this is no line of a part")
        return cls(int(found[1]), bytes.fromhex(found[2].decode()), bytes.fromhex(found[3].decode()), found[4])

    def fits(self) -> bool:
        """Whether the stored bytes give their leaf."""
        return self.payload is None or hashlib.sha256(b"\0" + self.payload).digest() == self.leaf

    def event(self) -> dict[str, Any]:
        """The record as it reads; empty where it is no JSON object."""
        try:
            found = json.loads(str(self.payload or b"", "utf-8"))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _manifest(data: bytes) -> Manifest:
    found = json.loads(data)
    if (found["format"], found["version"]) != (FORMAT, VERSION):
        raise ValueError("the format or its version is not known")
    # One reading only: whatever another program might read otherwise is refused.
    if _canonical(found) + b"\n" != data:
        raise ValueError("it is not in canonical form")
    parts = tuple(_part(one) for one in found["parts"])
    first, size, number = _number(found["first"]), _number(found["size"]), _number(found["number"])
    if [first, *(part.last + 1 for part in parts)] != [*(part.first for part in parts), size]:
        raise ValueError("its parts do not follow one another")
    nodes = tuple(map(bytes.fromhex, found["frontier"]))
    Tree(size, nodes)
    Note.read(found["checkpoint"])
    return Manifest(
        number=number,
        log=_text(found["log"]),
        first=first,
        size=size,
        parts=parts,
        nodes=nodes,
        last_leaf=bytes.fromhex(found["last_leaf"]),
        checkpoint=_text(found["checkpoint"]),
        keys=tuple(_listed(one) for one in found["keys"]),
        previous=None if found["previous"] is None else _text(found["previous"]["sha256"]),
        signer=_text(found["signer"]),
        signature=base64.b64decode(found["signature"], validate=True),
        signed=SIGNED + _canonical({name: value for name, value in found.items() if name != "signature"}),
        digest=hashlib.sha256(data).hexdigest(),
    )


def _canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _part(found: dict[str, Any]) -> Part:
    first, last = _number(found["first"]), _number(found["last"])
    # The name is a name: nothing outside of the folder is read.
    if not _PART.fullmatch(found["file"]) or last < first:
        raise ValueError("a part is not what it should be")
    pruned = tuple((_number(one[0]), _number(one[1])) for one in found["pruned"])
    blocks = tuple(map(bytes.fromhex, found["blocks"]))
    return Part(found["file"], first, last, _number(found["bytes"]), _text(found["sha256"]), blocks, pruned)


def _listed(found: dict[str, Any]) -> Listed:
    signature = base64.b64decode(found["signature"] or "", validate=True)
    by = found["signed_by"]
    return Listed(Key.read(found["vkey"]), None if by is None else _text(by), signature)


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise ValueError("a number is not what it should be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value
