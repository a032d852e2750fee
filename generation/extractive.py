"""Answers made of sentences copied from the sources: deterministic, cited, and needing no model.

Where an embedding model knows the question's language, a sentence scores by how near it and its passage are to the
question, as the model reads them: questions are rarely put in the words of the answer. Elsewhere it scores by the
rarity of the question's content words in it (Robertson's IDF over the sentences of the given sources only, so that
nothing outside them can change an answer); a word found in its heading, its list's opening line, the sentence before
or the document's title counts in part. Kind of question (how many, when, who) and the rank of the source decide
between near equals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import regex

from generation.evidence import asked_words, cover, rarity
from generation.generator import Delta, Finish, FinishReason, ModelIdentity, Piece, Quote, Usage
from generation.prompt import Prompt, PromptSource
from generation.sentences import Sentence, sentences
from generation.words import content_words, words

REVISION = "extractive-1"

_MOST_SENTENCES = 3
_NEAR_BEST = 0.68
_NEAR_BEST_READ = 0.93
"""Least share of the best score of a further sentence; scores by reading lie nearer to each other."""

_LONGEST_QUOTE = 700
_HEADING, _LEAD, _BEFORE, _TITLE = 0.5, 0.6, 0.35, 0.3
_WEAKEST_COVER = 0.2
_READ = 6
"""Sources that the model reads, the best: each costs time of it, and more changed little."""

_RANK = 0.005
"""What a passage loses for each better one, where the model reads: the search knew the words too."""

_WEAKEST_COVER_UNSPACED = 0.1

_UNSPACED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_TOKEN = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]|[\p{L}\p{M}\p{N}]{1,6}|[^\s\p{L}\p{M}\p{N}]"
)
_NUMBERING = regex.compile(r"^\(?\d+(?:\.\d+)*[.)]?\s+")
_NUMBER = regex.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|hundred|once|twice|daily|weekly|"
    r"monthly|quarterly|annually|yearly|half|dozen|zwei|drei|vier|fünf|sechs|zehn)\b|[一二三四五六七八九十百千万两]",
    regex.IGNORECASE,
)
_TIME = regex.compile(
    r"\d|\b(?:january|february|march|april|may|june|july|august|september|october|november|december|monday|tuesday|"
    r"wednesday|thursday|friday|before|after|within|until|immediately|daily|weekly|monthly|quarterly|annually|century|"
    r"vor|nach|innerhalb)\b|[年月日前后内]",
    regex.IGNORECASE,
)
_NAME = regex.compile(r"(?<=\S )\p{Lu}\p{L}+|\b(?:officer|manager|department|team|committee|board|head|director)\b")
_HOW_MANY = regex.compile(
    r"\bhow (?:many|much|long|old|often|far|large|big|tall|high|fast)\b|\b(?:percentage|minimum|maximum)\b"
    r"|\bwie ?(?:viele?|lange?|oft|hoch)\b|\bcu[aá]nt[oa]s?\b|\bcombien\b|多少|几[天个年次]|多[长久大]",
    regex.IGNORECASE,
)
_WHEN = regex.compile(
    r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade|time)\b|\bdeadline\b"
    r"|\bwann\b|\bcu[aá]ndo\b|\bquand\b|什么时候|何时|哪[一]?年",
    regex.IGNORECASE,
)
_WHO = regex.compile(
    r"\bwhom?\b|\bwhose\b|\bwhich (?:person|team|department|officer)\b|\bwer\b|\bwem\b|\bqui[eé]n\b", regex.IGNORECASE
)
_EXPECTED = ((_HOW_MANY, _NUMBER), (_WHEN, _TIME), (_WHO, _NAME))


@dataclass(frozen=True, slots=True)
class _Candidate:
    source: int
    at: int
    sentence: Sentence
    words: tuple[str, ...]
    partial: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Scored:
    score: float
    candidate: _Candidate


@dataclass(frozen=True, slots=True)
class Nearness:
    """How near a passage is to a question, and each of its sentences, within the passage; at most 1."""

    passage: float
    sentences: tuple[float, ...]


class Likeness(Protocol):
    """How near passages and their sentences are to a question, by an embedding model."""

    @property
    def revision(self) -> str:
        """Changes with the model, and with how it is asked."""
        ...

    def of(
        self, question: str, passages: Sequence[tuple[PromptSource, Sequence[Sentence]]]
    ) -> Sequence[Nearness] | None:
        """One for each of `passages`, with all of its sentences; None where the model does not know the question's
        language.
        """
        ...


class ExtractiveGenerator:
    """The default generator, where no model is configured. `salted` is trivially true: it keeps no state."""

    _likeness: Likeness | None = None

    def __init__(self, likeness: Likeness | None = None) -> None:
        self._likeness = likeness

    @property
    def identity(self) -> ModelIdentity:
        revision = REVISION if self._likeness is None else f"{REVISION}/{self._likeness.revision}"
        return ModelIdentity(model=REVISION, revision=revision, tokenizer=REVISION)

    @property
    def salted(self) -> bool:
        return True

    def count(self, text: str) -> int:
        """Pieces of at most six letters or digits, single signs, and single characters of unspaced scripts."""
        return sum(1 for _ in _TOKEN.finditer(text))

    async def generate(
        self, prompt: Prompt, *, salt: str, request_id: str, max_tokens: int, deadline: float
    ) -> AsyncGenerator[Piece, None]:
        """Copy up to three sentences; a `Delta` each. No salt, id or deadline matters to a copy of milliseconds."""
        del salt, request_id, deadline

        def chosen() -> tuple[int, tuple[Quote, ...]]:
            read = sum(self.count(message.content) for message in prompt.messages)
            return read, choose(prompt.question, prompt.sources, self._likeness)

        read, quotes = await asyncio.to_thread(chosen)
        given: list[Quote] = []
        written = 0
        reason: FinishReason = "stop" if quotes else "abstain"
        for quote in quotes:
            mark = f" [{quote.key}]"
            fitting = self._fit(quote, max_tokens - written - self.count(mark)) if not given else quote
            text = f"{' ' if given else ''}{' '.join(fitting.text.split())}{mark}" if fitting else ""
            if fitting is None or written + self.count(text) > max_tokens:
                reason = "length"
                break
            written += self.count(text)
            given.append(fitting)
            yield Delta(text)
            await asyncio.sleep(0)
            if fitting != quote:
                reason = "length"
                break
        yield Finish(reason, Usage(input=read, output=written), tuple(given))

    async def aclose(self) -> None:
        return None

    def _fit(self, quote: Quote, budget: int) -> Quote | None:
        """The longest beginning of `quote`, in whole words, of at most `budget` tokens."""
        ends = [match.end() for match in _TOKEN.finditer(quote.text)]
        if len(ends) <= budget:
            return quote
        if budget <= 0:
            return None
        cut = ends[budget - 1]
        if cut < len(quote.text) and quote.text[cut - 1].isalnum() and quote.text[cut].isalnum():
            whole = regex.search(r"^.*(?=\s)", quote.text[:cut], regex.DOTALL)
            cut = len(whole.group().rstrip()) if whole else cut
        return Quote(quote.key, quote.start, quote.start + cut, quote.text[:cut]) if cut else None


def choose(question: str, sources: Sequence[PromptSource], likeness: Likeness | None = None) -> tuple[Quote, ...]:
    """The quotes that answer `question` best, best first; none where the evidence is weak."""
    candidates = [candidate for number, source in enumerate(sources) for candidate in _candidates(number, source)]
    scores = None if likeness is None else _read(question, sources[:_READ], candidates, likeness)
    near = _NEAR_BEST if scores is None else _NEAR_BEST_READ
    if scores is None:
        if _covers_too_little(question, sources):
            return ()
        scores = _worded(question, candidates, len(sources))
    ranked = sorted(
        (_Scored(score, candidate) for score, candidate in zip(scores, candidates, strict=True) if score > 0),
        key=lambda scored: (-scored.score, scored.candidate.source, scored.candidate.sentence.start),
    )
    return _best(ranked, sources, near)


def _worded(question: str, candidates: Sequence[_Candidate], sources: int) -> list[float]:
    """Scores by the question's words."""
    asked = asked_words(question)
    weights = rarity(asked, [candidate.words for candidate in candidates])
    relevance = [_relevance(asked, weights, number, candidates) for number in range(sources)]
    return [_score(question, asked, weights, one) * relevance[one.source] for one in candidates]


