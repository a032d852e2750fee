"""Would the stored answer have been right? A fixed comparison with the fresh answer to the same question.

    same text -> same
    otherwise wrong, by the first of
        nothing to compare | no shared evidence | a value differs | a denial differs | other facts

The fresh answer is the measure: what it cites and every value that it states has to be in the stored one, which may say
more. It is a rule and not a model, so that it is the same tomorrow; it errs, mostly by calling answers different that
a person would call the same, and how often is measured by `benchmarks/judge_error.py` and in `docs/`. A comparison
that fails counts as wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import regex

from cache.guards import compare, polarity
from cache.guards.slots import SOFT, extract
from cache.guards.words import Language, Text, common_language, read

JUDGE_REVISION: Final = "judge-1"

_MARKS: Final = regex.compile(r"[\[【]\s*S\d{1,4}(?:\s*[,;、，]\s*S\d{1,4})*\s*[\]】]")
_SENTENCE: Final = regex.compile(r"[^.!?。！？]+(?:[.](?=\S)[^.!?。！？]*)*[.!?。！？]*")
_DIGITS: Final = regex.compile(r"\p{Nd}+")
_YES_NO: Final = regex.compile(r"(?i)(yes|no)\b")

_LEAST_SHARED: Final = 0.6
"""Of the fresh answer's content words, how many the stored one has to have."""

_ALIKE: Final = 0.6
"""Two sentences with so much in common say something about the same; then one must not deny what the other says."""


@dataclass(frozen=True, slots=True)
class Cited:
    """One citation: characters `start` to `end` of a version of a document, and what stands there."""

    document: str
    version: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Statement:
    """An answer as far as it is compared."""

    text: str
    cited: tuple[Cited, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`reason` is a short code, empty for the same answer; it quotes nothing."""

    wrong: bool
    reason: str


SAME: Final = Judgement(False, "")


def judge(fresh: Statement, stored: Statement) -> Judgement:
    """Whether `stored` is wrong where `fresh` is right. Never raises."""
    try:
        return _judged(fresh, stored)
    except Exception:  # noqa: BLE001  whatever it is, an answer that could not be compared is not known to be right
        return Judgement(True, "comparison failed")


def excluded(question: str, cached: str) -> bool:
    """Whether guards are there to keep the two questions apart, whatever let the pair pass: the guards of this program
    refuse it, or the digits in both differ.
    """
    return digits_differ(question, cached) or not compare(read(question), read(cached)).passed


def digits_differ(question: str, cached: str) -> bool:
    """A second look at numbers that needs no reading: whether the two hold different runs of digits."""
    return Counter(_DIGITS.findall(question)) != Counter(_DIGITS.findall(cached))


def _judged(fresh: Statement, stored: Statement) -> Judgement:
    said, kept = _plain(fresh.text), _plain(stored.text)
    if not said or not kept:
        return Judgement(True, "nothing to compare")
    if not _shares_evidence(fresh, stored):
        return Judgement(True, "other evidence")
    if said.casefold() == kept.casefold():
        return SAME
    ours, theirs = read(said), read(kept)
    language = common_language(ours, theirs)
    if kind := _differing_value(ours, theirs, language):
        return Judgement(True, f"{kind} differs")
    if _denies(said, kept, language):
        return Judgement(True, "polarity differs")
    if _shared(ours, theirs) < _LEAST_SHARED:
        return Judgement(True, "other facts")
    return SAME


def _plain(text: str) -> str:
    """Without marks of sources and runs of white space."""
    return " ".join(_MARKS.sub(" ", text).split())


def _shares_evidence(fresh: Statement, stored: Statement) -> bool:
    """Whether at least half of what the fresh answer cites is cited by the stored one, in the same place or words."""
    found = sum(any(_same_evidence(one, other) for other in stored.cited) for one in fresh.cited)
    return found > 0 and 2 * found >= len(fresh.cited)


def _same_evidence(one: Cited, other: Cited) -> bool:
    if one.document == other.document and one.version == other.version:
        return one.start < other.end and other.start < one.end
    # A text that stands in two documents is the same evidence.
    return _plain(one.quote).casefold() == _plain(other.quote).casefold()


def _differing_value(fresh: Text, stored: Text, language: Language) -> str | None:
    """The kind of a value that the fresh answer states and the stored one does not, or None."""
    ours, theirs = extract(fresh, language), extract(stored, language)
    for kind in sorted(ours):
        missing = ours[kind] - theirs.get(kind, set())
        if kind in SOFT:
            # Names and the like differ where each side has some of its own.
            own = theirs.get(kind, set()) - ours[kind]
            missing = {value for value in missing if value not in stored.words}
            if missing and any(value not in fresh.words for value in own):
                return kind
        elif missing:
            return kind
    return None


def _denies(fresh: str, stored: str, language: Language) -> bool:
    """Whether a sentence of one denies what the sentence of the other that is most like it says."""
    if {match.group().casefold() for text in (fresh, stored) if (match := _YES_NO.match(text))} == {"yes", "no"}:
        return True
    others = [read(sentence) for sentence in _SENTENCE.findall(stored)]
    for sentence in map(read, _SENTENCE.findall(fresh)):
        alike = [(_overlap(sentence, other), other) for other in others]
        share, nearest = max(alike, key=lambda pair: pair[0], default=(0.0, None))
        if nearest is not None and share >= _ALIKE and not polarity.check(sentence, nearest, language).passed:
            return True
    return False


def _shared(fresh: Text, stored: Text) -> float:
    """The share of the fresh answer's content words that the stored one has, as stems."""
    ours = {fresh.stems[word] for word in fresh.content}
    theirs = set(stored.stems.values())
    return len(ours & theirs) / len(ours) if ours else 0.0


def _overlap(one: Text, other: Text) -> float:
    ours, theirs = ({text.stems[word] for word in text.content} for text in (one, other))
    return len(ours & theirs) / min(len(ours), len(theirs)) if ours and theirs else 0.0
