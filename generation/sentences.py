"""Sentences of a source with their offsets, in text that may be prose, wrapped lines, lists or rows of a table."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from dataclasses import dataclass

import regex

_LONGEST = 480
_SPLIT_LONG_AT = 160

_ITEM = regex.compile(r"\s*(?:[●○•▪■◦‣·*–—\-]\s|\(?\d{1,3}[.)]\s|\d+(?:\.\d+)+\.?\s|\(?[a-zA-Z][.)]\s|#{1,6}\s)")
_END = regex.compile(r"""[.!?…]+["'”’»)\]]*(?=\s+(?!\p{Ll}))|[。！？；｡]+[」』”’）】]*|[.!?…]+["'”’»)\]]*(?=\p{Lo})""")
_NUMBERED = regex.compile(r"\(?\d{1,3}(?:\.\d+)*[.)]?\s+\p{Lu}|#")
_CLOSED = regex.compile(r"""[.!?…。！？；｡:：]["'”’»)\]」』）】]*$""")
_ABBREVIATION = regex.compile(
    r"(?:^|[\s(])(?:\p{Lu}|(?i:mr|mrs|ms|dr|prof|st|no|nos|vs?|e\.g|i\.e|cf|etc|inc|ltd|co|corp|art|sec|fig|approx|dept|"
    r"bzw|z\.\s?b|u\.s|u\.k|a\.m|p\.m))\.$"
)
_DAY = regex.compile(r"(?:^|[^\d.,])\d{1,2}\.$")
_OF_MONTH = regex.compile(
    r"\s+(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)(?!\p{L})"
)
_BREAKS = regex.compile(r"[;；,，、]\s*|\s+")
_UNMARKED = regex.compile(r"[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_LINE = regex.compile(r"[^\n\r\f\v\x85\u2028\u2029]*\S")
_MARKER = regex.compile(r"(?:[\s●○•▪■◦‣·*–—#|]|-(?=\s))+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """`text == source[start:end]`; `heading` where it looks like a title, `lead` where it announces a list.

    `item` marks an entry of a list. A heading may also be a row of a table, so it is never thrown away.
    """

    start: int
    end: int
    text: str
    heading: bool = False
    lead: bool = False
    item: bool = False


def sentences(text: str) -> list[Sentence]:
    """Split `text`; offsets are into it. White space and list marks at the edges belong to no sentence."""
    return [
        sentence
        for start, end in _blocks(text)
        for sentence in _in_block(text, start, end)
        if any(character.isalnum() for character in sentence.text)
    ]


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """Runs of lines that read on: broken at blank lines, list items, closed lines and lines that stop short."""
    lines = _lines(text)
    width = _wrap_width([end - start for start, end in lines])
    begin: int | None = None
    for at, (start, end) in enumerate(lines):
        if begin is None:
            begin = start
        following = lines[at + 1] if at + 1 < len(lines) else None
        if following is None or _parts(text[start:end], text[slice(*following)], text[end : following[0]], width):
            yield begin, end
            begin = None


def _lines(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _LINE.finditer(text)]


def _wrap_width(lengths: list[int]) -> int:
    """The width at which the source's lines were wrapped, in characters: the 90th percentile of their lengths."""
    ordered = sorted(lengths)
    return ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)] if ordered else 0


def _parts(line: str, following: str, between: str, width: int) -> bool:
    """Whether a unit ends between two lines."""
    if between.count("\n") > 1 or _ITEM.match(following) or _CLOSED.search(line):
        return True
    first = following.lstrip()[0]
    return len(line) < 0.75 * width and not first.islower() and not line.rstrip().endswith((",", "，", "、", "-"))


def _in_block(text: str, start: int, end: int) -> Iterator[Sentence]:
    item = _ITEM.match(text, start, end)
    spans = [piece for span in _closed_spans(text, start, end) for piece in _short_enough(text, *span)]
    for first, last in spans:
        body = _trim(text, first, last)
        if body is None:
            continue
        content = text[slice(*body)]
        lead = content.endswith((":", "：", "?", "？"))
        heading = len(spans) == 1 and len(content) <= 90 and not lead and not _CLOSED.search(content)
        heading = heading and (item is None or bool(_NUMBERED.match(content)))
        yield Sentence(*body, content, heading=heading, lead=lead, item=item is not None)


def _closed_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    for match in _END.finditer(text, start, end):
        if _ABBREVIATION.search(text[begin : match.end()]) and match.group()[0] == ".":
            continue
        if _DAY.search(text[begin : match.end()]) and _OF_MONTH.match(text, match.end(), end):
            continue  # "am 31. März"
        if not any(character.isalpha() for character in text[begin : match.end()]):
            continue  # a number such as "1." opens its sentence
        yield begin, match.end()
        begin = match.end()
    if begin < end:
        yield begin, end


def _short_enough(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut what has no sentence marks, such as Thai, where a comma or a space allows it."""
    if end - start <= _SPLIT_LONG_AT:
        yield start, end
        return
    limit = _SPLIT_LONG_AT if _UNMARKED.search(text, start, end) else _LONGEST
    places = [match.end() for match in _BREAKS.finditer(text, start, end)]
    while end - start > limit:
        index = bisect.bisect_right(places, start + limit) - 1
        cut = places[index] if index >= 0 and places[index] > start else start + limit
        yield start, cut
        start = cut
    yield start, end


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    marker = _MARKER.match(text, start, end)
    start = marker.end() if marker else start
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if end > start else None
