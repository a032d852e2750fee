"""Passages that say the same in the same words, as copies and versions of one document do, give way to others.

Two passages are near-duplicates where they share nearly all of their runs of three words (Broder, "On the resemblance
and containment of documents", 1997) and all of their numbers: two years' versions of one rule differ in a number
alone, and that is what is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

from retrieval.passage import Passage

DUPLICATES_REVISION: Final = "spread-1"
"""Changes whenever equal passages would come in another order; part of a cache namespace."""

ALIKE: Final = 0.9
"""Least share of common runs, of the runs of either, of near-duplicates."""

_RUN: Final = 3
_TOKEN = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|[\p{L}\p{M}\p{N}]+")
_DIGITS = regex.compile(r"\p{N}")


@dataclass(frozen=True, slots=True)
class _Print:
    runs: frozenset[tuple[str, ...]]
    numbers: Counter[str]

    def alike(self, other: _Print) -> bool:
        if self.numbers != other.numbers:
            return False
        smaller, larger = sorted((len(self.runs), len(other.runs)))
        if smaller < ALIKE * larger:
            return False
        common = len(self.runs & other.runs)
        return common >= ALIKE * (smaller + larger - common)


def spread(passages: Sequence[Passage], top_k: int) -> list[Passage]:
    """The first `top_k` of `passages`, which are in order, where near-duplicates of better ones come last.

    None is dropped while there is room for it: if `top_k` passages are there, `top_k` come back.
    """
    kept: list[Passage] = []
    prints: list[_Print] = []
    copies: list[Passage] = []
    for passage in passages:
        if len(kept) == top_k:
            break
        found = _print(passage.text)
        if any(found.alike(other) for other in prints):
            copies.append(passage)
        else:
            kept.append(passage)
            prints.append(found)
    return [*kept, *copies][:top_k]


def _print(text: str) -> _Print:
    tokens = _TOKEN.findall(text.casefold())
    runs = frozenset(zip(*(tokens[at:] for at in range(_RUN)), strict=False)) or frozenset({tuple(tokens)})
    return _Print(runs, Counter(token for token in tokens if _DIGITS.search(token)))
