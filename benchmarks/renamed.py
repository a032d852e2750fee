"""CheckList's templates with other fillings: each name and adjective replaced by one that the set does not hold.

What was learned from the fillings of a template, and not from its form, shows as a difference.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from benchmarks.score_data import Pair
from cache.guards.thesaurus import thesaurus


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NAMES = _words("""
    Aoife Bram Ciaran Dagny Edda Fionn Greta Henrik Ingrid Joost Kirsten Lars Maren Niklas Oskar Petra Runa Soren Tilda
    Ulrik Vigdis Wouter Ylva Zelda Alva Bjarne Carsten Doris Egon Frida Gunnar Hedda Ivo Jonna Klaus Liesel Matthis Nora
""")
_SURNAMES = _words("""
    Aldous Brannigan Castellan Dunmore Ellsworth Fairbairn Gallowglass Hathersage Inglewood Jarvisford Kettleby Lanark
    Merriweather Netherby Oakhurst Penhallow Quarrington Ravenscar Stanhope Tremayne Underhay Venables Wetherby Yarrow
""")
_ADJECTIVES = _words("diligent frugal punctual gifted stubborn candid sincere tidy witty gloomy agile clumsy")
_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+(?=\b)")
_LOWER = re.compile(r"\b[a-z]{4,}\b")
# Templates that speak of countries, and those whose adjectives have synonyms or opposites on the other side.
_PLACES, _RELATED = ("country",), ("synonym", "antonym", "X != ", "different adjectives", "become")


def renamed(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """The same pairs in order; a word that is replaced is replaced by the same one on both sides."""
    return [_renamed(pair, seed) for pair in pairs]


def _renamed(pair: Pair, seed: int) -> Pair:
    table = thesaurus()
    swaps: dict[str, str] = {}
    if not any(mark in pair.group for mark in _PLACES):
        names = dict.fromkeys(_CAPITAL.findall(pair.a) + _CAPITAL.findall(pair.b))
        chosen = [name for name in names if table.word(name.lower()).parts[:1] != "a"]
        first = [name for name in chosen if f"{name} " in pair.a or len(chosen) == 1]
        for name in chosen:
            swaps[name] = _pick(_NAMES if name in first else _SURNAMES, name, seed, swaps)
    if not any(mark in pair.group for mark in _RELATED):
        both = dict.fromkeys(word for word in _LOWER.findall(pair.a) if re.search(rf"\b{word}\b", pair.b))
        for word in both:
            if table.word(word).parts == "a":
                swaps[word] = _pick(_ADJECTIVES, word, seed, swaps)
    return Pair(_replaced(pair.a, swaps), _replaced(pair.b, swaps), pair.same, pair.group)


def _pick(words: Sequence[str], word: str, seed: int, taken: dict[str, str]) -> str:
    start = int.from_bytes(hashlib.sha256(f"{seed} {word}".encode()).digest()[:4], "big")
    turned = [words[(start + step) % len(words)] for step in range(len(words))]
    return next(other for other in turned if other not in taken.values())


def _replaced(text: str, swaps: dict[str, str]) -> str:
    changed = re.sub(r"[A-Za-z]+", lambda match: swaps.get(match.group(), match.group()), text)
    return re.sub(r"\b([Aa])n? (?=([a-zA-Z]))", lambda m: f"{m[1]}{'n' if m[2].lower() in 'aeiou' else ''} ", changed)
