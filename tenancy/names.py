"""Names that people choose, and the unambiguous encoding of tuples of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

import regex

from tenancy.errors import InvalidInput

MAX_NAME = 200
MAX_DOCUMENT_NAME = 1000
_ABSENT = b"\xff" * 8
_CONTROLS: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# RFC 5892, appendix A: a joiner behind a virama, or a non-joiner between letters that would join; and joiners of emoji.
# Anywhere else they are not seen, and two names would look alike.
_JOINERS: Final = regex.compile(
    r"(?<=\p{ccc=9})(?:\u200d|\u200c(?=\p{L}))"
    r"|(?<=[\p{jt=L}\p{jt=D}]\p{Mn}*)\u200c(?=\p{Mn}*[\p{jt=R}\p{jt=D}])"
    r"|(?<=[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f])\u200d(?=\p{Extended_Pictographic})"
)
_WRITTEN_OUT: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U000([0-9a-f]{5}))")
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def nfc_name(text: str, kind: str, *, limit: int = MAX_NAME) -> str:
    """Return `text` in NFC, or raise `InvalidInput` where it cannot be a name.

    Two spellings of one name must not become two people, and a control character or a lone surrogate
    must not reach a log, a file name or a terminal.
    """
    name = _nfc(text, kind)
    if not name or name != name.strip():
        raise InvalidInput(
            f"a {kind} name must not be empty or begin or end with white space", item=kind, remedy="choose another name"
        )
    return _checked(name, name, kind, limit)


def document_name(text: str, kind: str = "document", *, limit: int = MAX_DOCUMENT_NAME) -> str:
    """As `nfc_name`, for what files are called: blanks at its ends, and joiners where writing needs them, are parts of
    it."""
    name = _nfc(text, kind)
    if not name.strip():
        raise InvalidInput(f"a {kind} name must not be empty or blank", item=kind, remedy="choose another name")
    return _checked(name, _without_joiners(name), kind, limit)


def _nfc(text: str, kind: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"a {kind} name must be valid Unicode", item=kind, remedy="remove lone surrogates") from None
    return unicodedata.normalize("NFC", text)


def _checked(name: str, seen: str, kind: str, limit: int) -> str:
    """`name`, of which `seen` must be nothing that is not seen."""
    if len(name) > limit:
        raise InvalidInput(f"a {kind} name has at most {limit} characters, not {len(name)}", item=kind)
    if holds_control(seen):
        raise InvalidInput(
            f"a {kind} name must not hold control or format characters", item=kind, remedy="choose a name without them"
        )
    return name


def holds_control(text: str) -> bool:
    """Whether `text` holds a character that writes to a terminal or a log instead of standing in it."""
    return any(map(_is_control, text))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in _CONTROLS


def _without_joiners(text: str) -> str:
    return text if text.isascii() else _JOINERS.sub("", text)


def mapped_controls(text: str, replacement: Callable[[str], str]) -> str:
    """`text` with a replacement for each character that no document's name may hold."""
    if text.isprintable():
        return text
    kept = {found.start() for found in _JOINERS.finditer(text)}
    return "".join(
        replacement(character) if _is_control(character) and at not in kept else character
        for at, character in enumerate(text)
    )


def as_seen(path: str) -> str:
    """`path` (parts joined by "/") as somebody reads it: without joiners, format characters that were written out
    ("\\u200b"), and what tells kinds of blanks apart."""
    plain = _WRITTEN_OUT.sub(lambda found: "" if _is_format(found) else found.group(), _without_joiners(path))
    return "/".join(" ".join(part.split()) for part in plain.split("/"))


def _is_format(written_out: re.Match[str]) -> bool:
    digits = next(group for group in written_out.groups() if group is not None)
    return unicodedata.category(chr(int(digits, 16))) == "Cf"


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
