"""Offsets at which chunking begins anew, chosen by the text around them alone (content-defined chunking).

An edit therefore changes no chunk behind the next anchor: what lies there is cut as before, and keeps its vectors.
The idea is that of low-bandwidth file systems (Muthitacharoen, Chen and Mazieres 2001, section 3), where the content of
a window decides; here the candidates are where people would break, and one is chosen by a checksum of what follows it,
the likelier the longer the text before it, so that some `SPACING` chunks lie between two anchors whatever the text is
made of. A heading is one whenever the section before it is worth a chunk.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from zlib import crc32

SPACING: Final = 4
"""Chunks between two anchors, on average, where no heading decides."""

_LOOKED_AT: Final = 48
"""Characters behind a candidate that its checksum is of."""

_PARAGRAPH: Final = re.compile(r"\n\s*\n\s*")
_LINE: Final = re.compile(r"\n\s*")
_SENTENCE: Final = re.compile(r"""(?:[.!?…]["'”’)\]]*\s+|[。！？｡．؟।۔]["'”’）」』】]*\s*)""")
_WORD: Final = re.compile(r"\s+")

Room = Callable[[int, int], int]
"""The Latin letters from one offset to another."""


def anchors(
    text: str, headings: Sequence[int], walls: Sequence[int], target: int, room: Room, whole: Callable[[int], bool]
) -> list[int]:
    """The anchors of `text`, ascending; `headings` and `walls` are offsets, `target` the letters of a chunk.

    `whole` says whether an offset lies in a block that lines alone divide.
    """
    fixed = sorted({*_heading_anchors(text, headings, target, room), *walls})
    found = set(fixed)
    # A paragraph close to a heading does not part: one of them would be left with next to nothing.
    near = sorted({*fixed, *headings, len(text)})
    before = last = 0
    for at in _candidates(text, target, whole):
        length, before = room(before, at), at
        if _chosen(text, at, length, SPACING * target):
            place = bisect_left(near, at)
            after = near[place] if place < len(near) else len(text)
            last = max(last, near[place - 1] if place else 0)
            # No more letters are looked at than decide.
            behind, ahead = room(max(last, at - target), at), room(at, min(after, at + target))
            if 2 * min(behind, ahead) >= target:
                found.add(at)
                last = at
    return sorted(found)


def _heading_anchors(text: str, headings: Sequence[int], target: int, room: Room) -> Iterator[int]:
    before = since = 0
    for at in headings:
        length, before = room(before, at), at
        since += length
        if 2 * length >= target or (4 * since >= target and _chosen(text, at, length, target)):
            yield at
            since = 0


def _chosen(text: str, at: int, length: int, spacing: int) -> bool:
    """Whether the checksum of what stands at `at` says so: for `length` in `spacing` of all texts."""
    checksum = crc32(text[at : at + _LOOKED_AT].encode("utf-8", "surrogatepass"))
    return length << 32 > checksum * spacing


def _candidates(text: str, target: int, whole: Callable[[int], bool]) -> Iterator[int]:
    """Where people would break: before paragraphs, and inside of those that are longer than a chunk."""
    begin = 0
    for end, following in _divided(text, 0, len(text), _PARAGRAPH):
        yield from _inside(text, begin, end, target, (_LINE,) if whole(begin) else (_LINE, _SENTENCE, _WORD))
        if following < len(text):
            yield following
        begin = following


def _inside(text: str, begin: int, end: int, target: int, patterns: Sequence[re.Pattern[str]]) -> Iterator[int]:
    if end - begin <= target or not patterns:
        return
    start = begin
    for stop, following in _divided(text, begin, end, patterns[0]):
        yield from _inside(text, start, stop, target, patterns[1:])
        if following < end:
            yield following
        start = following


def _divided(text: str, begin: int, end: int, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Each part's end, and where the next one begins."""
    for match in pattern.finditer(text, begin, end):
        yield match.start(), match.end()
    yield end, end
