"""What a file's name says where its bytes are no UTF-8: names from older systems keep the encoding of those."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import Final

from tenancy.names import mapped_controls

_CHINESE: Final = "gb18030"
_JAPANESE: Final = "cp932"
_WESTERN: Final = "cp1252"
_PAIRED: Final = re.compile(rb"[\x80-\xff]{2}|[\x80-\xbf]")


def readable(part: str) -> tuple[str, bool]:
    """One part of a path, as the file system gives it, in NFC; and whether its bytes are UTF-8.

    Where they are not, the name is a guess: Chinese, Japanese, or Western European where the bytes look like that, or
    else each byte that is none is written as "\\xff". What nobody sees in a name is written out likewise
    ("\\n", "\\u200b"), and makes the name as uncertain. The same bytes give the same name everywhere.
    """
    try:
        part.encode()
    except UnicodeEncodeError:
        return _written_out(unicodedata.normalize("NFC", _guess(os.fsencode(part)))), False
    name = unicodedata.normalize("NFC", part)
    told = _written_out(name)
    return told, told == name


def _written_out(name: str) -> str:
    return mapped_controls(name, lambda character: character.encode("unicode_escape").decode("ascii"))


def _guess(name: bytes) -> str:
    western = _decoded(name, _WESTERN)
    # Accented letters stand alone between others, while other encodings take two bytes a character.
    if western is not None and not _PAIRED.search(name) and all(_is_plain(character) for character in western):
        return western
    # GB 2312 is the part of the Chinese encoding that everyday names are written in; its bytes are rarely another's.
    if _decoded(name, "gb2312") is not None:
        return name.decode(_CHINESE)
    japanese = _decoded(name, _JAPANESE)
    # Bytes of other encodings read as half-width katakana, which names hardly use.
    if japanese is not None and all(_is_wide(character) for character in japanese if not character.isascii()):
        return japanese
    chinese = _decoded(name, _CHINESE)
    if chinese is not None:
        foreign = [character for character in chinese if not character.isascii()]
        if len(foreign) > 1 and all(_is_wide(character) for character in foreign):
            return chinese
    return name.decode("utf-8", "backslashreplace")


def _decoded(name: bytes, encoding: str) -> str | None:
    try:
        return name.decode(encoding)
    except UnicodeDecodeError:
        return None


def _is_plain(character: str) -> bool:
    return character.isascii() or character.isalpha()


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in {"W", "F"}
