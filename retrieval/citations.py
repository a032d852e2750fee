"""Citations: which span of which document each statement of an answer rests on, checked character by character.

Every citation that leaves satisfies `passage.text[c.start - passage.start : c.end - passage.start] == c.quote`.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import regex

from generation.evidence import asked_words, rarity
from generation.generator import Quote
from generation.sentences import Sentence, sentences
from generation.words import content_words
from retrieval.context import Source

_MARKS = regex.compile(r"[\[【]\s*S\d{1,4}(?:\s*[,;、，]\s*S\d{1,4})*\s*[\]】]")
_NEXT_MARKS = regex.compile(rf"\s*{_MARKS.pattern}")
_KEY = regex.compile(r"S\d{1,4}")
_QUOTED = regex.compile(r"[\"“”„«‘「]([^\"“”„»’」\n]{8,400})[\"“”»’」]")
_WEAKEST_SUPPORT = 0.2

_Candidates = Sequence[tuple[Sentence, frozenset[str]]]
"""Sentences of a source, with their content words."""


@dataclass(frozen=True, slots=True)
class Citation:
    """`start` and `end` are character offsets into the document's text of that version; `source` is the mark's key.

    `place` is where a person finds the quote ("page 3"); one that is `hidden` is not seen by who opens the file.
    """

    source: str
    document: str
    document_id: int
    title: str
    version: str
    chunk: str
    chunk_id: int
    start: int
    end: int
    quote: str
    place: str | None = None
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class Cited:
    """An answer with its verified citations, in order of appearance, each span once.

    `text` is the answer unchanged. `unknown` counts marks of sources that were not given, `unsupported` marks whose
    source holds nothing like the statement, and quotes that are not in their source.
    """

    text: str
    citations: tuple[Citation, ...]
    unknown: int = 0
    unsupported: int = 0


@dataclass(frozen=True, slots=True)
class _Claim:
    """A statement and the keys that it cites."""

    text: str
    keys: tuple[str, ...]


class _Read:
    """A source, read once, and what of it supports which statement: an answer may repeat both by the thousand."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._sentences: _Candidates | None = None
        self._found: dict[str, tuple[int, int] | None] = {}

    def support(self, claim: str) -> tuple[int, int] | None:
        text = self.source.passage.text
        if self._sentences is None:
            self._sentences = [(one, frozenset(content_words(one.text))) for one in sentences(text)]
        if claim not in self._found:
            self._found[claim] = _support(claim, text, self._sentences)
        return self._found[claim]


def verify(text: str, sources: Sequence[Source], quotes: Sequence[Quote] = ()) -> Cited:
    """Find the verified citations of an answer.

    With `quotes` (the extractive generator), each is located verbatim in its source. Without, each mark such as
    `[S1]` is mapped to the words that its statement quotes, or else to the sentence of that source which supports
    the statement best.
    """
    by_key = {source.key: _Read(source) for source in sources}
    citations: list[Citation] = []
    unknown = unsupported = 0
    wanted: list[tuple[str, Quote | str]] = [(quote.key, quote) for quote in quotes]
    if not quotes:
        wanted = [(key, claim.text) for claim in _claims(text) for key in claim.keys]
    for key, evidence in wanted:
        read = by_key.get(key)
        if read is None:
            unknown += 1
            continue
        source = read.source
        span = _locate(evidence, source) if isinstance(evidence, Quote) else read.support(evidence)
        if span is None:
            unsupported += 1
            continue
        citation = _citation(source, *span)
        if citation not in citations:
            citations.append(citation)
    return Cited(text, tuple(citations), unknown, unsupported)


def _citation(source: Source, start: int, end: int) -> Citation:
    passage = source.passage
    return Citation(
        source=source.key,
        document=passage.document,
        document_id=passage.document_id,
        title=passage.title,
        version=passage.version,
        chunk=passage.chunk,
        chunk_id=passage.chunk_id,
        start=passage.start + start,
        end=passage.start + end,
        quote=passage.text[start:end],
        place=passage.place_at(passage.start + start),
        hidden=passage.hidden,
    )


def _locate(quote: Quote, source: Source) -> tuple[int, int] | None:
    """Where `quote` stands in its source: at its own offsets, else at the first place that has it."""
    text = source.passage.text
    if not quote.text:
        return None
    if quote.start >= 0 and text[quote.start : quote.end] == quote.text:
        return quote.start, quote.end
    at = text.find(quote.text)
    return (at, at + len(quote.text)) if at >= 0 else None


def _claims(text: str) -> Iterator[_Claim]:
    """The statements of `text` that end in marks. Marks may stand before or after the full stop."""
    begin = 0
    position = 0
    while match := _MARKS.search(text, position):
        keys = list(_KEY.findall(match.group()))
        end = match.end()
        while after := _NEXT_MARKS.match(text, end):
            keys += _KEY.findall(after.group())
            end = after.end()
        yield _Claim(_last_sentence(text[begin : match.start()]), tuple(dict.fromkeys(keys)))
        begin = position = end


def _last_sentence(text: str) -> str:
    """The statement that a mark belongs to: the last sentence before it that says something."""
    found = sentences(text)
    return found[-1].text if found else ""


def _support(claim: str, text: str, candidates: _Candidates) -> tuple[int, int] | None:
    plain = html.unescape(claim)
    for quoted in _QUOTED.findall(plain):
        at = text.find(quoted.strip())
        if at >= 0:
            return at, at + len(quoted.strip())
    best = _best_sentence(plain, candidates)
    return (best.start, best.end) if best else None


def _best_sentence(claim: str, candidates: _Candidates) -> Sentence | None:
    """The sentence that holds most of the claim's content words, rare ones first; `None` below a fifth of them."""
    claimed = asked_words(claim)
    weights = rarity(claimed, [sorted(words) for _, words in candidates])
    whole = sum(weights.values())
    best: tuple[float, Sentence] | None = None
    for candidate, words in candidates:
        shared = sum(weights[word] for word in claimed if word in words)
        # Among sentences that hold the same, the shorter one is the more exact citation.
        score = shared / whole - 0.0001 * len(words) if whole else 0.0
        if shared >= _WEAKEST_SUPPORT * whole and shared > 0 and (best is None or score > best[0]):
            best = (score, candidate)
    return best[1] if best else None