def _read(
    question: str, sources: Sequence[PromptSource], candidates: Sequence[_Candidate], likeness: Likeness
) -> list[float] | None:
    """Scores by likeness: of the passage, then of the sentence in it; 0 for what was not read."""
    held: list[list[Sentence]] = [[] for _ in sources]
    for one in candidates:
        if one.source < len(held):
            held[one.source].append(one.sentence)
    near = likeness.of(question, list(zip(sources, held, strict=True)))
    if near is None:
        return None
    return [
        near[one.source].passage + near[one.source].sentences[one.at] - _RANK * one.source
        if one.source < len(near)
        else 0.0
        for one in candidates
    ]


def _covers_too_little(question: str, sources: Sequence[PromptSource]) -> bool:
    weakest = _WEAKEST_COVER_UNSPACED if _UNSPACED.search(question) else _WEAKEST_COVER
    return cover(question, [source.text for source in sources], [source.title for source in sources]) < weakest


def _relevance(asked: Sequence[str], weights: dict[str, float], number: int, candidates: Sequence[_Candidate]) -> float:
    """A factor for every sentence of a source: how much of the question the source holds, and its rank."""
    held = {word for candidate in candidates if candidate.source == number for word in candidate.words}
    share = sum(weights[word] for word in asked if word in held) / (sum(weights.values()) or 1.0)
    return (0.5 + 0.5 * share) / (1 + 0.06 * number)


