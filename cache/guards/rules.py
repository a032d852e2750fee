"""The rules of the guards, read from `data/` at import: checked, bounded, and digested into one revision.

A rule decides which answers are served, so evidence about the cache belongs to one revision: `REVISION` names the
state of the code and of every file. A file that is damaged, too large or holds what it must not stops the start.
"""

from __future__ import annotations

import gzip
import hashlib
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tenancy.errors import Corrupt

FOLDER: Final = Path(__file__).parent / "data"
CODE: Final = "guards-6"
"""Raised by hand when the code of a guard decides differently."""
MAX_BYTES: Final = 2 << 20
MAX_WORDS: Final = 100_000
MAX_WORD: Final = 60

T = TypeVar("T")


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Markers, or kinds of one thing: values that exclude one another, each a line of words and phrases."""

    name: str
    values: list[str]
    one_sided: bool = False
    inflected: bool = False


class Bound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands before or behind a number and bounds it."""

    name: str
    hard: bool
    before: str
    behind: str


class English(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    revision: int
    function: str
    foreign: str
    fillers: str
    filler_phrases: list[str]
    negators: str
    weak_negators: str
    negating_phrases: list[str]
    no_negation: list[str]
    antonyms: str
    antonym_groups: list[str]
    opposed_beginnings: str
    plurals: str
    plurals_alone: str
    plurals_of: str
    plurals_mass: str
    confusables: str
    judgements: str
    labelled: str
    symmetric: str
    synonyms: str
    irregular: str
    names: list[str]
    acronyms: str
    numbered: str
    contractions: dict[str, str]
    families: list[Family]
    bounds: list[Bound]
    modality: dict[str, str]
    asks: dict[str, str]


class Chinese(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    revision: int
    fillers: str
    negators: str
    no_negation: str
    no_number: str
    antonyms: str
    synonyms: str
    families: list[Family]


class Values(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`units`: dimension, factor to its base unit, names."""

    revision: int
    units: list[tuple[str, float, str]]
    months: list[str]
    weekdays: list[str]
    numbers: dict[str, int]
    multipliers: dict[str, int]
    suffixes: dict[str, int]
    amount_suffixes: dict[str, int]
    ordinals: dict[str, int]
    times: dict[str, int]
    zh_digits: dict[str, int]
    zh_powers: dict[str, int]
    currencies: dict[str, str]
    cents: dict[str, str]
    zh_relative: dict[str, str]


def read_toml(name: str, kind: type[T], folder: Path = FOLDER) -> T:
    """One file of rules. Raises `Corrupt` where it is damaged, too large, or holds a word that no rule may hold."""
    raw = _bytes(name, folder)
    try:
        rules = msgspec.toml.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"rules of the guards do not parse: {error}", item=name, remedy=_REMEDY) from None
    _check_words(_words(msgspec.to_builtins(rules)), name)
    return rules


def read_lines(name: str, folder: Path = FOLDER) -> list[str]:
    """The lines of a list, without its comments. A `.gz` is unpacked no further than the bound."""
    raw = _bytes(name, folder)
    if name.endswith(".gz"):
        try:
            with gzip.open(folder / name) as packed:
                raw = packed.read(MAX_BYTES + 1)
        except (OSError, EOFError) as error:
            raise Corrupt(f"rules of the guards do not unpack: {error}", item=name, remedy=_REMEDY) from None
        _check_size(raw, name)
    try:
        lines = [line for line in raw.decode().split("\n") if line and not line.startswith("#")]
    except UnicodeDecodeError as error:
        raise Corrupt(f"rules of the guards are not UTF-8: {error}", item=name, remedy=_REMEDY) from None
    _check_words(lines, name)
    return lines


def digest(folder: Path = FOLDER) -> str:
    """12 hex digits over the names and bytes of all files, in the order of their names."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".toml", ".txt", ".gz"):
            content = path.read_bytes()
            found.update(f"{path.name}\0{len(content)}\0".encode())
            found.update(content)
    return found.hexdigest()[:12]


_REMEDY: Final = "install the package again; its files must not be edited in place"


def _bytes(name: str, folder: Path) -> bytes:
    try:
        with (folder / name).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Corrupt(f"rules of the guards are missing: {error.strerror}", item=name, remedy=_REMEDY) from None
    _check_size(raw, name)
    return raw


def _check_size(raw: bytes, name: str) -> None:
    if len(raw) > MAX_BYTES:
        raise Corrupt("rules of the guards are too large", item=name, remedy=_REMEDY)


def _words(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _words(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _words(item)


def _check_words(words: Iterable[str], name: str) -> None:
    """Words in composed form without controls: another form would match nothing and look right."""
    for count, word in enumerate(words, 1):
        if count > MAX_WORDS or len(word) > MAX_WORD:
            raise Corrupt("rules of the guards hold too many words, or too long a one", item=name, remedy=_REMEDY)
        # The first three planes hold what is ASCII; only the rest needs a look.
        if not word.isascii() and (
            unicodedata.normalize("NFC", word) != word
            or any(unicodedata.category(letter) in ("Cc", "Cf") for letter in word)
        ):
            raise Corrupt("rules of the guards hold a word in no composed form", item=name, remedy=_REMEDY)


ENGLISH: Final = read_toml("en.toml", English)
CHINESE: Final = read_toml("zh.toml", Chinese)
VALUES: Final = read_toml("values.toml", Values)
REVISION: Final = f"{CODE}-{digest()}"
