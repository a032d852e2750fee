"""What a parser takes and gives."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Protocol

from indexing.parse.failure import ParseFailure

Scalar = str | int | float | bool

UNCERTAIN_ENCODING: Final = "uncertain_encoding"
"""The character set was guessed, or does not fit every byte."""
HIDDEN_TEXT: Final = "hidden_text"
"""Some text is invisible to a person who opens the file: kept, but it may be an injection."""
PAGES_WITHOUT_TEXT: Final = "pages_without_text"
"""Some pages hold images only, or could not be read."""
RECOGNISED_TEXT: Final = "recognised_text"
"""Some pages are pictures whose text a program recognised and nobody compared with what is to be seen."""
ATTACHMENTS_NOT_READ: Final = "attachments_not_read"
"""Files embedded in the file are not part of the text."""
FORMULAS_NOT_COMPUTED: Final = "formulas_not_computed"
"""Some cells of a spreadsheet have a formula and no value, since no program calculated it: the formula is the text."""
UNBALANCED_QUOTES: Final = "unbalanced_quotes"
"""Quotes of a CSV file do not pair up; they were taken as plain characters."""
INCONSISTENT_COLUMNS: Final = "inconsistent_columns"
"""Some rows have more cells than the header."""
EMBEDDED_DATA_REMOVED: Final = "embedded_data_removed"
"""Binary data written as base64 in the text (an image, mostly) was left out."""
MALFORMED_PARTS: Final = "malformed_parts"
"""A minor part of the file (a header, a footnote) could not be read."""

INCOMPLETE: Final = frozenset({PAGES_WITHOUT_TEXT, ATTACHMENTS_NOT_READ, FORMULAS_NOT_COMPUTED, MALFORMED_PARTS})
"""The warnings that say that something of the file is missing in the text; ":" and a detail may follow one."""

MAX_TITLE: Final = 300

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_LINE_ENDS = re.compile(r"\r\n?")
# Unicode tag characters are invisible and spell ASCII; only flag emoji use them, after U+1F3F4.
_SMUGGLED = re.compile(r"(?<![\U0001F3F4\U000E0020-\U000E007F])[\U000E0020-\U000E007F]")


@dataclass(frozen=True, slots=True)
class ParseLimits:
    """Bounds on one file, so that no input exhausts the machine.

    `max_bytes` bounds the file, `max_expanded_bytes` what an archive-based format unpacks to,
    `max_xml_bytes` one XML part of it, `max_characters` the text, `max_children` the lines of a file that are
    documents of their own, each of which takes some 5 KB of memory. `seconds` bounds the formats whose parsing time
    does not follow from their size; it is checked between pages. For the files within a file (attachments, members of
    an archive) these bounds hold for the whole tree of them, and `max_depth` says how deep it may be.
    """

    max_bytes: int = 64 * 2**20
    max_expanded_bytes: int = 256 * 2**20
    max_xml_bytes: int = 32 * 2**20
    max_characters: int = 32 * 2**20
    max_children: int = 100_000
    max_depth: int = 8
    seconds: float = 120.0


class Nest(Protocol):
    """Reads the files within a file, under bounds on the whole tree of them; see `indexing.parse.nesting`."""

    def over(self, size: int) -> ParseFailure | None:
        """Why a file of `size` bytes would not be read, so that nobody unpacks it; None where it would."""

    def read(
        self, suffix: str, name: str, data: bytes, media_type: str | None = None, charset: str | None = None
    ) -> list[ParseResult]:
        """What is in the file `name`; a failure is among the results. Suffixes begin with `suffix` ("#member/a.txt").
        No result has an access list of its own: it stands under that of the whole file. Raises `ParseFailure`
        ("too_large") where there are more files in the whole tree than `ParseLimits.max_children`."""

    def refuse(self, suffix: str, failure: ParseFailure) -> list[ParseResult]:
        """A file that is not even tried; named and counted like the others."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file. `charset` is what its transport declared, if anything; `nest` None: files within it are not read."""

    name: str
    data: bytes
    charset: str | None = None
    nest: Nest | None = field(default=None, repr=False, compare=False)


class Kind(StrEnum):
    """What a block of a document's text is. Headings are also written as "# ..." in the text."""

    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LIST = "list"
    TABLE = "table"
    CODE = "code"
    HEADER = "header"
    FOOTER = "footer"
    FOOTNOTE = "footnote"
    COMMENT = "comment"
    NOTES = "notes"


@dataclass(frozen=True, slots=True)
class Block:
    """The text from `start` to `end` (characters) is of one kind.

    `level` is that of a heading, from 1 on. `header` are the first row's cells of a table, as its text has them, which
    every row needs to be understood. `hidden`: a person who opens the file does not see it.
    """

    start: int
    end: int
    kind: Kind
    level: int = 0
    header: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """From the character `start` on, up to the next place: where a person finds it, "page 3", "slide 2",
    "sheet Costs!A2:F40"."""

    start: int
    label: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The text of one document. Character offsets of chunks and citations refer to `text`.

    `blocks` are in order, do not overlap, and need not cover the text; `places` are in order. Both are empty where the
    format has none; `indexing.parse.building` makes them.

    `suffix` makes the name of a child ("#row-3") from the name of its file, and is empty otherwise.
    `allow` and `deny` are labels that the child itself carries; None where it says nothing. `source`
    holds a child's own bytes, the basis of its version; None means the whole file.
    """

    text: str
    title: str | None
    media_type: str
    warnings: tuple[str, ...] = ()
    metadata: dict[str, Scalar] = field(default_factory=dict)
    suffix: str = ""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None
    source: bytes | None = field(default=None, repr=False)
    blocks: tuple[Block, ...] = field(default=(), repr=False)
    places: tuple[Place, ...] = field(default=(), repr=False)


ParseResult = Parsed | ParseFailure


def clean(text: str) -> str:
    """Normalise line ends to LF, drop control characters (NUL first), replace lone surrogates by U+FFFD."""
    text = _LINE_ENDS.sub("\n", text) if "\r" in text else text
    text = text.replace("\f", "\n") if "\f" in text else text
    text = _CONTROLS.sub("", text)
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text).removeprefix("\ufeff")


def finish(parsed: Parsed) -> ParseResult:
    """The last step of every parser: clean text and title, flag smuggled characters, refuse blank text.

    Raises `ValueError` for blocks or places whose text was not cleaned before they were measured.
    """
    text = clean(parsed.text)
    if (parsed.blocks or parsed.places) and text != parsed.text:
        raise ValueError("blocks and places refer to the clean text")
    if not text or text.isspace():
        return ParseFailure("empty", "holds no text", remedy="remove the file, or put text in it", suffix=parsed.suffix)
    warnings = set(parsed.warnings)
    if not text.isascii() and _SMUGGLED.search(text):
        warnings.add(HIDDEN_TEXT)
    title = " ".join(clean(parsed.title or "").split())[:MAX_TITLE].rstrip() or None
    return replace(parsed, text=text, title=title, warnings=tuple(sorted(warnings)))
