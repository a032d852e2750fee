"""What a key or a token looks like in a record."""

from __future__ import annotations

import re

_PATTERNS = (
    re.compile(rb"sr_[a-z]+_[A-Za-z0-9]+_[A-Za-z0-9_-]{8,}"),  # our own API keys
    re.compile(rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),  # JWT
    re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY"),
    re.compile(rb"(?i)bearer +[A-Za-z0-9._~+/-]{8,}"),
    re.compile(rb"\b(?:sk|ghp|xox[abp]|hf)[-_][A-Za-z0-9-]{16,}"),
    re.compile(rb"\bAKIA[0-9A-Z]{16}\b"),
)


def secrets_in(payload: bytes) -> list[bytes]:
    return [found.group() for pattern in _PATTERNS for found in pattern.finditer(payload)]
