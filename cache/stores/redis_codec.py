"""Entries as they lie in Redis: text and vector under AES-256-GCM, bound to the name of their key."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import msgspec

from cache.entry import Entry
from tenancy.errors import Corrupt
from tenancy.keys import decrypt, encrypt
from tenancy.tenant import TenantHandle

_PURPOSE: Final = "cache-redis-entry"
_NAMES: Final = tuple(field.name for field in fields(Entry))


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """The fields of `Entry` in their order."""

    id: str
    namespace: bytes
    exact: bytes
    template: str
    question: str
    vector: bytes
    payload: bytes
    dependencies: tuple[tuple[int, str], ...]
    acl_epoch: int
    corpus_epoch: int
    created: float
    expires: float
    origin_seq: int
    origin_user: str
    confirmed: int
    checksum: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


def seal(tenant: TenantHandle, key: str, entry: Entry) -> bytes:
    """`entry` encrypted under the tenant's key; opens only as the value of the key `key`."""
    plain = _encoder.encode(_Stored(*(getattr(entry, name) for name in _NAMES)))
    return encrypt(tenant.keys.purpose(_PURPOSE), plain, key.encode())


def unseal(tenant: TenantHandle, key: str, sealed: bytes) -> Entry | None:
    """None for what is no entry of this tenant under this key, or was changed."""
    try:
        found = _decoder.decode(decrypt(tenant.keys.purpose(_PURPOSE), sealed, key.encode()))
    except (Corrupt, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return Entry(*(getattr(found, name) for name in _NAMES))
