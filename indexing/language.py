"""The language that a document is written in, where its visible text tells it; see `docs/decisions/0021-language.md`.

The model (some 75 MB) is loaded with the first text that is long enough, once for the process, and then only read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from indexing.parse.model import Block, Kind

_PIECES: Final = 12
_PIECE: Final = 256
"""A text is told by so many pieces of it, spread evenly, of so many characters: some 3 ms, however long it is."""
_FEWEST: Final = 20
"""Bytes that the letters of a piece take in UTF-8 at least: 20 letters of Latin, 7 of Chinese."""
_SURE: Final = 0.9
_SHARE: Final = 0.8
"""Of the pieces that tell a language, those that have to tell the same one."""
_NO_LANGUAGE: Final = "zxx"
_PART_OF: Final = {
    "ary": "ar", "arz": "ar", "gug": "gn", "hbo": "he", "kik": "ki", "sdh": "ku", "uzs": "uz", "wuu": "zh", "yue": "zh",
}  # fmt: skip
"""What the model tells apart and ISO 639-1 does not."""


def language_of(text: str, blocks: Sequence[Block] = ()) -> str | None:
    """ISO 639 code of the text's language, the shortest there is ("de"); None where it is short, mixed or no prose.

    Hidden text and code count for nothing.
    """
    pieces = [piece for piece in _pieces(text, _visible(text, blocks)) if _weight(piece) >= _FEWEST]
    votes = Counter(language for piece in pieces for language in _told(piece))
    if votes and len(pieces) == 1:
        # The halves of a short text need not tell anything, but nothing else.
        middle = len(pieces[0]) // 2
        votes.update(_told(pieces[0][:middle]) + _told(pieces[0][middle:]))
    if not votes:
        return None
    language, count = votes.most_common(1)[0]
    told = votes.total()
    return language if count >= _SHARE * told and 2 * told >= len(pieces) and language != _NO_LANGUAGE else None


def _weight(piece: str) -> int:
    return sum(len(mark.encode("utf-8", "replace")) for mark in piece if mark.isalpha())


def _told(piece: str) -> list[str]:
    """The language of a few words, if it is sure."""
    shares: Counter[str] = Counter()
    for language, share in _model().rank(piece):
        shares[_PART_OF.get(language, language)] += share
    language, share = shares.most_common(1)[0]
    return [language] if share >= _SURE else []


@dataclass(frozen=True, slots=True)
class _Visible:
    """The text that a person reads as text, in spans, of which there may be a million: where each starts, and how many
    characters all have up to its end."""

    starts: array[int]
    ends: array[int]


def _visible(text: str, blocks: Sequence[Block]) -> _Visible:
    found = _Visible(array("q"), array("q"))
    at = total = 0

    def take(until: int) -> int:
        if at < until:
            found.starts.append(at)
            found.ends.append(total + until - at)
        return total + max(until - at, 0)

    for block in blocks:
        if block.hidden or block.kind is Kind.CODE:
            total = take(block.start)
            at = block.end
    take(len(text))
    return found


def _pieces(text: str, visible: _Visible) -> Iterator[str]:
    """Of the spans only those are looked at that a piece lies in."""
    starts, ends = visible.starts, visible.ends
    total = ends[-1] if ends else 0
    count = min(_PIECES, -(-total // _PIECE))
    for number in range(count):
        first = number * total // count
        last = min((number + 1) * total // count, first + _PIECE)
        taken = []
        for index in range(bisect_right(ends, first), bisect_left(ends, last) + 1):
            before = ends[index - 1] if index else 0
            start = starts[index] - before
            taken.append(text[start + max(first, before) : start + min(last, ends[index])])
        yield "\n".join(taken)


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
