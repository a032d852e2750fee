"""One remembered answer, with all that has to hold before it is served again, under a keyed checksum."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tenancy.errors import Corrupt
from tenancy.keys import keyed_hash
from tenancy.tenant import TenantHandle

Vector = npt.NDArray[np.float32]
Dependencies = tuple[tuple[int, str], ...]
"""(document id, version) of every document in the answer's context, cited or not, sorted."""

_PURPOSE: Final = "cache-entry"
_DEPENDENCIES: Final = msgspec.json.Decoder(Dependencies)


@dataclass(frozen=True, slots=True)
class Entry:
    """Times in UTC epoch seconds; `expires` is absolute and no hit moves it.

    `payload` is served byte for byte. `vector` is little-endian float32, empty for an entry that only repeats
    exactly. `origin_seq` is the audit sequence number of the answer's own event, `origin_user` its asker's id.
    `confirmed` counts the checks of its semantic hits that found it right.
    """

    id: str
    namespace: bytes
    exact: bytes
    template: str
    question: str
    vector: bytes
    payload: bytes
    dependencies: Dependencies
    acl_epoch: int
    corpus_epoch: int
    created: float
    expires: float
    origin_seq: int
    origin_user: str
    confirmed: int = 0
    checksum: bytes = b""

    def similarity(self, vector: Vector) -> float | None:
        """Cosine with `vector` (dim,), both L2-normalised; None where the widths differ."""
        own = np.frombuffer(self.vector, dtype="<f4")
        return float(own @ vector) if own.shape == vector.shape and own.size else None


def new_entry_id() -> str:
    return f"ce_{secrets.token_hex(12)}"


def sealed(tenant: TenantHandle, entry: Entry) -> Entry:
    """`entry` with its checksum: HMAC-SHA256 over every other field, under a key of the tenant."""
    return replace(entry, checksum=_checksum(tenant, entry))


def is_intact(tenant: TenantHandle, entry: Entry) -> bool:
    """Whether no field has changed since `sealed`, and the entry is this tenant's."""
    return hmac.compare_digest(entry.checksum, _checksum(tenant, entry))


def canonical_payload(answer: Mapping[str, Any]) -> bytes:
    """Canonical JSON (sorted keys, no spaces, UTF-8) of what a hit serves."""
    return json.dumps(answer, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def encode_dependencies(dependencies: Dependencies) -> str:
    return msgspec.json.encode(dependencies).decode()


def decode_dependencies(text: str) -> Dependencies:
    """Raises `Corrupt` for anything but a list of [id, version] pairs."""
    try:
        return _DEPENDENCIES.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        raise Corrupt("the dependencies of a cache entry cannot be read") from None


def _checksum(tenant: TenantHandle, entry: Entry) -> bytes:
    return keyed_hash(
        tenant.keys.purpose(_PURPOSE),
        tenant.tenant_id,
        entry.id,
        entry.namespace,
        entry.exact,
        entry.template,
        # Bytes, since strings are normalised to NFC by the encoding and a checksum has to see every bit.
        entry.question.encode(),
        entry.vector,
        entry.payload,
        encode_dependencies(entry.dependencies).encode(),
        str(entry.acl_epoch),
        str(entry.corpus_epoch),
        entry.created.hex(),
        entry.expires.hex(),
        str(entry.origin_seq),
        entry.origin_user.encode(),
        str(entry.confirmed),
    )
