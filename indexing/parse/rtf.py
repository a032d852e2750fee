"""RTF 1.9.1: one pass over its groups and control words, with headings, lists, tables, notes and hidden text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    HIDDEN_TEXT,
    MALFORMED_PARTS,
    UNCERTAIN_ENCODING,
    Kind,
    Parsed,
    ParseLimits,
    ParseResult,
    Source,
    finish,
)
from indexing.parse.rtf_flow import Flow
from indexing.parse.rtf_words import (
    BREAKS,
    CHARSETS,
    DESTINATIONS,
    DOCUMENT_CHARSETS,
    EMBEDDED,
    MARGINS,
    NOTES,
    SKIPPED,
    STARRED,
    SYMBOLS,
    TABLES,
    TOKEN,
    code_page,
)

MEDIA_TYPE: Final = "application/rtf"
START: Final = b"{\\rtf"

_MAX_DEPTH: Final = 1_000
_LOOK_AT_CLOCK: Final = 20_000
_TINY_HALF_POINTS: Final = 4
_BODY_LEVEL: Final = 9
_SKIP: Final = "skip"


def read_rtf(source: Source, limits: ParseLimits) -> list[ParseResult]:
    """Raises `ParseFailure`: corrupt, no_text, too_large (size, depth or time)."""
    data = source.data.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not data.startswith(START):
        raise ParseFailure("corrupt", "is not an RTF file", remedy="check the file and its extension")
    reader = _Reader(limits)
    reader.read(data)
    return [reader.finished()]


@dataclass(frozen=True, slots=True)
class _State:
    """What a group inherits from the one around it, and what ends with it.

    `group` is a destination that is no text ("skip", "fonttbl", "stylesheet", "info", "title", "upr"). `fallback` says
    how many characters after a `\\u` are for readers without Unicode. `level` is an outline level, from 0 on.
    """

    flow: Flow
    group: str = ""
    charset: str | None = None
    fallback: int = 1
    hidden: bool = False
    tiny: bool = False
    deleted: bool = False
    in_table: bool = False
    level: int = _BODY_LEVEL
    style: int = 0


class _Reader:
    def __init__(self, limits: ParseLimits) -> None:
        self._limits = limits
        self._warnings: set[str] = set()
        self._body = Flow(Kind.PARAGRAPH)
        self._margins: dict[tuple[Kind, str], None] = {}
        self._state = _State(self._body)
        self._stack: list[_State] = []
        self._pending = bytearray()
        self._size = 0
        self._skip = 0
        self._opened = self._starred = self._listed = False
        self._default = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._headings: dict[int, int] = {}
        self._name: list[str] = []
        self._title: list[str] = []
        self._handlers: dict[str, Callable[[int | None], None]] = {
            "u": self._unicode,
            "uc": lambda number: self._set(fallback=min(max(number or 0, 0), 10)),
            "v": lambda number: self._set(hidden=number != 0),
            "deleted": lambda number: self._set(deleted=number != 0),
            "fs": lambda number: self._set(tiny=0 < (24 if number is None else number) <= _TINY_HALF_POINTS),
            "plain": lambda _: self._set(hidden=False, tiny=False, deleted=False, charset=None),
            "pard": lambda _: self._set(in_table=False, level=_BODY_LEVEL, style=0),
            "intbl": lambda _: self._set(in_table=True),
            "outlinelevel": lambda number: self._set(level=min(max(number or 0, 0), _BODY_LEVEL)),
            "s": lambda number: self._set(style=number or 0),
            "f": self._use_font,
            "fcharset": self._font_charset,
            "cpg": self._font_page,
            "ansicpg": self._document_page,
            **{name: self._document_charset(codec) for name, codec in DOCUMENT_CHARSETS.items()},
        }

    def read(self, data: bytes) -> None:
        """Raises `ParseFailure` ("too_large")."""
        deadline = time.monotonic() + self._limits.seconds
        position = count = 0
        while found := TOKEN.match(data, position):
            position = found.end()
            count += 1
            if count % _LOOK_AT_CLOCK == 0 and time.monotonic() > deadline:
                raise ParseFailure(
                    "too_large", f"takes more than {self._limits.seconds:.0f} s to read", remedy="split the file"
                )
            word, number, byte, symbol, brace, text = found.groups()
            if word == b"bin":
                position += max(int(number or 0), 0)
            elif word is not None:
                self._word(word.decode("ascii"), int(number) if number else None)
            elif text is not None:
                self._bytes(text)
            elif byte is not None:
                self._bytes(bytes([int(byte, 16)]))
            elif brace == b"{":
                self._open()
            elif brace is not None:
                self._close()
                if not self._stack:
                    return  # the document's own group has ended
            elif symbol is not None:
                self._symbol(symbol.decode("latin-1"))
        self._warnings.add(MALFORMED_PARTS)  # cut off; what it says so far stays
        while self._stack:
            self._close()

    def finished(self) -> ParseResult:
        building = Building(self._limits.max_characters)
        for piece in self._body.pieces():
            building.add(piece.text, piece.kind, level=piece.level, header=piece.header, hidden=piece.hidden)
        for kind, text in self._margins:
            building.add(text, kind)
        if building.is_empty:
            return ParseFailure("no_text", "holds no text, only pictures or nothing", remedy="add the text itself")
        if building.hidden:
            self._warnings.add(HIDDEN_TEXT)
        title = "".join(self._title)
        return finish(Parsed(building.text(), title, MEDIA_TYPE, tuple(self._warnings), blocks=building.blocks()))

    def _open(self) -> None:
        self._decode()
        if len(self._stack) >= _MAX_DEPTH:
            raise ParseFailure("too_large", f"has groups more than {_MAX_DEPTH} deep", remedy="save it as DOCX")
        self._stack.append(self._state)
        self._opened, self._starred = True, False

    def _close(self) -> None:
        self._decode()
        if not self._stack:
            return
        ended, self._state = self._state, self._stack.pop()
        self._skip = 0
        self._opened = False
        if ended.group == "stylesheet":
            self._end_style(ended.style)
        if ended.flow is self._state.flow:
            return
        if ended.flow.kind in {Kind.HEADER, Kind.FOOTER}:
            text = "\n".join(piece.text for piece in ended.flow.pieces())
            self._margins.setdefault((ended.flow.kind, text))
        else:
            self._state.flow.note(ended.flow)

    def _word(self, word: str, number: int | None) -> None:
        opened, starred = self._opened, self._starred
        self._decode()
        self._opened = self._starred = False
        if word in EMBEDDED:
            self._warnings.add(ATTACHMENTS_NOT_READ)
        if self._state.group == _SKIP:
            return
        if opened and (starred or word in DESTINATIONS):
            self._enter(word, starred=starred)
        elif word in SYMBOLS:
            self._text(SYMBOLS[word])
        elif word in BREAKS:
            self._break()
        elif word in TABLES:
            if not self._state.group:
                self._state.flow.end_cell() if word.endswith("cell") else self._state.flow.end_row()
        elif word in self._handlers:
            self._handlers[word](number)

    def _symbol(self, symbol: str) -> None:
        if symbol == "*" and self._opened:
            self._starred = True
            return
        self._decode()
        self._opened = False
        if symbol in BREAKS:
            self._break()
        elif symbol in SYMBOLS:
            self._text(SYMBOLS[symbol])

    def _enter(self, word: str, *, starred: bool) -> None:
        """Begin the destination that the group just opened is."""
        if word in NOTES or word in MARGINS:
            kind = NOTES.get(word) or (Kind.HEADER if word.startswith("header") else Kind.FOOTER)
            self._state = replace(self._state, flow=Flow(kind), in_table=False, level=_BODY_LEVEL, style=0)
        elif word in {"listtext", "pntext"}:
            self._listed = True
            self._set(group=_SKIP)
        elif word in {"fonttbl", "stylesheet", "info"} or (word == "title" and self._state.group == "info"):
            self._set(group=word)
        elif word == "upr":
            self._set(group=word)  # two forms of one text, of which that in Unicode is read
        elif word == "ud" and self._state.group == "upr":
            self._set(group="")
        elif word in SKIPPED or (starred and word not in STARRED):
            self._set(group=_SKIP)

    def _bytes(self, data: bytes) -> None:
        self._opened = self._starred = False
        if self._skip:
            taken = min(self._skip, len(data))
            self._skip -= taken
            data = data[taken:]
        if data and self._state.group != _SKIP:
            # A character of two bytes may come in two tokens, so that all wait for what ends the text.
            self._pending += data

    def _decode(self) -> None:
        if not self._pending:
            return
        data = bytes(self._pending)
        self._pending.clear()
        try:
            text = data.decode(self._state.charset or self._default)
        except UnicodeDecodeError:
            text = data.decode("cp1252", "replace")
            self._warnings.add(UNCERTAIN_ENCODING)
        self._text(text)

    def _text(self, text: str) -> None:
        state = self._state
        if state.group == "stylesheet":
            self._name.append(text)
        elif state.group == "title":
            self._title.append(text)
        elif not state.group and not state.deleted:
            self._size += len(text)
            if self._size > self._limits.max_characters:
                raise ParseFailure(
                    "too_large", f"holds more than {self._limits.max_characters} characters", remedy="split the file"
                )
            state.flow.text(text, hidden=state.hidden or state.tiny)

    def _break(self) -> None:
        state = self._state
        if state.in_table and not state.group:
            self._text("\n")
        elif not state.group:
            level = min(state.level, self._headings.get(state.style, _BODY_LEVEL))
            state.flow.end_paragraph(level + 1 if level < _BODY_LEVEL else 0, listed=self._listed)
            self._listed = False

    def _set(self, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]

    def _unicode(self, number: int | None) -> None:
        self._text(chr((number or 0) & 0xFFFF))
        self._skip = self._state.fallback

    def _use_font(self, number: int | None) -> None:
        self._font = number or 0
        if self._state.group != "fonttbl":
            self._set(charset=self._fonts.get(self._font))

    def _font_charset(self, number: int | None) -> None:
        if self._state.group == "fonttbl" and number in CHARSETS:
            self._fonts.setdefault(self._font, CHARSETS[number])

    def _font_page(self, number: int | None) -> None:
        codec = code_page(number or 0)
        if self._state.group == "fonttbl" and codec is not None:
            self._fonts[self._font] = codec

    def _document_page(self, number: int | None) -> None:
        self._default = code_page(number or 0) or self._default

    def _document_charset(self, codec: str) -> Callable[[int | None], None]:
        def use(_: int | None) -> None:
            self._default = codec

        return use

    def _end_style(self, number: int) -> None:
        """A style of the sheet: paragraphs of "heading 1" are headings."""
        name = "".join(self._name).strip().rstrip(";").strip().lower()
        self._name.clear()
        level = name.removeprefix("heading ") if name.startswith("heading ") else "1" if name == "title" else ""
        if level.isdecimal() and 1 <= int(level) <= 9:
            self._headings[number] = int(level) - 1
