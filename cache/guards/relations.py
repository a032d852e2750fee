"""Relation guard: who does what to whom, in which direction, when, and to how many.

The content words may be the same and the answer still another: "A loyal to B" and "B loyal to A", "from X to Y",
"is" and "used to be", "and" and "or", "all" and "some", "he" and "she", "where" and "when".
"""

from __future__ import annotations

import regex

from cache.guards import lexicon
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "relations"

# Each line: name, whether a marker on one side only is a veto, and the markers that exclude one another.
_MARKERS: tuple[tuple[str, bool, tuple[frozenset[str], ...]], ...] = (
    ("conjunction", False, (frozenset({"and"}), frozenset({"or"}))),
    ("quantifier", False, (frozenset({"all", "every", "each"}), frozenset({"some", "any"}), frozenset({"none"}))),
    ("exclusivity", True, (frozenset({"only", "solely"}),)),
    ("gender", True, (frozenset({"he", "him", "his"}), frozenset({"she", "her", "hers"}))),
    ("future", True, (frozenset({"becoming", "become", "becomes"}), frozenset({"used"}))),
    ("obligation", False, (frozenset({"must", "shall"}), frozenset({"may", "can", "could", "might"}))),
    (
        "time or bound",
        False,
        tuple(
            frozenset(words.split())
            for words in ("before", "after since", "during while", "within", "until till", "over", "under", "up", "by")
        ),
    ),
)
# Signs that no word stands for: comparisons, a minus before a number, the marks of "C#" and "C++".
_SIGNS = regex.compile(r"[<>≤≥≠±]|(?<=\p{L})[#+]+|(?<![\p{Latin}\p{N}.)])[-\u2212\u2013](?=\d)")
_SAME_QUESTION = {"whom": "who"}
_PERSONS = frozenset({"who", "whom", "which", "what"})
_DO = frozenset({"do", "does", "did"})
_ASKS = regex.compile(r"\b(?:how (?:many|much|long|often)|where|when|who|whom|whose|why)\b")
_PASSIVE = regex.compile(
    r"\b(?:is|are|was|were|be|been|being|get|gets|got)\b(?:\s+[\w'-]+){1,5}?\s+(?:\w+(?:ed|en|wn|ght|ld|und|pt|nt|ne|ung|ood|ost|ade|id|urt|it|ut|et|un|ept|ead))\s+by\b",
)
_ZH_EXCLUSIVE = (
    ("和", "或"),
    ("所有", "部分"),
    ("只", ""),
    ("他", "她"),
    ("哪里", "什么时候"),
    ("谁", "什么时候"),
    ("多少", "为什么"),
)


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if set(_SIGNS.findall(question.source)) != set(_SIGNS.findall(cached.source)):
        return veto(NAME, "sign differs")
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    for name, one_sided, markers in _MARKERS:
        ours, theirs = _present(question.words, markers), _present(cached.words, markers)
        if ours != theirs and (one_sided or (ours and theirs and not ours & theirs)):
            return veto(NAME, f"{name} differs")
    asked, before = _asks(question), _asks(cached)
    if asked and before and not asked & before:
        return veto(NAME, "question word differs")
    if _direction(question, cached):
        return veto(NAME, "direction reversed")
    return _roles(question, cached)


def _present(words: tuple[str, ...], markers: tuple[frozenset[str], ...]) -> frozenset[int]:
    return frozenset(number for number, marker in enumerate(markers) if not marker.isdisjoint(words))


def _asks(text: Text) -> frozenset[str]:
    """Only the first one counts: "when" in the middle is usually a conjunction."""
    found = _ASKS.search(" ".join(text.words[:6]))
    return frozenset({_SAME_QUESTION.get(found.group(), found.group())}) if found else frozenset()


def _direction(question: Text, cached: Text) -> bool:
    """ "from X ... to Y" against "from Y ... to X", also where only one of the two prepositions is repeated."""
    for preposition, opposite in (("from", "to"), ("to", "from")):
        after = _followers(question.words, preposition)
        if after and after & _followers(cached.words, opposite) and not after & _followers(cached.words, preposition):
            return True
    return False


def _followers(words: tuple[str, ...], preposition: str) -> set[str]:
    followers: set[str] = set()
    for position, word in enumerate(words):
        if word == preposition:
            following = [word for word in words[position + 1 : position + 4] if word not in lexicon.EN_FUNCTION]
            followers.update(stem(word) for word in following[:1])
    return followers


def _roles(question: Text, cached: Text) -> Verdict:
    """Two texts of the same content words: their order, and the voice, decide who does what."""
    ours, theirs = [question.stems[word] for word in question.content], [cached.stems[word] for word in cached.content]
    if not lexicon.SYMMETRIC.isdisjoint(question.words) or len(ours) < 2:
        return passed(NAME)
    voice = bool(_PASSIVE.search(question.source.lower())) != bool(_PASSIVE.search(cached.source.lower()))
    shared = set(ours) & set(theirs)
    ours, theirs = [word for word in ours if word in shared], [word for word in theirs if word in shared]
    if len(ours) < 2 or sorted(ours) != sorted(theirs):
        return passed(NAME)
    if ours == theirs:
        return veto(NAME, "active and passive exchanged") if voice else passed(NAME)
    if voice:
        return passed(NAME)
    if {_asked_role(question), _asked_role(cached)} == {"subject", "object"}:
        return veto(NAME, "roles exchanged")
    swapped = [position for position in range(len(ours)) if ours[position] != theirs[position]]
    if _exchanged(ours, theirs, swapped) and not _coordinated(question, ours, swapped):
        return veto(NAME, "roles exchanged")
    return passed(NAME)


def _asked_role(text: Text) -> str:
    """What is asked for: the subject in "Who reports to Ana?", the object in "Who does Ana report to?"."""
    if len(text.words) < 2 or text.words[0] not in _PERSONS:
        return ""
    if text.words[1] in _DO:
        return "object"
    return "" if text.words[1] in lexicon.EN_FUNCTION else "subject"


def _exchanged(ours: list[str], theirs: list[str], swapped: list[int]) -> bool:
    """Whether two words, or two runs of words, have changed places around something that stayed."""
    first, last = swapped[0], swapped[-1]
    mine, other = ours[first : last + 1], theirs[first : last + 1]
    for left in range(1, len(mine)):
        for right in range(1, len(mine) - left):
            if other == mine[len(mine) - right :] + mine[left : len(mine) - right] + mine[:left]:
                return True
    return False


def _coordinated(text: Text, ours: list[str], swapped: list[int]) -> bool:
    """Whether the two that changed places are joined by "and" or "or"."""
    ends = {ours[swapped[0]], ours[swapped[-1]]}
    for position, word in enumerate(text.words):
        if word in ("and", "or"):
            near = {stem(found) for found in text.words[max(0, position - 3) : position + 4]}
            if ends <= near:
                return True
    return False


def _check_chinese(question: Text, cached: Text) -> Verdict:
    for one, other in _ZH_EXCLUSIVE:
        for a, b in ((question.source, cached.source), (cached.source, question.source)):
            if one in a and one not in b and (not other or other in b):
                return veto(NAME, "relation differs")
    if sorted(question.content) == sorted(cached.content) and question.content != cached.content:
        return veto(NAME, "word order differs")
    return passed(NAME)
