"""The keyring: one random root key per data directory, wrapped by the master key.

Everything else is derived from the root or wrapped by it, so changing the master key rewrites these few bytes and
nothing more, and a running server, which holds the root, notices nothing. The bytes lie in a store: a file here, and
a row where the control plane is a database server.
"""

from __future__ import annotations

import base64
import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from tenancy.errors import Corrupt, InvalidInput, NotFound
from tenancy.keys import KEY_BYTES, MasterKey, RootKey
from tenancy.names import enc

VERSION: Final = 1
KEYRING_FILE: Final = "keyring.json"


class KeyringStore(Protocol):
    """Where the bytes of a keyring lie."""

    def read(self) -> bytes | None:
        """The stored bytes, or None where there is no keyring yet."""

    def create(self, data: bytes) -> bool:
        """Store the first bytes durably; False where somebody else was first."""

    def exclusive(self) -> AbstractContextManager[None]:
        """A context that one process at a time is in, for reading and replacing."""

    def replace(self, data: bytes) -> None:
        """Put `data` in the place of what is stored, durably and in one step."""


class FileKeyring:
    """A keyring in a file, which is replaced as a whole: after a crash it is the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def create(self, data: bytes) -> bool:
        written = self._written(data)
        try:
            # Unlike a rename, a link never takes the place of what is there.
            os.link(written, self.path)
        except FileExistsError:
            return False
        finally:
            written.unlink()
        sync_directory(self.path.parent)
        return True

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def replace(self, data: bytes) -> None:
        self._written(data).rename(self.path)
        sync_directory(self.path.parent)

    def _written(self, data: bytes) -> Path:
        path = self.path.with_name(f"{self.path.name}.{secrets.token_hex(8)}.new")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return path


class _Keyring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`master` tells which master key wrapped the root, without saying anything about it."""

    version: int
    id: str
    master: str
    wrapped: str


def open_root(store: KeyringStore, master: MasterKey) -> RootKey | None:
    """The root key, or None where there is no keyring yet.

    Raises `InvalidInput` where `master` is not the key that wrapped it, `Corrupt` for damaged bytes.
    """
    data = store.read()
    return None if data is None else _unwrapped(_decoded(data), master)


def create_root(store: KeyringStore, master: MasterKey, root: RootKey | None = None) -> RootKey:
    """Store a new keyring around `root`, or a random one; returns the root that is stored in the end, which is
    another process's where that was first.
    """
    root = root or RootKey(secrets.token_bytes(KEY_BYTES))
    store.create(_encoded(f"r_{secrets.token_hex(8)}", root, master))
    found = open_root(store, master)
    if found is None:
        raise Corrupt("the keyring vanished while it was made", item=KEYRING_FILE)
    return found


def master_of(store: KeyringStore) -> str | None:
    """The fingerprint of the master key that wraps the root, or None without a keyring."""
    data = store.read()
    return None if data is None else _decoded(data).master


def rotate_master(store: KeyringStore, old: MasterKey, new: MasterKey) -> None:
    """Wrap the root by `new` instead of `old`; nothing else changes. Doing it again changes nothing.

    Raises `NotFound` without a keyring, `InvalidInput` where neither of them opens it.
    """
    with store.exclusive():
        data = store.read()
        if data is None:
            raise NotFound("there is no keyring yet", item=KEYRING_FILE, remedy="create a tenant first")
        keyring = _decoded(data)
        if keyring.master == new.fingerprint:
            _unwrapped(keyring, new)
            return
        store.replace(_encoded(keyring.id, _unwrapped(keyring, old), new))


def sync_directory(directory: Path) -> None:
    """Make names that were created, renamed or removed in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encoded(keyring_id: str, root: RootKey, master: MasterKey) -> bytes:
    wrapped = master.wrap_root(root, enc("keyring", keyring_id))
    keyring = _Keyring(VERSION, keyring_id, master.fingerprint, base64.b64encode(wrapped).decode())
    return msgspec.json.format(msgspec.json.encode(keyring)) + b"\n"


def _decoded(data: bytes) -> _Keyring:
    try:
        keyring = msgspec.json.decode(data, type=_Keyring)
    except msgspec.MsgspecError:
        raise _damaged() from None
    if keyring.version != VERSION:
        raise InvalidInput(
            "the keyring was written by a newer program", item=KEYRING_FILE, remedy="run the program that wrote it"
        )
    return keyring


def _unwrapped(keyring: _Keyring, master: MasterKey) -> RootKey:
    if keyring.master != master.fingerprint:
        raise InvalidInput(
            f"this master key ({master.fingerprint}) did not wrap the keyring; the key {keyring.master} did",
            item=KEYRING_FILE,
            remedy="put the right master key in place; docs/operations/master-key.md says how to find it",
        )
    try:
        return master.unwrap_root(base64.b64decode(keyring.wrapped, validate=True), enc("keyring", keyring.id))
    except (Corrupt, ValueError):
        raise _damaged() from None


def _damaged() -> Corrupt:
    return Corrupt("the keyring is damaged", item=KEYRING_FILE, remedy="restore this file from a copy")
