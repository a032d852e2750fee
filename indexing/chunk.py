"""A document's text cut into chunks: passages that fit the embedding window, with exact character offsets.

A chunk ends before a heading, or else after a paragraph, a sentence, a line, a word, whichever of these comes
first in this order in the second half of its room; a text without any of them is cut between characters. Lists, tables
and code are cut between lines. The next chunk begins a little earlier, at a sentence, line or word, so that no
statement is split for good; what it needs to be understood (the headings above it, its table's header) is its context.

At `indexing.anchors` cutting begins anew, so that an edit changes the chunks around it and no others. Room is measured
in tokens of the embedding model, or in Latin letters for a model without a tokenizer (`indexing.room`).
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexing.anchors import anchors
from indexing.cutting import Cutter, Limits
from indexing.outline import PATH_MARK, Outline, Paths
from indexing.parse.model import Block, Place
from indexing.room import TokenStarts, tokens, weigh
from tenancy.errors import InvalidInput

__all__ = [
    "CHUNKER_REVISION",
    "Chunk",
    "Chunking",
    "Ruler",
    "chunk",
    "chunk_key",
    "embedded_text",
    "indexed_text",
    "weigh",
]

CHUNKER_REVISION: Final = "chunk-2"
"""Changes whenever the same file would give other chunks, by parsing or by cutting; documents of another revision are
then read again."""

MIN_TARGET: Final = 64
MIN_TOKENS: Final = 16
_RESERVED: Final = 54
"""Tokens of a window that are not a chunk's: special ones, and those of its context; no more than a quarter of it."""

_MOST: Final = 120
"""Characters of a heading, and of a table's header, that are embedded."""

_SPARSE: Final = 2
"""Where tokens decide, a chunk has no more than so many times the letters: a word without end may be one token."""


_HEADED = re.compile(r"#{1,6} ")


@dataclass(frozen=True, slots=True)
class Chunking:
    """Room of a chunk (`target`), and what it repeats of the one before (`overlap`).

    In tokens for a model that has a tokenizer, as far as its window has room for them; otherwise in Latin letters.
    """

    target_chars: int = 900
    overlap_chars: int = 120
    target_tokens: int = 200
    overlap_tokens: int = 26

    def __post_init__(self) -> None:
        for unit, least in (("chars", MIN_TARGET), ("tokens", MIN_TOKENS)):
            target, overlap = getattr(self, f"target_{unit}"), getattr(self, f"overlap_{unit}")
            if target < least:
                raise InvalidInput(f"must be at least {least}", item=f"target_{unit}")
            if not 0 <= overlap <= target // 4:
                raise InvalidInput(f"must be from 0 to a quarter of target_{unit}", item=f"overlap_{unit}")


@dataclass(frozen=True, slots=True)
class Ruler:
    """The embedding model's tokens: `starts` finds them, its window holds `window` of them, special ones included."""

    starts: TokenStarts
    window: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text` is the document's text from `start` to `end`, in characters; `heading` is the nearest one above.

    `key` names it within its document: a hash of its text, and the how-manieth of that text it is. `context` are the
    headings above it and its table's header, `place` is where it begins ("page 3"), `turns` are the places that begin
    inside of it, `hidden` says that a person who opens the file does not see it.
    """

    ordinal: int
    start: int
    end: int
    text: str
    heading: str | None = None
    key: str | None = None
    context: str | None = None
    place: str | None = None
    turns: tuple[Place, ...] = ()
    hidden: bool = False


def chunk(
    text: str,
    window: Chunking | None = None,
    *,
    blocks: Sequence[Block] = (),
    places: Sequence[Place] = (),
    ruler: Ruler | None = None,
) -> list[Chunk]:
    """Cut `text`. Every character that is not white space is in some chunk; blank text gives none.

    Linear in the length of the text, whatever is in it, and the same for the same text on every machine.
    """
    window = window or Chunking()
    counted = None if ruler is None else tokens(text, ruler.starts)
    limits = _limits(window, None if counted is None else ruler)
    outline = Outline.of(text, blocks)
    starts = [heading.start for heading in outline.headings]
    begins = anchors(
        text,
        starts,
        outline.walls,
        window.target_chars,
        lambda begin, end: _room(text[begin:end]),
        lambda position: outline.line_block(position) is not None,
    )
    spans = Cutter(text, outline, begins, limits, counted).spans()
    paths, seen = Paths(outline.headings), Counter[str]()
    chunks = []
    for ordinal, (start, end) in enumerate(spans):
        piece = text[start:end]
        key = chunk_key(piece)
        seen[key] += 1
        context = "\n".join(filter(None, (paths.above(start), outline.header(start))))
        chunks.append(
            Chunk(
                ordinal,
                start,
                end,
                piece,
                heading=outline.nearest(start),
                key=key if seen[key] == 1 else f"{key}-{seen[key]}",
                context=context or None,
                place=_place_at(places, start),
                turns=_inside(places, start, end),
                hidden=outline.is_hidden(start, end),
            )
        )
    return chunks


def embedded_text(text: str, context: str | None) -> str:
    """What the embedding model reads of a chunk: the nearest heading above and the table's header come first.

    Not all headings above: an edit of the topmost one would embed the whole document again.
    """
    if context is None or _HEADED.match(text):
        return text
    path, _, header = context.partition("\n")
    parts = (path.rpartition(PATH_MARK)[2], header)
    return "\n".join([*(part[:_MOST] for part in parts if part), text])


def indexed_text(text: str, context: str | None) -> str:
    """What the words of a chunk are taken from."""
    return text if context is None else f"{context}\n{text}"


def chunk_key(text: str) -> str:
    """The name of the first chunk of this text in a document: 128 bits of its SHA-256, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _limits(window: Chunking, ruler: Ruler | None) -> Limits:
    if ruler is None:
        return Limits(window.target_chars, window.overlap_chars, window.target_tokens, window.overlap_tokens)
    room = max(MIN_TOKENS, min(window.target_tokens, ruler.window - min(_RESERVED, ruler.window // 4)))
    overlap = min(window.overlap_tokens, room // 4)
    return Limits(_SPARSE * window.target_chars, _SPARSE * window.overlap_chars, room, overlap)


def _room(text: str) -> int:
    return len(text) if text.isascii() else weigh(text)


def _place_at(places: Sequence[Place], position: int) -> str | None:
    found = bisect_right(places, position, key=lambda place: place.start) - 1
    return places[found].label if found >= 0 else None


def _inside(places: Sequence[Place], start: int, end: int) -> tuple[Place, ...]:
    first = bisect_right(places, start, key=lambda place: place.start)
    return tuple(places[first : bisect_left(places, end, key=lambda place: place.start)])
