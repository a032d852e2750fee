"""Encrypted archives: a tar stream in chunks, each authenticated at its place, the end too.

Layout: a magic line, four bytes of header length, the header as JSON, then chunks of 1 MiB of AES-256-GCM under a
random key of this archive. The nonce is the chunk's number and whether it is the last (the STREAM construction, Hoang
et al. 2015, as in age); the associated data is the digest of the header. The key is wrapped by the data directory's
root key and, where one was given, sealed to a recovery key by HPKE (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM).
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, Literal

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tenancy.errors import AlreadyExists, Corrupt, InvalidInput, Unavailable
from tenancy.keyring import sync_directory
from tenancy.keys import KEY_BYTES, decrypt, encrypt

MAGIC: Final = b"STRONGROOM ARCHIVE 1\n"
CHUNK: Final = 1 << 20
_TAG: Final = 16
_MAX_HEADER: Final = 64 << 10
_INFO: Final = b"strongroom archive key"
_SUITE: Final = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)

Kind = Literal["tenant", "ledger"]


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in front of an archive, readable by anybody: no name, no number of anything.

    `root` is the archive's key under the root key, `recovery` the same sealed to a recovery key; both base64.
    """

    kind: Kind
    root: str
    recovery: str | None = None


@dataclass(frozen=True, slots=True)
class Unlock:
    """What may open an archive: the key of the own data directory, and perhaps a recovery key."""

    root: bytes
    recovery: X25519PrivateKey | None = None


