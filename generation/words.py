"""Content words of a text: folded, stemmed, without function words; bigrams for scripts without spaces.

The stemmer is English (Porter 2, https://snowballstem.org). Questions and sources pass through the same function,
so that for other languages it merely trims endings alike on both sides.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Iterator

import regex
import Stemmer


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


class _Stemmer(threading.local):
    """One per thread: a Snowball stemmer keeps the word that it works on in itself."""

    def __init__(self) -> None:
        # Without its cache of words, which would hold one tenant's words while it serves another.
        self.english = Stemmer.Stemmer("english", 0)


_STEMMER = _Stemmer()

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_TOKEN = regex.compile(
    rf"[{_UNSPACED}]+|\d+(?:[.,]\d+)*|(?:(?![{_UNSPACED}])[\p{{L}}\p{{M}}\p{{N}}])+(?:['’]\p{{L}}+)?"
)
_UNSPACED_RUN = regex.compile(rf"[{_UNSPACED}]+")

# A word that is a function word in one language and a content word in English (war, die, son) is left out.
_FUNCTION_WORDS = _listed(
    """
    a about above after all also am an and any are as at be because been before being below between both but by can
    cannot could did do does doing down during each either every few for from further get gets got had has have having
    he her here hers him his how i if in into is it its itself just let many may me might more most much must my no nor
    not of off on once one only or other our ours out over own please same shall she should so some such than that the
    their theirs them then there these they this those through to too under until up upon us very was we were what when
    where whether which while who whom whose why will with within without would you your yours tell say says said
    there's what's who's it's

    aber als am auch auf aus bei bis das dass dem den der des dies diese dieser dieses durch ein eine einem einen einer
    eines er es für haben ich ihr im ist kann mein mit nach nicht noch nur oder sein seine sich sie sind über um und
    uns unser unter vom von vor wann waren warum welche welchem welchen welcher welches wem wen wenn wer werden wie
    wieviel wir wird wo wurde wurden zu zum zur viele

    au aux ce ces cette dans du elle en est et il la le les leur lui ne nous ou par pas qu que quel quelle quelles
    quels qui sa se ses sont un une vous combien quand pourquoi el los del al como cuál cuáles cuándo cuánto cuántos
    cuántas de donde dónde es lo más para pero por qué quién su sus una y
    """
)
_FUNCTION_BIGRAMS = _listed(
    """
    什么 多少 哪些 哪个 怎么 如何 为什 么时 时候 是什 是谁 是否 可以 我们 他们
    它们 这个 那个 的是 有多 少天 请问 有哪 么样 怎样
    です ます した する この その どの ました
    """
)


def words(text: str) -> list[str]:
    """Every word of `text` in order, folded and stemmed, function words included (unstemmed)."""
    return list(_words(text))


def content_words(text: str) -> list[str]:
    """`words` without function words; if nothing else is left, all of them."""
    every = words(text)
    return [word for word in every if not is_function_word(word)] or every


def is_function_word(word: str) -> bool:
    """Whether a word as `words` gives it carries grammar and no topic."""
    return word in _FOLDED_FUNCTION_WORDS or word in _FUNCTION_BIGRAMS


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """The words of `text` with the offsets of their characters in it: (start, end, word), in order.

    A token is folded by itself, so that the few which compatibility forms would join or split are told as they stand.
    """
    for match in _TOKEN.finditer(text):
        token = fold(match.group())
        if not _UNSPACED_RUN.fullmatch(token):
            if token:
                yield match.start(), match.end(), _stem(token)
        elif len(token) == match.end() - match.start():
            for at in range(max(1, len(token) - 1)):
                yield match.start() + at, min(match.start() + at + 2, match.end()), token[at : at + 2]


def _words(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(fold(text)):
        token = match.group()
        if _UNSPACED_RUN.fullmatch(token):
            yield from (token[at : at + 2] for at in range(max(1, len(token) - 1)))
        else:
            yield _stem(token)


def fold(text: str) -> str:
    """Case and accents removed, compatibility forms unified (Unicode NFKD)."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(
        character
        for at, character in enumerate(decomposed)
        if not unicodedata.combining(character) or (at and not decomposed[at - 1].isascii())
    )
    return unicodedata.normalize("NFKC", kept)


def _stem(token: str) -> str:
    if token[0].isdigit():
        return token.replace(",", "").rstrip(".")
    plain = token.replace("’", "'").removesuffix("'s")
    if plain in _FOLDED_FUNCTION_WORDS:
        return plain
    return str(_STEMMER.english.stemWord(plain))


_FOLDED_FUNCTION_WORDS = frozenset(fold(word) for word in _FUNCTION_WORDS)
