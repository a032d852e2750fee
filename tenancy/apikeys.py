"""API keys: `sr_<env>_<key id>_<secret>_<checksum>`.

The key id names a row of the control plane, the secret is 200 random bits shown once, and only its keyed hash is
stored. The checksum (CRC-32) tells a mistyped key offline, before any database read; it protects nothing. `env`
("live", "test") is for people and secret scanners.

Everything after `sr_<env>_` is Crockford base32 in lower case: no letter that looks like a digit.
"""

from __future__ import annotations

import hmac
import re
import secrets
import zlib
from dataclasses import dataclass, field
from typing import Final

from tenancy.errors import InvalidInput, Unauthenticated
from tenancy.keys import keyed_hash

PREFIX: Final = "sr"
KEY_ID_LENGTH: Final = 16
SECRET_LENGTH: Final = 40
CHECKSUM_LENGTH: Final = 7
MAX_KEY_LENGTH: Final = 128

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_ENVIRONMENT: Final = re.compile(r"[a-z0-9]{1,16}")
_KEY_ID: Final = re.compile(f"[{_ALPHABET}]{{{KEY_ID_LENGTH}}}")
_SECRET: Final = re.compile(f"[{_ALPHABET}]{{{SECRET_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A new key. `secret` and `text` exist only here: show `text` once, store `hash_secret(...)`."""

    key_id: str
    secret: str = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ParsedKey:
    """A well-formed key, not yet verified."""

    env: str
    key_id: str
    secret: str = field(repr=False)


def mint(env: str = "live", key_id: str | None = None) -> MintedKey:
    """Make a new key, or, with `key_id`, another secret of an existing key (rotation)."""
    if _ENVIRONMENT.fullmatch(env) is None:
        raise InvalidInput("a key environment is 1 to 16 lower-case letters and digits", item="env")
    if key_id is None:
        key_id = _random(KEY_ID_LENGTH)
    elif _KEY_ID.fullmatch(key_id) is None:
        raise InvalidInput("this is not a key id", item="key", remedy="list keys with `strongroom key list`")
    secret = _random(SECRET_LENGTH)
    body = f"{PREFIX}_{env}_{key_id}_{secret}"
    return MintedKey(key_id=key_id, secret=secret, text=f"{body}_{_checksum(body)}")


def parse(text: str) -> ParsedKey:
    """Split a key and check its form and checksum, offline. Raises `Unauthenticated` without quoting it."""
    if len(text) > MAX_KEY_LENGTH:
        raise _malformed("it is too long")
    parts = text.split("_")
    if len(parts) != 5 or parts[0] != PREFIX:
        raise _malformed("it does not have the form sr_<env>_<key id>_<secret>_<checksum>")
    _, env, key_id, secret, checksum = parts
    if not (_ENVIRONMENT.fullmatch(env) and _KEY_ID.fullmatch(key_id) and _SECRET.fullmatch(secret)):
        raise _malformed("a part has the wrong length or a character that keys do not use")
    if checksum != _checksum(text.rpartition("_")[0]):
        raise _malformed("its checksum does not match, so a character was mistyped or lost")
    return ParsedKey(env=env, key_id=key_id, secret=secret)


def hash_secret(server_key: bytes, key_id: str, secret: str) -> bytes:
    """The keyed hash to store (HMAC-SHA256, 32 bytes), bound to the key id.

    No slow password hash: the secret is 200 uniformly random bits, so there is nothing to guess.
    """
    return keyed_hash(server_key, "api-key", key_id, secret)


def matches(stored: bytes, presented: bytes) -> bool:
    """Compare two results of `hash_secret` in constant time."""
    return hmac.compare_digest(stored, presented)


def _malformed(why: str) -> Unauthenticated:
    return Unauthenticated(
        f"the API key is malformed: {why}", remedy="copy the whole key again, as it was shown when it was created"
    )


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def _checksum(body: str) -> str:
    value = zlib.crc32(body.encode("ascii"))
    return "".join(_ALPHABET[(value >> shift) & 31] for shift in range(5 * (CHECKSUM_LENGTH - 1), -1, -5))
