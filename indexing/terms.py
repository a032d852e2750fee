"""Words of a text, as the lexical leg counts them.

A text is folded (NFKC, case, accents) and cut into runs. A run of an alphabetic script is one word, stemmed
by the English Snowball rules; a run of a script that is written without spaces between words gives its
characters and its bigrams. Both sides of a search, chunk and question, go through here and nowhere else.
Stems and bigrams are kept by measurement: docs/decisions/0004-fusion.md.
"""

from __future__ import annotations

import struct
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import regex
import Stemmer

from tenancy.errors import Corrupt

TERMS_REVISION: Final = "terms-1"
"""Changes whenever the same text would give other terms; stored terms of another revision are rebuilt."""

MAX_COUNT: Final = 2**16 - 1

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\u30FC"
_RUN = regex.compile(rf"(?V1)[[{_UNSPACED}]&&\w]+|[\w--[{_UNSPACED}_]]+")
_STARTS_UNSPACED = regex.compile(rf"[{_UNSPACED}]")
_ACCENTS = regex.compile(r"[\u0300-\u036F]+")
_HASHES = np.dtype("<u8")
_COUNTS = np.dtype("<u2")
_HEADER = struct.Struct("<II")


class TermVector(NamedTuple):
    """The terms of one chunk or question.

    `hashes` (n,) uint64, sorted and unique; `counts` (n,) uint16, occurrences, at most 65,535 each;
    `length`, occurrences in all, as BM25 normalises by it.
    """

    hashes: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.uint16]
    length: int


def tokenize(text: str) -> list[str]:
    """The terms of `text`, repetitions included."""
    terms: list[str] = []
    for run in _RUN.findall(_folded(text)):
        if _is_unspaced(run):
            terms.extend(_characters_and_bigrams(run))
        else:
            terms.append(_stem(run))
    return terms


def term_count(text: str) -> int:
    """`len(tokenize(text))`, without a stem of each."""
    return sum(2 * len(run) - 1 if _is_unspaced(run) else 1 for run in _RUN.findall(_folded(text)))


def term_postings(text: str) -> TermVector:
    """Count the terms of `text` by hash.

    Equal to `count_terms(tokenize(text))`, but each distinct run is stemmed and hashed once.
    """
    counted: Counter[int] = Counter()
    for run, count in Counter(_RUN.findall(_folded(text))).items():
        if _is_unspaced(run):
            for term in _characters_and_bigrams(run):
                counted[_hash(term)] += count
        else:
            counted[_word_hash(run)] += count
    return _vector(counted)


def count_terms(terms: Iterable[str]) -> TermVector:
    """Count `terms`, as `tokenize` gives them, by hash."""
    counted: Counter[int] = Counter()
    for term, count in Counter(terms).items():
        counted[_hash(term)] += count
    return _vector(counted)


def pack(terms: TermVector) -> bytes:
    """Little-endian: n and length as uint32, n hashes as uint64, n counts as uint16."""
    header = _HEADER.pack(len(terms.hashes), terms.length)
    return header + terms.hashes.astype(_HASHES).tobytes() + terms.counts.astype(_COUNTS).tobytes()


def unpack(data: bytes) -> TermVector:
    """Read what `pack` wrote; raises `Corrupt` where the bytes are not that."""
    if len(data) < _HEADER.size:
        raise Corrupt("the stored terms of a chunk are cut short", remedy="ingest the document again")
    size, length = _HEADER.unpack_from(data)
    start = _HEADER.size
    if len(data) != start + size * (_HASHES.itemsize + _COUNTS.itemsize):
        raise Corrupt("the stored terms of a chunk have the wrong size", remedy="ingest the document again")
    hashes = np.frombuffer(data, dtype=_HASHES, count=size, offset=start).astype(np.uint64, copy=False)
    counts = np.frombuffer(data, dtype=_COUNTS, count=size, offset=start + size * _HASHES.itemsize)
    return TermVector(hashes, counts.astype(np.uint16, copy=False), length)


def _vector(counted: Counter[int]) -> TermVector:
    hashes = np.fromiter(counted.keys(), dtype=np.uint64, count=len(counted))
    counts = np.fromiter(counted.values(), dtype=np.int64, count=len(counted))
    order = np.argsort(hashes)
    capped = np.minimum(counts[order], MAX_COUNT).astype(np.uint16)
    return TermVector(hashes[order], capped, int(counts.sum()))


def _folded(text: str) -> str:
    """Compatibility forms, case and Latin, Greek and Cyrillic accents removed.

    Only U+0300 to U+036F are accents here: the vowel signs of Thai or Hindi are combining marks too, and
    without them words fall together.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


def _is_unspaced(run: str) -> bool:
    return not run.isascii() and _STARTS_UNSPACED.match(run) is not None


def _characters_and_bigrams(run: str) -> Iterator[str]:
    """Single characters too, so that a question of one character finds the words that contain it."""
    yield from run
    for index in range(len(run) - 1):
        yield run[index : index + 2]


def _stem(word: str) -> str:
    # The rules are English; on folded words of other Latin-script languages they conflate a few more endings.
    return str(_stemmers.english.stemWord(word)) if word.isascii() and not word.isdigit() else word


class _Stemmers(threading.local):
    """One stemmer per thread: a Snowball stemmer keeps the word that it works on in itself.

    Without its cache of words, which would hold one tenant's words while it serves another.
    """

    def __init__(self) -> None:
        self.english = Stemmer.Stemmer("english", 0)


_stemmers = _Stemmers()


def _word_hash(word: str) -> int:
    return _hash(_stem(word))


def _hash(term: str) -> int:
    """BLAKE2b of 8 bytes (RFC 7693): stable across processes, unlike `hash`."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")
