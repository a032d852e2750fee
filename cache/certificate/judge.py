"""Would the stored answer have been right? A fixed comparison with the fresh answer to the same question.

    same text -> same
    otherwise wrong, by the first of
        nothing to compare | no shared evidence | a value differs
        | a denial, a name, a bound or a role differs | other facts

The fresh answer is the measure: what it cites and every value that it states has to be in the stored one, which may say
more. Layout counts for nothing, place does: both answers are read as statements (sentences, list items, rows of a
table), and a value has to stand in a statement that goes with its own. It is a rule and not a model, so that it is the
same tomorrow; it errs, mostly by calling answers different that a person would call the same, and how often is measured
by `benchmarks/judge_error.py` and in `docs/`. A comparison that fails counts as wrong.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

from cache.certificate.wording import names_differ
from cache.guards import compare, polarity, relations, roles
from cache.guards.slots import SOFT, extract
from cache.guards.words import MAX_CHARACTERS, Language, Text, common_language, read

JUDGE_REVISION: Final = "judge-3"

_MARKS: Final = regex.compile(r"[\[【]\s*S\d{1,4}(?:\s*[,;、，]\s*S\d{1,4})*\s*[\]】]")
# What a list item, a heading or a quotation begins with, and the line under the head of a table.
_LEAD: Final = regex.compile(
    r"^\s*(?:(?:[-*+\u2022\u00b7]|#{1,6}|>|\d{1,3}[.)\u3001](?!\d)|[(\uff08]\d{1,3}[)\uff09])\s*)+(?=\D|\d)"
)
_RULE: Final = regex.compile(r"^[\s|:\-=_*]+$")
_EMPHASIS: Final = regex.compile(
    r"\*{1,3}|~~|`+|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)|(?<!\S)\$(?=\S[^$]*\$)|(?<=\d)\$(?!\w)"
)
_END: Final = regex.compile(r"[!?;\u3002\uff01\uff1f\uff1b]+|\.+(?=\s|$)")
_DIGITS: Final = regex.compile(r"\p{Nd}+")
_YES_NO: Final = regex.compile(r"(?i)(yes|no)\b(?:\s*[,.:!\u2013\u2014]\s*|\s*$)")
_LIMITS: Final = frozenset({"only", "unless", "except", "solely", "exclusively"})
_ZH_LIMITS: Final = regex.compile("除非|只有|仅|僅|除外")

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
    refuse it, or the values in both differ, however they are written.
    """
    ours, theirs = read(question), read(cached)
    return _values_differ(ours, theirs) or not compare(ours, theirs).passed


def _values_differ(ours: Text, theirs: Text) -> bool:
    """A second look at numbers: "1,200 EUR" and "1200 euro" are one value, though their digits differ."""
    if Counter(_DIGITS.findall(ours.source)) == Counter(_DIGITS.findall(theirs.source)):
        return False
    language = common_language(ours, theirs)
    one, other = ({k: v for k, v in extract(text, language).items() if k not in SOFT} for text in (ours, theirs))
    return one != other


def _judged(fresh: Statement, stored: Statement) -> Judgement:
    said, kept = _statements(fresh.text), _statements(stored.text)
    if not said or not kept:
        return Judgement(True, "nothing to compare")
    if not _shares_evidence(fresh, stored):
        return Judgement(True, "other evidence")
    if [one.casefold() for one in said] == [one.casefold() for one in kept]:
        return SAME
    if {match.group(1).casefold() for one in (said, kept) if (match := _YES_NO.match(one[0]))} == {"yes", "no"}:
        return Judgement(True, "polarity differs")
    ours, theirs = _read(said), _read(kept)
    language = common_language(_whole(said), _whole(kept))
    pairs = _aligned(ours, theirs)
    if kind := next((kind for pair in pairs if (kind := _differing_value(pair, language))), None):
        return Judgement(True, f"{kind} differs")
    if reason := next((reason for pair in pairs if (reason := _denies(pair, language))), None):
        return Judgement(True, reason)
    if _shared(ours, theirs) < _LEAST_SHARED:
        return Judgement(True, "other facts")
    return SAME


def _statements(text: str) -> list[str]:
    """Sentences, list items and rows of tables, without layout and marks of sources."""
    found = []
    for line in html.unescape(_MARKS.sub(" ", text)).replace("\u00a0", " ").splitlines():
        if _RULE.match(line):
            continue
        plain = _EMPHASIS.sub("", _LEAD.sub("", line)).strip().strip("|").replace("|", " , ")
        found += [one for part in _END.split(plain) if (one := " ".join(part.split()).strip(" ,"))]
    return found


