"""Cryptographic keys: the master key wraps a root key, the root wraps random keys per tenant; purposes by HKDF.

Wrapping is AES-256-GCM with the tenant id and the purpose as associated data, so that a wrapped key copied to
another tenant's row does not open. Derivation is HKDF-SHA256 (RFC 5869).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tenancy.errors import AlreadyExists, Corrupt, InvalidInput, Unavailable
from tenancy.names import enc

KEY_BYTES = 32
_NONCE_BYTES = 12


def keyed_hash(key: bytes, *parts: bytes | str | None) -> bytes:
    """HMAC-SHA256 (RFC 2104) over the length-prefixed encoding of `parts`; 32 bytes."""
    return hmac.digest(key, enc(*parts), hashlib.sha256)


def audit_purpose(audit_key: bytes, name: str) -> bytes:
    """A 32-byte key for one purpose, derived from a tenant's audit key."""
    return derive(audit_key, f"strongroom/audit/{name}")


def encrypt(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """AES-256-GCM (NIST SP 800-38D): 12 random nonce bytes, then ciphertext and tag."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def decrypt(key: bytes, ciphertext: bytes, associated: bytes) -> bytes:
    """Undo `encrypt`; raises `Corrupt` when the key, the text or the associated data differ."""
    try:
        return AESGCM(key).decrypt(ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError):
        raise Corrupt("an encrypted value does not open with this key") from None


@dataclass(frozen=True, slots=True)
class MasterKey:
    """The one secret outside the data directory: 32 bytes, from a file or the environment. It wraps the root key."""

    value: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell one master key from another, and nothing else about it."""
        return derive(self.value, "strongroom/master/fingerprint")[:8].hex()

    def wrap_root(self, root: RootKey, associated: bytes) -> bytes:
        return encrypt(derive(self.value, "strongroom/master/keyring"), root.value, associated)

    def unwrap_root(self, wrapped: bytes, associated: bytes) -> RootKey:
        return RootKey(decrypt(derive(self.value, "strongroom/master/keyring"), wrapped, associated))


@dataclass(frozen=True, slots=True)
class RootKey:
    """The random key of one data directory, below which everything is derived or wrapped; see `tenancy.keyring`."""

    value: bytes = field(repr=False)

    def purpose(self, name: str) -> bytes:
        return derive(self.value, f"strongroom/master/{name}")

    def wrap(self, tenant_id: str, purpose: str, key: bytes) -> bytes:
        return encrypt(self.purpose("wrap"), key, enc(tenant_id, purpose))

    def unwrap(self, tenant_id: str, purpose: str, wrapped: bytes) -> bytes:
        return decrypt(self.purpose("wrap"), wrapped, enc(tenant_id, purpose))


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """`data` opens documents and cache and dies with the tenant; `audit` is kept for the retention time."""

    data: bytes = field(repr=False)
    audit: bytes = field(repr=False)
    _derived: dict[str, bytes] = field(default_factory=dict, init=False, repr=False, compare=False)

    def purpose(self, name: str) -> bytes:
        """A 32-byte key for one purpose, derived from `data` once."""
        found = self._derived.get(name)
        if found is None:
            found = self._derived[name] = derive(self.data, f"strongroom/tenant/{name}")
        return found


def load_master_key(path: Path | None, encoded: str | None) -> MasterKey:
    """Read the master key: base64 of 32 bytes, from `encoded` if given, else from `path`."""
    where = "STRONGROOM_MASTER_KEY"
    if encoded is None:
        if path is None or not path.exists():
            raise InvalidInput(
                "the master key file does not exist",
                item=str(path),
                remedy="create it with `strongroom doctor --create-master-key`, or set STRONGROOM_MASTER_KEY",
            )
        where, encoded = str(path), path.read_text(encoding="ascii", errors="replace")
    try:
        value = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != KEY_BYTES:
        raise InvalidInput(
            "a master key is base64 of exactly 32 bytes, and this is something else",
            item=where,
            remedy="put the right file in place; `strongroom master create FILE` makes a new key",
        )
    return MasterKey(value)


def create_master_key(path: Path) -> MasterKey:
    """Write a new random master key to `path`, readable by its owner alone; never overwrites one."""
    value = secrets.token_bytes(KEY_BYTES)
    made = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        made = True
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(value) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise AlreadyExists(
            "a master key is there already", item=str(path), remedy="it was left as it is; there is nothing to do"
        ) from None
    except OSError as error:
        if made:
            path.unlink(missing_ok=True)
        raise Unavailable("the master key cannot be written", item=str(path), remedy=str(error.strerror)) from error
    return MasterKey(value)


def derive(secret: bytes, info: str) -> bytes:
    """HKDF-SHA256 (RFC 5869) without salt: a 32-byte key for the purpose `info`."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info.encode()).derive(secret)
