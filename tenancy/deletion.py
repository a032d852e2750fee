"""Signed deletion certificates: what of a tenant was destroyed, and what is retained and why.

The signature is Ed25519 (RFC 8032) over the canonical JSON of the certificate without its `signature` field.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tenancy.keys import RootKey


def signing_key(root: RootKey) -> Ed25519PrivateKey:
    """The service's signing key, derived from the root key."""
    return Ed25519PrivateKey.from_private_bytes(root.purpose("signing"))


def artefacts(directory: Path) -> list[dict[str, Any]]:
    """Every file below `directory`: name, bytes and SHA-256, sorted by name."""
    return [
        {
            "file": str(path.relative_to(directory)),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    ]


def sign(certificate: Mapping[str, Any], key: Ed25519PrivateKey) -> dict[str, Any]:
    """The certificate with `public_key` and `signature` (base64) added."""
    public = base64.b64encode(key.public_key().public_bytes_raw()).decode()
    body = {**certificate, "public_key": public}
    signature = key.sign(msgspec.json.encode(body, order="sorted"))
    return {**body, "signature": base64.b64encode(signature).decode()}


def verify(certificate: Mapping[str, Any], public: bytes) -> bool:
    """True where `certificate` was signed by the holder of the raw Ed25519 public key `public`, unaltered."""
    body = {name: value for name, value in certificate.items() if name != "signature"}
    try:
        signature = base64.b64decode(str(certificate.get("signature", "")), validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(signature, msgspec.json.encode(body, order="sorted"))
    except (InvalidSignature, ValueError):
        return False
    return True
