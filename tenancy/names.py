"""Names that people choose, and the unambiguous encoding of tuples of them."""

from __future__ import annotations

import re
import unicodedata

from tenancy.errors import InvalidInput

MAX_NAME = 200
MAX_DOCUMENT_NAME = 1000
_ABSENT = b"\xff" * 8
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def nfc_name(text: str, kind: str, *, limit: int = MAX_NAME) -> str:
    """Return `text` in NFC, or raise `InvalidInput` where it cannot be a name.

    Two spellings of one name must not become two people, and a control character or a lone surrogate
    must not reach a log, a file name or a terminal.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"a {kind} name must be valid Unicode", item=kind, remedy="remove lone surrogates") from None
    name = unicodedata.normalize("NFC", text)
    if not name or name != name.strip():
        raise InvalidInput(
            f"a {kind} name must not be empty or begin or end with white space", item=kind, remedy="choose another name"
        )
    if len(name) > limit:
        raise InvalidInput(f"a {kind} name has at most {limit} characters, not {len(name)}", item=kind)
    if holds_control(name):
        raise InvalidInput(
            f"a {kind} name must not hold control or format characters", item=kind, remedy="choose a name without them"
        )
    return name


def holds_control(text: str) -> bool:
    """Whether `text` holds a character that writes to a terminal or a log instead of standing in it."""
    return any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in text)


def enc(*parts: bytes | str | None) -> bytes:
    """Encode `parts` so that no two different tuples share an encoding.

    Each part is 8-byte big-endian length, then bytes; strings are NFC and UTF-8. `None` (absent) is the
    length 2**64 - 1 with no bytes, so that absent and empty differ.
    """
    encoded: list[bytes] = []
    for part in parts:
        if part is None:
            encoded.append(_ABSENT)
            continue
        if isinstance(part, str):
            # What is ASCII is in NFC.
            part = (part if part.isascii() else unicodedata.normalize("NFC", part)).encode("utf-8")
        encoded += (len(part).to_bytes(8, "big"), part)
    return b"".join(encoded)


def tenant_name(text: str) -> str:
    """`text` where it is a name of a tenant. Raises `InvalidInput`."""
    if not _TENANT.fullmatch(text):
        raise InvalidInput(
            "a tenant name is 1 to 63 of a-z 0-9 . _ - and begins with a letter or digit", item=text[:100]
        )
    return text