def _read(statements: Sequence[str]) -> list[Text]:
    """A leading yes or no says nothing beside the statement that follows it."""
    first = _YES_NO.sub("", statements[0], count=1)
    rest = statements[1:]
    return [read(one) for one in ((first, *rest) if first or rest else statements) if one]


def _whole(statements: Sequence[str]) -> Text:
    """For its language, which the first of many words tell as well."""
    return read(". ".join(statements)[:MAX_CHARACTERS])


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


@dataclass(frozen=True, slots=True)
class _Pair:
    """A fresh statement, the stored one most like it, and all stored ones that are like no other fresh one more."""

    fresh: Text
    nearest: Text
    around: tuple[Text, ...]


def _aligned(fresh: Sequence[Text], stored: Sequence[Text]) -> list[_Pair]:
    nearest = [max(range(len(stored)), key=lambda at, one=one: _likeness(one, stored[at])) for one in fresh]  # type: ignore[misc]
    owner = [max(range(len(fresh)), key=lambda at, one=one: _likeness(fresh[at], one)) for one in stored]  # type: ignore[misc]
    return [
        _Pair(one, stored[near], tuple(other for at, other in enumerate(stored) if at == near or owner[at] == number))
        for number, (one, near) in enumerate(zip(fresh, nearest, strict=True))
    ]


def _likeness(one: Text, other: Text) -> float:
    """The share of words that both have, numbers aside: those are what is compared."""
    ours, theirs = ({found for word, found in text.stems.items() if not _DIGITS.search(word)} for text in (one, other))
    return len(ours & theirs) / len(ours | theirs) if ours and theirs else 0.0


def _differing_value(pair: _Pair, language: Language) -> str | None:
    """The kind of a value that the fresh statement makes and no stored one that goes with it, or None."""
    ours, near = extract(pair.fresh, language), extract(pair.nearest, language)
    around = [extract(one, language) for one in pair.around]
    words = {word for one in pair.around for word in one.words}
    for kind in sorted(ours):
        theirs = {value for one in around for value in one.get(kind, set())}
        missing = ours[kind] - theirs
        if kind in SOFT:
            # Names and the like differ where each side has some of its own.
            missing = {value for value in missing if value not in words}
            if missing and any(value not in pair.fresh.words for value in theirs - ours[kind]):
                return kind
        elif missing or (near.get(kind) and near[kind].isdisjoint(ours[kind])):
            return kind
    return None


def _denies(pair: _Pair, language: Language) -> str | None:
    """Why two statements that say something about the same do not say the same, or None."""
    fresh, stored = pair.fresh, pair.nearest
    if _overlap(fresh, stored) < _ALIKE:
        return None
    near = [one for one in pair.around if one is stored or _overlap(fresh, one) >= _ALIKE]
    if not all(polarity.check(fresh, one, language).passed for one in near):
        return "polarity differs"
    if names_differ(fresh, stored):
        return "name differs"
    if not relations.check(fresh, stored, language).passed:
        return "bound differs"
    if not roles.check(fresh, stored, language).passed:
        return "role differs"
    return "condition differs" if _limits(fresh) != _limits(stored) else None


def _limits(text: Text) -> bool:
    return not _LIMITS.isdisjoint(text.words) or _ZH_LIMITS.search(text.source) is not None


def _shared(fresh: Sequence[Text], stored: Sequence[Text]) -> float:
    """The share of the fresh answer's content words that the stored one has, as stems. Numbers were compared before."""
    theirs = {found for text in stored for found in text.stems.values()}
    content = {text.stems[word] for text in fresh for word in text.content if not _DIGITS.search(word)}
    # "You may" has none: then every word counts.
    ours = content or {found for text in fresh for found in text.stems.values() if not _DIGITS.search(found)}
    if ours:
        return len(ours & theirs) / len(ours)
    return 1.0 if any(text.words for text in fresh) else 0.0


def _overlap(one: Text, other: Text) -> float:
    ours, theirs = ({text.stems[word] for word in text.content} for text in (one, other))
    return len(ours & theirs) / min(len(ours), len(theirs)) if ours and theirs else 0.0
