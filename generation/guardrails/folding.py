"""Text as it is compared, and where each of its characters came from.

Compatibility forms (NFKC: full-width digits, ligatures, composed umlauts) and capitals are made plain, dashes and
apostrophes are one each, and characters that nobody sees are left out: a phrase with a zero-width space in it is that
phrase.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

UNSPACED: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
"""Scripts that write words without spaces between them, or particles right behind them."""

_PLAIN: Final = regex.compile(r"[\t\n\r\f\v\x20-\x7e]*")
_UNSEEN: Final = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Me}\x00-\x08\x0e-\x1f\x7f]")
# A character with the marks that belong to it (UAX 29), so that both are normalised as one.
_CLUSTER: Final = regex.compile(r"\X")
_ALIKE: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-") | {"\u2019": "'"})


@dataclass(frozen=True, slots=True)
class Folded:
    """`text[i]` was made of `raw[starts[i]:ends[i]]`. `sure` is how much of `text` no further characters of the raw
    text can change: all but its last cluster.
    """

    text: str
    starts: Sequence[int]
    ends: Sequence[int]
    sure: int
    length: int

    def raw_start(self, at: int) -> int:
        """Where the character at `at` begins in the raw text; at the end of the text, the raw text's end."""
        return self.starts[at] if at < len(self.text) else self.length

    def raw_end(self, at: int) -> int:
        """Where what stands before `at` ends in the raw text."""
        return self.ends[at - 1] if at else 0


def fold(raw: str) -> Folded:
    if _PLAIN.fullmatch(raw):
        length = len(raw)
        return Folded(raw.lower(), range(length), range(1, length + 1), max(0, length - 1), length)
    places = [at for at in range(len(raw)) if not _UNSEEN.match(raw, at)]
    seen = "".join(raw[at] for at in places)
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    sure = 0
    for cluster in _CLUSTER.finditer(seen):
        plain = _plain(cluster.group())
        sure = len(starts)
        pieces.append(plain)
        starts += [places[cluster.start()]] * len(plain)
        ends += [places[cluster.end() - 1] + 1] * len(plain)
    return Folded("".join(pieces), starts, ends, sure, len(raw))


def _plain(cluster: str) -> str:
    folded = unicodedata.normalize("NFKC", cluster).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_ALIKE)