@contextmanager
def writing(path: Path, kind: Kind, root: bytes, recovery: X25519PublicKey | None = None) -> Iterator[tarfile.TarFile]:
    """A new archive at `path`, to be filled member by member. It is there, complete and durable, when the block ends,
    and not at all where it fails. Raises `AlreadyExists`, `Unavailable` where the disk does not take it.
    """
    if path.exists():
        raise AlreadyExists("the file is there already", item=str(path), remedy="choose another name")
    key = secrets.token_bytes(KEY_BYTES)
    sealed = None if recovery is None else base64.b64encode(_SUITE.encrypt(key, recovery, info=_INFO)).decode()
    header = msgspec.json.encode(Header(kind, base64.b64encode(encrypt(root, key, _INFO)).decode(), sealed))
    partial = path.with_name(f".{path.name}.{secrets.token_hex(6)}.partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC + len(header).to_bytes(4, "big") + header)
            chunks = _Writer(file, key, hashlib.sha256(header).digest())
            with tarfile.open(fileobj=chunks, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
                yield archive
            chunks.finish()
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        raise AlreadyExists("the file is there already", item=str(path), remedy="choose another name") from None
    except OSError as error:
        raise Unavailable("the archive cannot be written", item=str(path), remedy=str(error.strerror)) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    sync_directory(path.absolute().parent)


@contextmanager
def reading(path: Path, kind: Kind, unlock: Unlock) -> Iterator[Iterator[tuple[str, IO[bytes]]]]:
    """The members of an archive in order, each read in full before the next. What was read is only to be believed when
    the block has ended without an error: the end of the archive is checked last.

    Raises `InvalidInput` for something else or a key that does not open it, `Corrupt` for a changed or cut archive.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidInput("the archive cannot be read", item=str(path), remedy=str(error.strerror)) from None
    with file:
        header, raw = _header(file, path)
        if header.kind != kind:
            raise InvalidInput(f"this archive holds a {header.kind}, not a {kind}", item=str(path))
        chunks = _Reader(file, _unlocked(header, unlock, path), hashlib.sha256(raw).digest(), path)
        try:
            with tarfile.open(fileobj=chunks, mode="r|") as archive:  # type: ignore[call-overload]
                yield _members(archive, path)
            chunks.drain()
        except tarfile.TarError:
            raise _damaged(path) from None


def add(archive: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    """Add one member: a file, streamed, or bytes. Owner, times and modes of the file are left out."""
    member = tarfile.TarInfo(name)
    member.mode = 0o600
    if isinstance(content, bytes):
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    else:
        member.size = content.stat().st_size
        with content.open("rb") as file:
            archive.addfile(member, file)


def create_recovery_key(path: Path) -> Path:
    """Write a new private recovery key to `path` (PEM, readable by its owner alone), and the public one beside it,
    whose path is returned. Both or none. Raises `AlreadyExists`, `Unavailable`.
    """
    private, public = X25519PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    open_pem = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    made: list[Path] = []
    try:
        for target, data in ((path, pem), (public, open_pem)):
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            made.append(target)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        # Both or none: half a pair is a key that nobody can use, or that somebody uses for another.
        for half in made:
            half.unlink(missing_ok=True)
        item = str(public if made else path)
        if isinstance(error, FileExistsError):
            raise AlreadyExists("the file is there already", item=item, remedy="choose another name") from None
        raise Unavailable("the key cannot be written", item=item, remedy=str(error.strerror)) from error
    return public


def read_public_key(path: Path) -> X25519PublicKey:
    """A public recovery key (PEM). Raises `InvalidInput`."""
    found = _loaded(path, serialization.load_pem_public_key)
    if isinstance(found, X25519PublicKey):
        return found
    raise _no_key(path, "public")


def read_private_key(path: Path) -> X25519PrivateKey:
    """A private recovery key (PEM). Raises `InvalidInput`."""
    found = _loaded(path, lambda data: serialization.load_pem_private_key(data, None))
    if isinstance(found, X25519PrivateKey):
        return found
    raise _no_key(path, "private")


def _loaded(path: Path, load: Callable[[bytes], object]) -> object:
    try:
        return load(path.read_bytes())
    except OSError as error:
        raise InvalidInput("the key file cannot be read", item=str(path), remedy=str(error.strerror)) from None
    except (ValueError, TypeError):
        return None


def _no_key(path: Path, half: str) -> InvalidInput:
    remedy = "`strongroom master recovery-key` makes a pair"
    return InvalidInput(f"this is no {half} recovery key", item=str(path), remedy=remedy)


class _Writer:
    """Cuts what is written into chunks and encrypts each."""

    def __init__(self, file: IO[bytes], key: bytes, header: bytes) -> None:
        self._file = file
        self._cipher = AESGCM(key)
        self._header = header
        self._waiting = bytearray()
        self._number = 0

    def write(self, data: bytes) -> int:
        self._waiting += data
        # One chunk stays, so that the last one is never empty unless the archive is.
        while len(self._waiting) > CHUNK:
            self._put(bytes(self._waiting[:CHUNK]), last=False)
            del self._waiting[:CHUNK]
        return len(data)

    def finish(self) -> None:
        self._put(bytes(self._waiting), last=True)

    def _put(self, chunk: bytes, *, last: bool) -> None:
        self._file.write(self._cipher.encrypt(_nonce(self._number, last=last), chunk, self._header))
        self._number += 1


class _Reader:
    """Decrypts chunk after chunk; `read` never gives a byte of a chunk that was not authenticated."""

    def __init__(self, file: IO[bytes], key: bytes, header: bytes, path: Path) -> None:
        self._file = file
        self._cipher = AESGCM(key)
        self._header = header
        self._path = path
        self._ready = b""
        self._number = 0
        self._ahead = file.read(CHUNK + _TAG)
        self._ended = False

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and not self._ended:
            self._ready += self._next()
        given, self._ready = self._ready[:size], self._ready[size:]
        return given

    def drain(self) -> None:
        while not self._ended:
            self._next()

    def _next(self) -> bytes:
        chunk, self._ahead = self._ahead, self._file.read(CHUNK + _TAG)
        self._ended = not self._ahead
        try:
            plain = self._cipher.decrypt(_nonce(self._number, last=self._ended), chunk, self._header)
        except (InvalidTag, ValueError):
            raise _damaged(self._path) from None
        self._number += 1
        return plain


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _header(file: IO[bytes], path: Path) -> tuple[Header, bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise InvalidInput("this is no archive of Strongroom, or one of a newer version", item=str(path))
    length = int.from_bytes(file.read(4), "big")
    raw = file.read(min(length, _MAX_HEADER))
    try:
        return msgspec.json.decode(raw, type=Header), raw
    except msgspec.MsgspecError:
        raise _damaged(path) from None


def _unlocked(header: Header, unlock: Unlock, path: Path) -> bytes:
    try:
        return decrypt(unlock.root, base64.b64decode(header.root), _INFO)
    except (Corrupt, ValueError):
        pass
    if header.recovery is None:
        raise InvalidInput(
            "the archive was made on another data directory, and for no recovery key",
            item=str(path),
            remedy="restore it there, or make it again with --for",
        )
    if unlock.recovery is None:
        raise InvalidInput(
            "the archive was made on another data directory", item=str(path), remedy="give the recovery key with --key"
        )
    try:
        return _SUITE.decrypt(base64.b64decode(header.recovery), unlock.recovery, info=_INFO)
    except (InvalidTag, ValueError):
        raise InvalidInput("this recovery key does not open the archive", item=str(path)) from None


def _members(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        if content is None:
            raise _damaged(path)
        yield member.name, content


def _damaged(path: Path) -> Corrupt:
    return Corrupt("the archive is damaged or cut short", item=str(path), remedy="use another backup")
