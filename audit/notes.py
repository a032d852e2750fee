"""Checkpoints as signed notes, as C2SP specifies both (c2sp.org/tlog-checkpoint, c2sp.org/signed-note).

A checkpoint is a text of lines: origin, tree size, root (base64), and here one extension line `time <RFC 3339>`. After
an empty line come the signatures, one a line: an em dash, the name of the key (the origin), and base64 of the first
four bytes of the key's hash with the Ed25519 signature over the text. Nothing here knows a database.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from audit.merkle import HASH_BYTES
from tenancy.errors import InvalidInput

ED25519: Final = b"\x01"
"""The algorithm byte of a signed note."""
_HASH: Final = 4
_DASH: Final = "\u2014 "
_MAX_NOTE: Final = 16_384
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_TIME: Final = "time "


def origin_of(log_id: str) -> str:
    """The origin line of a log's checkpoints, which is the name of its keys too."""
    return f"strongroom/{log_id}"


def key_hash(name: str, public: bytes) -> bytes:
    """The four bytes by which a signature names its key: of SHA-256(name, line feed, algorithm byte, key)."""
    return hashlib.sha256(name.encode() + b"\n" + ED25519 + public).digest()[:_HASH]


def vkey(name: str, public: bytes) -> str:
    """A raw Ed25519 public key (32 bytes) as a C2SP verifier key: `name+hash+base64(algorithm byte, key)`."""
    return f"{name}+{key_hash(name, public).hex()}+{base64.b64encode(ED25519 + public).decode()}"


def parse_vkey(text: str) -> tuple[str, bytes]:
    """The name and the raw public key of a verifier key. Raises `InvalidInput`."""
    name, _, rest = text.strip().partition("+")
    digest, _, encoded = rest.partition("+")
    data = _decoded(encoded)
    if data is None or len(data) != 33 or data[:1] != ED25519:
        raise InvalidInput("not a verifier key for Ed25519", item="key", remedy="it looks like NAME+HASH+BASE64")
    if not _is_name(name) or key_hash(name, data[1:]).hex() != digest:
        raise InvalidInput("the verifier key's name and hash do not belong together", item="key")
    return name, data[1:]


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that signs the checkpoints of the log whose origin is `name`."""

    name: str
    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    @property
    def id(self) -> str:
        """The key's hash in hexadecimal, as it stands in the verifier key."""
        return key_hash(self.name, self.public).hex()

    def line(self, text: str) -> str:
        """The signature line for `text`."""
        signed = key_hash(self.name, self.public) + self.private.sign(text.encode())
        return f"{_DASH}{self.name} {base64.b64encode(signed).decode()}\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signed state of a log: its origin, size and root (32 bytes), the UTC epoch second of the signature, and the
    note that says so, byte for byte.
    """

    origin: str
    size: int
    root: bytes
    time: float
    note: str

    @property
    def text(self) -> str:
        """What is signed."""
        return self.note[: self.note.index("\n\n") + 1]

    @property
    def log_id(self) -> str:
        return self.origin.rpartition("/")[2]

    def signatures(self) -> tuple[tuple[str, bytes, bytes], ...]:
        """(name, key hash, signature) of every line below the text."""
        return tuple(_signature(line) for line in self.note[len(self.text) + 1 : -1].split("\n"))

    def signed_by(self, public: bytes) -> bool:
        """Whether the raw Ed25519 key `public`, under the name of this log, signed this note."""
        digest = key_hash(self.origin, public)
        data = self.text.encode()
        for name, found, signature in self.signatures():
            if name != self.origin or found != digest:
                continue
            try:
                Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
            except (InvalidSignature, ValueError):
                return False
            return True
        return False


def make(log_id: str, size: int, root: bytes, now: float, signers: Sequence[Signer]) -> Checkpoint:
    """A checkpoint signed by each of `signers`; `now` is UTC epoch seconds and is kept to the millisecond."""
    time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = f"{origin_of(log_id)}\n{size}\n{base64.b64encode(root).decode()}\n{_TIME}{time}\n"
    return parse(text + "\n" + "".join(signer.line(text) for signer in signers))


def parse(note: str) -> Checkpoint:
    """The checkpoint that a note states, whoever signed it. Raises `InvalidInput` for anything but such a note."""
    text, gap, signatures = note.partition("\n\n")
    lines = text.split("\n")
    if len(note) > _MAX_NOTE or not gap or not signatures.endswith("\n") or len(lines) < 4:
        raise _malformed("it is not a signed note of at least four lines")
    if any(ord(character) < 32 and character != "\n" for character in note):
        raise _malformed("it holds control characters")
    origin, size, root, *rest = lines
    data = _decoded(root)
    if not _is_name(origin) or not _NUMBER.fullmatch(size) or data is None or len(data) != HASH_BYTES:
        raise _malformed("origin, size or root is not what it should be")
    times = [line[len(_TIME) :] for line in rest if line.startswith(_TIME)]
    if len(times) != 1:
        raise _malformed("it states no time")
    try:
        time = datetime.fromisoformat(times[0])
    except ValueError:
        raise _malformed("its time is not RFC 3339") from None
    if time.tzinfo is None:
        raise _malformed("its time has no zone")
    found = Checkpoint(origin, int(size), data, time.timestamp(), note)
    # Each line must be readable, also those of keys that nobody here knows.
    found.signatures()
    return found


def verify_note(note: str, *keys: str) -> Checkpoint:
    """The checkpoint of a note that one of the verifier keys `keys` signed. Raises `InvalidInput` otherwise."""
    found = parse(note)
    for name, public in map(parse_vkey, keys):
        if name == found.origin and found.signed_by(public):
            return found
    raise InvalidInput("the checkpoint has no valid signature of this key", item=found.origin)


def _signature(line: str) -> tuple[str, bytes, bytes]:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    data = _decoded(encoded)
    if not line.startswith(_DASH) or not _is_name(name) or data is None or len(data) <= _HASH:
        raise _malformed("a line of signatures cannot be read")
    return name, data[:_HASH], data[_HASH:]


def _is_name(text: str) -> bool:
    return bool(text) and "+" not in text and not any(character.isspace() for character in text)


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _malformed(reason: str) -> InvalidInput:
    return InvalidInput(f"this is no checkpoint: {reason}", item="checkpoint")
