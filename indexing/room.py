"""How much room text takes: in the tokens of the embedding model where it has a tokenizer, and in Latin letters.

A letter of a script that word pieces spell out weighs more: about 4.5 letters of English make one piece of the default
model, but one Chinese character does too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.int64]
TokenStarts = Callable[[str], npt.NDArray[np.int64] | None]
"""The character offsets at which the tokens of a text begin, ascending; None where there is no tokenizer."""

# Weight in Latin letters of the characters of other scripts, by measurement with the default model's tokenizer.
_WEIGHTS: Final = (
    (0x0370, 0x1DFF, 3),  # Greek, Cyrillic, Hebrew, Arabic, Indic, Thai: 1.3 to 1.8 characters a piece
    (0x1F00, 0x1FFF, 3),
    (0x1100, 0x11FF, 4),  # Hangul letters
    (0x2E80, 0xA4CF, 4),  # Chinese, Japanese, Yi: one a piece
    (0xA4D0, 0xABFF, 3),
    (0xAC00, 0xD7AF, 6),  # Hangul syllables, which are taken apart into letters
    (0xF900, 0xFAFF, 4),
    (0xFF00, 0xFFEF, 4),
    (0x1F000, 0x1FAFF, 4),  # emoji
    (0x20000, 0x3FFFF, 4),
)

_PIECE: Final = 16_384
"""Characters that are tokenised at a time: what a tokenizer returns takes some hundred bytes a token."""


def _weight_table() -> npt.NDArray[np.uint8]:
    table = np.ones(0x110000, dtype=np.uint8)
    for first, last, weight in _WEIGHTS:
        table[first : last + 1] = weight
    return table


_TABLE: Final = _weight_table()


def letters(text: str) -> Weights:
    """The weight of each character in Latin letters, at least one: (len(text),)."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    weights: Weights = _TABLE[points].astype(np.int64)
    return weights


def weigh(text: str) -> int:
    """The room that `text` takes, in Latin letters."""
    return int(letters(text).sum())


def tokens(text: str, starts: TokenStarts) -> npt.NDArray[np.uint8] | None:
    """How many tokens begin at each character: (len(text),); None where there is no tokenizer.

    Tokenised piece by piece, each up to white space, which is where tokenizers divide words.
    """
    counts = np.zeros(len(text), dtype=np.uint8)
    begin = 0
    while begin < len(text):
        end = min(begin + _PIECE, len(text))
        if end < len(text):
            blank = max(text.rfind("\n", begin, end), text.rfind(" ", begin, end))
            end = blank if blank > begin else end
        found = starts(text[begin:end])
        if found is None:
            return None
        counts[begin:end] = np.minimum(np.bincount(found, minlength=end - begin), 255)
        begin = end
    return counts
