"""Marks guard: what words do not show. Symbols, capitals that make another word, subsections, ratios, Chinese aspect.

"✅" and "❌", "Turkey" and "turkey", "mW" and "MW", "4(a)" and "4(b)", "1:2" and "2:1", "招聘了吗" and "招聘吗" have
the same words and other answers.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import regex

from cache.guards import lexicon, names
from cache.guards.thesaurus import thesaurus
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "marks"

# Emoji with their skin tones, arrows, check marks, signs of mathematics. Comparisons and "5+" are for `relations`,
# degrees for the quantities.
_SYMBOL: Final = regex.compile(r"[[\p{So}\p{Sm}\U0001f3fb-\U0001f3ff]--[°+<>|≤≥≠±©®]]", flags=regex.V1)
# Of money and shares, where no number stands beside them: there the slots read them.
_BARE: Final = regex.compile(r"(?<!\d\s?)(?<!\d\s?[kKmM]\s?)[\p{Sc}%‰](?!\s?\d)")
_CASED_UNIT: Final = regex.compile(
    r"(?<![\p{L}])(?:[MKGT]b(?:ps|/s)?|[MKGT]B(?:ps|/s)?|mW|MW|mV|MV|mAh|MAh|Mg|mg|mA|MA|mPa|MPa)(?!\w)"
)
_SUBSECTION: Final = regex.compile(r"(?<=\d)(?:\((?:[A-Za-z]|[ivx]{1,4}|\d{1,2})\))+(?!\s?\d)")
_RATIO: Final = regex.compile(r"(?<![\d:.,/-])(\d{1,4})(?:\s?[:–-]\s?| to )(\d{1,4})(?![\d:.,/-])")
# "合同到期了怎么办" and "合同到期怎么办" are one question: before what is to be done, the marker is free.
_ASPECT: Final = regex.compile(
    r"(?P<done>了(?![怎如该該要应應会會能可解结結]))|(?P<ever>过(?=[吗嗎没沒什几幾多哪？?。\s]|$))|(?P<state>着(?![急手装陆落重想]))"
    r"|(?P<going>(?<![现現存所])在(?![哪什何职職校线線]))"
)
_ZH_OWNED: Final = regex.compile(r"是.*的[吗嗎呢吧啊？?。!！\s]*$")
_LABEL: Final = regex.compile(r"\s+#?(?:[A-Z]\b|\d)")
_LONG: Final = 8
_WHO: Final = frozenset("谁誰")


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if _symbols(question.source) != _symbols(cached.source):
        return veto(NAME, "symbol differs")
    bare, other = set(_BARE.findall(question.source)), set(_BARE.findall(cached.source))
    if bare and other and bare != other:
        return veto(NAME, "sign of money differs")
    if Counter(_SUBSECTION.findall(question.source)) != Counter(_SUBSECTION.findall(cached.source)):
        return veto(NAME, "subsection differs")
    if _turned(question.source, cached.source):
        return veto(NAME, "ratio turned round")
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    if _unit_differs(question.source, cached.source) or _another_word(question, cached):
        return veto(NAME, "capitals differ")
    return passed(NAME)


def _symbols(source: str) -> Counter[str]:
    return Counter(_SYMBOL.findall(source))


def _turned(ours: str, theirs: str) -> bool:
    mine, other = set(_RATIO.findall(ours)), set(_RATIO.findall(theirs))
    return any(one != two and (two, one) in other and (one, two) not in other for one, two in mine)


def _unit_differs(ours: str, theirs: str) -> bool:
    """ "mW" against "MW": one name, but for its capitals."""
    mine = {unit.casefold(): unit for unit in _CASED_UNIT.findall(ours)}
    other = {unit.casefold(): unit for unit in _CASED_UNIT.findall(theirs)}
    return any(mine[unit] != other[unit] for unit in mine.keys() & other.keys())


def _another_word(question: Text, cached: Text) -> bool:
    """ "Turkey" against "turkey", inside sentences; nothing where one text has no capitals, or too many to tell."""
    if question.source.casefold() == question.source or cached.source.casefold() == cached.source:
        return False
    if question.cased == cached.cased or not (names.capitals_tell(question) and names.capitals_tell(cached)):
        return False
    # Long texts write the parts of a name now with, now without a capital (PAWS: 8 % of the same).
    if max(len(question.content), len(cached.content)) >= _LONG:
        return False
    if not (_has_inner_capital(question) or _has_inner_capital(cached)):
        return False
    ours, theirs = _shapes(question), _shapes(cached)
    return any(ours[word] is not theirs[word] and _means(word) for word in ours.keys() & theirs.keys())


def _has_inner_capital(text: Text) -> bool:
    """Whether a capital stands inside a sentence: without one in either text, no word differs in it."""
    capitals = [place for place, letter in enumerate(text.source) if letter.isupper()]
    return bool(capitals) and not names.sentence_starts(text).issuperset(capitals)


def _shapes(text: Text) -> dict[str, bool]:
    """Whether each word inside a sentence has a capital; without those that stand there both ways."""
    starts = names.sentence_starts(text)
    found: dict[str, set[bool]] = {}
    for match in names.LETTERS.finditer(text.source):
        word = match.group().casefold().removesuffix("'s")
        # "Plan A" and "plan A": before what tells them apart, a capital tells nothing.
        labelled = _LABEL.match(text.source, match.end()) is not None
        if match.start() not in starts and word not in lexicon.EN_FUNCTION and not labelled:
            found.setdefault(word, set()).add(match.group()[0].isupper())
    return {word: shapes.pop() for word, shapes in found.items() if len(shapes) == 1}


def _means(word: str) -> bool:
    """Whether it is a word of the dictionary: "vpn" is none, and means one thing however it is written."""
    return bool(thesaurus().word(word).parts)


def _check_chinese(question: Text, cached: Text) -> Verdict:
    if _aspects(question.source) != _aspects(cached.source):
        return veto(NAME, "aspect differs")
    if (_ZH_OWNED.search(question.source) is None) != (_ZH_OWNED.search(cached.source) is None):
        return veto(NAME, "owner differs")
    if sorted(question.content) == sorted(cached.content) and _asks_object(question) != _asks_object(cached):
        return veto(NAME, "roles exchanged")
    return passed(NAME)


def _aspects(source: str) -> Counter[str]:
    return Counter(match.lastgroup or "" for match in _ASPECT.finditer(source))


def _asks_object(text: Text) -> bool:
    """ "批准谁" asks whom, "谁批准" who."""
    return bool(text.content) and text.content[-1] in _WHO
