"""What is known about single English words: how rare they are, and how two of them relate.

Read from `data/thesaurus.json.gz` (WordNet 3.1 and the vocabulary of the embedding model, see
`benchmarks/build_thesaurus.py`). A word that is not in it has no relations and counts as the rarest.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Final

PATH: Final = Path(__file__).parent / "data" / "thesaurus.json.gz"
_NONE: Final[frozenset[int]] = frozenset()


class Relation(IntEnum):
    """From the closest to none; sisters are two kinds of one thing ("rice", "quinoa")."""

    SYNONYM = 0
    DERIVED = 1
    BROADER = 2
    SISTER = 3
    OPPOSITE = 4
    NONE = 5


@dataclass(frozen=True, slots=True)
class Word:
    """`rarity` 0 to 1; `parts` of n, v, a, r, commonest first; the sets hold numbers of senses."""

    rarity: float
    parts: str
    senses: frozenset[int]
    derived: frozenset[int]
    above: frozenset[int]
    opposite: frozenset[str]


UNKNOWN: Final = Word(1.0, "", _NONE, _NONE, _NONE, frozenset())


@dataclass(frozen=True, slots=True)
class Thesaurus:
    """`above` gives for each sense, by number, the senses right above it."""

    words: Mapping[str, Word]
    above: Sequence[frozenset[int]]

    def word(self, word: str) -> Word:
        return self.words.get(word, UNKNOWN)

    def relation(self, word: str, other: str) -> Relation:
        """How `word` stands to `other`; the same both ways round."""
        one, two = self.words.get(word), self.words.get(other)
        if one is None or two is None:
            return Relation.NONE
        if other in one.opposite or word in two.opposite:
            return Relation.OPPOSITE
        if not one.senses.isdisjoint(two.senses):
            return Relation.SYNONYM
        if not one.derived.isdisjoint(two.senses) or not two.derived.isdisjoint(one.senses):
            return Relation.DERIVED
        if not one.above.isdisjoint(two.senses) or not two.above.isdisjoint(one.senses):
            return Relation.BROADER
        return Relation.NONE if one.above.isdisjoint(two.above) else Relation.SISTER

    def is_kind_of(self, word: str, senses: Set[int]) -> bool:
        """Whether one of `senses` stands somewhere above a sense of `word`, as "animal" above "monkey"."""
        reached: set[int] = set()
        found = set(self.word(word).senses)
        while found:
            if not found.isdisjoint(senses):
                return True
            reached |= found
            found = {above for sense in found for above in self.above[sense]} - reached
        return False


@cache
def thesaurus() -> Thesaurus:
    """The table, read once a process (about 0.2 s)."""
    table = json.loads(gzip.decompress(PATH.read_bytes()))
    words: list[str] = table["words"].split(" ")
    above = [_numbers(entry) for entry in table["above"].split(";")]
    columns = zip(
        words, table["senses"].split(";"), table["derived"].split(";"), table["opposite"].split(";"), strict=True
    )
    top = math.log(len(words) + 1)
    return Thesaurus(
        {
            word: _word(math.log(rank + 2) / top, senses, derived, opposite, above, table["parts"])
            for rank, (word, senses, derived, opposite) in enumerate(columns)
        },
        above,
    )


def _word(rarity: float, senses: str, derived: str, opposite: str, above: list[frozenset[int]], parts: str) -> Word:
    own = [int(number) for number in senses.split()]
    return Word(
        rarity=min(rarity, 1.0),
        parts="".join(dict.fromkeys(parts[number] for number in own)),
        senses=frozenset(own),
        derived=_numbers(derived),
        above=frozenset[int]().union(*(above[number] for number in own)),
        opposite=frozenset(opposite.split()),
    )


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split()))
