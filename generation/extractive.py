"""Answers made of sentences copied from the sources: deterministic, cited, and needing no model.

A sentence scores by the rarity of the question's content words in it (Robertson's IDF over the sentences of the
given sources only, so that nothing outside them can change an answer); a word found in its heading, its list's
opening line, the sentence before or the document's title counts in part. Kind of question (how many, when, who) and
the rank of the source decide between near equals.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import regex

from generation.generator import Delta, Finish, FinishReason, ModelIdentity, Piece, Quote, Usage
from generation.prompt import Prompt, PromptSource
from generation.sentences import Sentence, sentences
from generation.words import content_words, words

REVISION = "extractive-1"

_MOST_SENTENCES = 3
_NEAR_BEST = 0.62
_LONGEST_QUOTE = 700
_HEADING, _LEAD, _BEFORE, _TITLE = 0.6, 0.7, 0.4, 0.3
_WEAKEST_COVER = 0.3

_TOKEN = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]|[\p{L}\p{M}\p{N}]{1,6}|[^\s\p{L}\p{M}\p{N}]")
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
_EXPECTED = (
    (regex.compile(r"\bhow (?:many|much|long|old|often|far|large|big|tall|high|fast)\b|\bwie ?(?:viele?|lange?|oft|hoch)\b|"
                   r"多少|几[天个年次]|多[长久大]|\bcu[aá]nt[oa]s?\b|\bcombien\b|\bpercentage\b|\bminimum\b|\bmaximum\b",
                   regex.IGNORECASE), _NUMBER),
    (regex.compile(r"\bwhen\b|\b(?:what|which|in what) (?:year|date|day|month|century|decade|time)\b|\bdeadline\b|\bwann\b|"
                   r"什么时候|何时|哪[一]?年|\bcu[aá]ndo\b|\bquand\b", regex.IGNORECASE), _TIME),
    (regex.compile(r"\bwhom?\b|\bwhose\b|\bwhich (?:person|team|department|officer)\b|\bwer\b|\bwem\b|\bqui[eé]n\b",
                   regex.IGNORECASE), _NAME),
)  # fmt: skip


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
    matched: frozenset[str]


class ExtractiveGenerator:
    """The default generator, where no model is configured. `salted` is trivially true: it keeps no state."""

    @property
    def identity(self) -> ModelIdentity:
        return ModelIdentity(model=REVISION, revision=REVISION, tokenizer=REVISION)

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
        read = sum(self.count(message.content) for message in prompt.messages)
        quotes = choose(prompt.question, prompt.sources)
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


def choose(question: str, sources: Sequence[PromptSource]) -> tuple[Quote, ...]:
    """The quotes that answer `question` best, best first; none where the evidence is weak."""
    asked = list(dict.fromkeys(content_words(question)))
    candidates = [candidate for number, source in enumerate(sources) for candidate in _candidates(number, source)]
    weights = _rarity(asked, candidates)
    ranked = sorted(
        (scored for candidate in candidates if (scored := _score(question, asked, weights, candidate))),
        key=lambda scored: (-scored.score, scored.candidate.source, scored.candidate.sentence.start),
    )
    if not ranked or _cover(asked, weights, ranked[0].candidate, candidates) < _WEAKEST_COVER:
        return ()
    return tuple(_quote(scored.candidate, sources) for scored in _best(ranked, weights))


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


def _rarity(asked: Sequence[str], candidates: Sequence[_Candidate]) -> dict[str, float]:
    """IDF of each asked word over the sentences; a word in none of them weighs as one in a single sentence."""
    frequency = Counter(word for candidate in candidates for word in set(candidate.words))
    total = len(candidates)
    return {word: math.log(1 + (total + 0.5) / (max(1, frequency[word]) + 0.5)) for word in asked}


def _score(question: str, asked: Sequence[str], weights: dict[str, float], candidate: _Candidate) -> _Scored | None:
    own = set(candidate.words)
    matched = frozenset(word for word in asked if word in own)
    if not matched and not candidate.sentence.item:
        return None
    score = sum(weights[word] * (1.0 if word in own else candidate.partial.get(word, 0.0)) for word in asked)
    if score <= 0:
        return None
    pairs = set(zip(candidate.words, candidate.words[1:], strict=False))
    score += sum(0.3 * min(weights[a], weights[b]) for a, b in zip(asked, asked[1:], strict=False) if (a, b) in pairs)
    heaviest = max(weights.values())
    for kind, answer in _EXPECTED:
        if kind.search(question):
            score += 0.6 * heaviest if answer.search(candidate.sentence.text) else 0.0
            break
    if candidate.sentence.heading or candidate.sentence.text.endswith(("?", "？")):
        score *= 0.7
    score /= 1 + 0.1 * max(0, len(candidate.words) - 40) / 40
    return _Scored(score / (1 + 0.06 * candidate.source), candidate, matched)


def _cover(
    asked: Sequence[str], weights: dict[str, float], best: _Candidate, candidates: Sequence[_Candidate]
) -> float:
    """The weighted share of the question that the best sentence's source covers, in [0, 1]."""
    whole = sum(weights[word] for word in asked)
    source = {word for candidate in candidates if candidate.source == best.source for word in candidate.words}
    source.update(word for word, share in best.partial.items() if share == _TITLE)
    return sum(weights[word] for word in asked if word in source) / whole if whole else 0.0


def _best(ranked: Sequence[_Scored], weights: dict[str, float]) -> list[_Scored]:
    """The best sentence, then others near it that add to it: at most three, none twice."""
    chosen = [ranked[0]]
    for scored in ranked[1:]:
        if len(chosen) == _MOST_SENTENCES:
            break
        if scored.score < _NEAR_BEST * ranked[0].score:
            break
        if all(_distinct(scored.candidate, other.candidate) for other in chosen):
            chosen.append(scored)
    return chosen


def _distinct(one: _Candidate, other: _Candidate) -> bool:
    if one.source == other.source and abs(one.at - other.at) == 1 and (one.sentence.lead or other.sentence.lead):
        return False
    a, b = set(one.words), set(other.words)
    return len(a & b) < 0.8 * min(len(a), len(b))


def _quote(candidate: _Candidate, sources: Sequence[PromptSource]) -> Quote:
    """The sentence; after a heading, a question or an opening line, also what it announces."""
    source = sources[candidate.source]
    end = candidate.sentence.end
    if candidate.sentence.heading or candidate.sentence.lead:
        following = [item for item in sentences(source.text) if item.start > candidate.sentence.start]
        for position, item in enumerate(following):
            announced = position == 0 or (candidate.sentence.lead and item.item)
            if not announced or item.end - candidate.sentence.start > _LONGEST_QUOTE:
                break
            end = item.end
    start = candidate.sentence.start
    return Quote(source.key, start, end, source.text[start:end])