def _candidates(number: int, source: PromptSource) -> list[_Candidate]:
    found: list[_Candidate] = []
    title = dict.fromkeys(content_words(source.title), _TITLE)
    heading: list[str] = []
    lead: list[str] = []
    before: list[str] = []
    for at, sentence in enumerate(sentences(source.text)):
        if not sentence.item:
            lead = []
        partial = dict(title)
        for inherited, share in ((before, _BEFORE), (heading, _HEADING), (lead, _LEAD)):
            partial.update((word, share) for word in inherited if partial.get(word, 0.0) < share)
        own = words(sentence.text)
        found.append(_Candidate(number, at, sentence, tuple(own), partial))
        before = own
        if sentence.heading:
            heading = own
        if sentence.lead:
            lead = own
    return found


def _score(question: str, asked: Sequence[str], weights: dict[str, float], candidate: _Candidate) -> float:
    own = set(candidate.words)
    if own.isdisjoint(asked) and not candidate.sentence.item:
        return 0.0
    score = sum(weights[word] * (1.0 if word in own else candidate.partial.get(word, 0.0)) for word in asked)
    if score <= 0:
        return 0.0
    pairs = set(pairwise(candidate.words))
    score += sum(0.3 * min(weights[a], weights[b]) for a, b in pairwise(asked) if (a, b) in pairs)
    expected = next((answer for kind, answer in _EXPECTED if kind.search(question)), None)
    if expected is not None and expected.search(_NUMBERING.sub("", candidate.sentence.text)):
        score += 0.6 * max(weights.values())
    elif candidate.sentence.heading:
        score *= 0.7
    if candidate.sentence.text.endswith(("?", "？")):
        score *= 0.7
    return score / (1 + 0.1 * max(0, len(candidate.words) - 40) / 40)


def _best(ranked: Sequence[_Scored], sources: Sequence[PromptSource], near: float) -> tuple[Quote, ...]:
    """The best sentence, then others of at least `near` of its score that add to it: at most three, none twice."""
    chosen: list[Quote] = []
    for scored in ranked:
        if len(chosen) == _MOST_SENTENCES or scored.score < near * ranked[0].score:
            break
        quote = _quote(scored.candidate, sources)
        if all(_distinct(quote, other) for other in chosen):
            chosen.append(quote)
    return tuple(chosen)


def _distinct(one: Quote, other: Quote) -> bool:
    """Whether two quotes neither overlap nor say the same in almost the same words."""
    if one.key == other.key and one.start < other.end and other.start < one.end:
        return False
    a, b = set(words(one.text)), set(words(other.text))
    return len(a & b) < 0.8 * min(len(a), len(b))


def _quote(candidate: _Candidate, sources: Sequence[PromptSource]) -> Quote:
    """The sentence; after a heading, a question or an opening line, also what it announces."""
    source = sources[candidate.source]
    end = candidate.sentence.end
    if candidate.sentence.heading or candidate.sentence.lead:
        following = [item for item in sentences(source.text) if item.start > candidate.sentence.start]
        for position, item in enumerate(following):
            announced = position == 0 or (candidate.sentence.lead and item.item and not (item.heading or item.lead))
            if not announced or item.end - candidate.sentence.start > _LONGEST_QUOTE:
                break
            end = item.end
    start = candidate.sentence.start
    return Quote(source.key, start, end, source.text[start:end])
