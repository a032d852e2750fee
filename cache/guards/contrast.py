"""Contrast guard: content words that stand on one side only.

A word without a spelling variant, inflection or synonym on the other side is a substitution ("rice" against "quinoa"),
an added qualifier ("joint account" against "account"), or part of a free rewording. The first two change the answer
and are refused where they are clear: in an otherwise equal frame. Everything else passes with a code of what was
found, and the score weighs it (`cache/score`); without a score, what passed with a code is not safe.
"""

from __future__ import annotations

from cache.guards import lexicon
from cache.guards.polarity import has_opposite
from cache.guards.spelling import misspelt
from cache.guards.thesaurus import Relation, Thesaurus, thesaurus
from cache.guards.units import CURRENCIES, MONTHS, MULTIPLIERS, NUMBER_WORDS, UNITS, WEEKDAYS, ZH_DIGITS, ZH_POWERS
from cache.guards.words import Language, Text, read, stem
from cache.verdict import Verdict, passed, veto

NAME = "contrast"
# What the score is told: a word replaced or added where the rest is not equal enough for a veto, or a reworded whole.
REPLACED, ADDED, REWORDED, RELATED = "word replaced", "word added", "reworded", "related word"
_ANOTHER = "another word in its place"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PERSONS = _words("i me my myself you your yourself we us our ourselves someone somebody anyone")
_BEFORE_VERBS = _words("i you we they he she to can could should will would do does did please not")
_BEFORE_NOUNS = _words("a an the my your our his her their its this that some any no of for in on at by with")
# Words that come and go without changing a frame; fillers do as well.
_LIGHT = _words("a an the do does did can could would will is are was were am be so and please there it just also")
# With one of these the question points at what stands before it.
_POINTING = _words("this that these those such same he him his she her hers they them their theirs")
_LONG, _LONG_SENTENCE = 12, 9
_GROUP: dict[str, frozenset[int]] = {}
for _number, _line in enumerate(lexicon.SYNONYMS.strip().splitlines()):
    for _word in _line.split():
        _GROUP[stem(_word)] = _GROUP.get(stem(_word), frozenset()) | {_number}


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    ours, theirs = unmatched(question, cached), unmatched(cached, question)
    if not ours and not theirs:
        return passed(NAME)
    table = thesaurus()
    mine, other = unrelated(ours, theirs, table), unrelated(theirs, ours, table)
    if not mine and not other:
        return passed(NAME, near=(RELATED,))
    if asked_generally(question, cached, ours, theirs, table):
        return passed(NAME)
    share, middle, opposed = frame(_weighty(question), _weighty(cached))
    # In a long text one word for another is more often a rewording than a trap: there the score decides alone. (PAWS,
    # 3,000 pairs: those of 9 to 11 words are 55 of the same and 6 of the different; of 2,500 of QQP 1 and 2.) What
    # stands before a question in a sentence of its own makes it long without saying it in more words.
    equal = 2 * share >= 1 and len(middle) <= 3 and len(opposed) <= 3
    long = _LONG if last_sentence(question) or last_sentence(cached) else _LONG_SENTENCE
    equal = equal and min(len(question.content), len(cached.content)) < long
    if mine and other:
        if equal and _named(mine, question, table) and _named(other, cached, table):
            return veto(NAME, _ANOTHER)
        return passed(NAME, near=(REPLACED if 2 * share >= 1 else REWORDED,))
    if equal and (_qualifies(mine, question, cached) or _qualifies(other, cached, question)):
        return veto(NAME, "a qualifier on one side only")
    if equal and (_for_a_pronoun(mine, opposed, table) or _for_a_pronoun(other, middle, table)):
        return veto(NAME, _ANOTHER)
    return passed(NAME, near=(ADDED,))


def near_miss(verdict: Verdict) -> str:
    """What the score is told where a veto of this guard does not hold."""
    return REPLACED if verdict.reason == _ANOTHER else ADDED


def unrelated(words: list[str], others: list[str], table: Thesaurus) -> list[str]:
    """Those of `words` that are neither synonyms of nor derived from one of `others`, or the other way round."""
    return [
        word
        for word in words
        if min((table.relation(word, other) for other in others), default=Relation.NONE) > Relation.DERIVED
    ]


def frame(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """The share of the longer text that is equal from both ends inwards, and what is left of each between."""
    shorter, start, end = min(len(ours), len(theirs)), 0, 0
    while start < shorter and ours[start] == theirs[start]:
        start += 1
    while end < shorter - start and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    share = (start + end) / max(len(ours), len(theirs), 1)
    return share, ours[start : len(ours) - end], theirs[start : len(theirs) - end]


def _weighty(text: Text) -> tuple[str, ...]:
    """The words in order without those that come and go: "the parental leave", "parental leave please"."""
    kept = set(text.content)
    return tuple(
        word
        for word in text.words
        if word in kept or (word in lexicon.EN_FUNCTION and word not in _LIGHT and word not in lexicon.EN_FILLERS)
    )


def _named(words: list[str], text: Text, table: Thesaurus) -> bool:
    """Whether some word names or describes a thing; verbs are reworded far more freely."""
    return any(word.capitalize() in text.cased[1:] or not _done(word, text, table) for word in words)


def _done(word: str, text: Text, table: Thesaurus) -> bool:
    """Whether `word` is a verb here: "can I order", "to order", but not "the order", "my billing address"."""
    position, parts = text.words.index(word), table.word(word).parts
    before = text.words[position - 1] if position else ""
    return "v" in parts and (before in _BEFORE_VERBS or (parts == "v" and before not in _BEFORE_NOUNS))


def _for_a_pronoun(words: list[str], opposed: tuple[str, ...], table: Thesaurus) -> bool:
    """ "Which papers does my child need?" against "do I need?"."""
    return not _PERSONS.isdisjoint(opposed) and any(table.word(word).parts[:1] in ("n", "") for word in words)


def _qualifies(words: list[str], text: Text, other: Text) -> bool:
    """Whether one of `words` stands right before a word that the other text has without it, and is no verb there."""
    shared, table = set(other.content), thesaurus()
    return any(
        word in words and after in shared and (table.word(word).parts[:1] != "v" or word.endswith(("ing", "ed")))
        for word, after in zip(text.words, text.words[1:], strict=False)
    )


def asked_generally(question: Text, cached: Text, ours: list[str], theirs: list[str], table: Thesaurus) -> bool:
    """Whether both end in one question that names the kind of what differs before it, and points at nothing.

    "My pet monkey eats carrots. Is it normal for animals to eat carrots?" asks the same about a squirrel.
    """
    _, middle, opposed = frame(question.words, cached.words)
    asked = last_sentence(question)
    if not asked or asked != last_sentence(cached) or not (ours and theirs) or not middle or not opposed:
        return False
    before = (
        set(question.words[: len(question.words) - len(asked)]),
        set(cached.words[: len(cached.words) - len(asked)]),
    )
    if not (before[0].issuperset(ours) and before[1].issuperset(theirs)) or not _POINTING.isdisjoint(asked):
        return False
    stems = {question.stems[word] for word in asked}
    kinds = frozenset[int]().union(*(table.word(word).senses for word in asked if word in question.content))
    told = [word for word in question.content if word in before[0] and word not in ours]
    return all(table.is_kind_of(word, kinds) for word in (*ours, *theirs)) and all(
        question.stems[word] in stems or table.is_kind_of(word, kinds) for word in told
    )


def last_sentence(text: Text) -> tuple[str, ...]:
    """The words of the last of several sentences; nothing where there is one only."""
    plain = text.source.rstrip(" ?!.")
    position = max(plain.rfind(". "), plain.rfind("? "), plain.rfind("! "))
    if position < 0:
        return ()
    return text.words[-len(read(plain[position + 1 :]).words) :]


def _check_chinese(question: Text, cached: Text) -> Verdict:
    """Characters are the units, and one is a qualifier: a deputy (副经理) is not the manager (经理)."""
    ours = {unit for unit in question.content if unit not in cached.content and not _is_number(unit)}
    theirs = {unit for unit in cached.content if unit not in question.content and not _is_number(unit)}
    if ours and theirs:
        return veto(NAME, _ANOTHER)
    if ours or theirs:
        return veto(NAME, "a qualifier on one side only")
    return passed(NAME)


def unmatched(text: Text, other: Text) -> list[str]:
    """Distinct content words of `text` without a counterpart; polarity and slots judge their own words."""
    stems = set(other.stems.values())
    groups = frozenset().union(*(_GROUP.get(found, frozenset()) for found in stems))
    return [
        word
        for word in dict.fromkeys(text.content)
        if text.stems[word] not in stems
        and _GROUP.get(text.stems[word], frozenset()).isdisjoint(groups)
        and not _judged_elsewhere(word, text, other)
        and not any(misspelt(word, candidate) for candidate in other.content)
        and not _joined(word, other)
    ]


def _judged_elsewhere(word: str, text: Text, other: Text) -> bool:
    """Negators, antonyms and typed values: polarity and slots decide about them."""
    return (
        word in lexicon.EN_NEGATORS
        or word in WEEKDAYS
        or (word in MONTHS and word not in ("may", "march"))
        or _is_number(word)
        or ((word in UNITS or word in CURRENCIES) and _beside_number(word, text))
        or has_opposite(word, text, other)
    )


def _is_number(word: str) -> bool:
    if word in NUMBER_WORDS or word in MULTIPLIERS or word in ZH_DIGITS or word in ZH_POWERS:
        return True
    return any(character.isdigit() for character in word)


def _beside_number(word: str, text: Text) -> bool:
    position = text.words.index(word)
    return any(_is_number(beside) for beside in text.words[max(0, position - 1) : position + 2] if beside != word)


def _joined(word: str, other: Text) -> bool:
    """ "part-timers" and "part time", "paypal" and "pay pal"."""
    plain = word.replace("-", "")
    joined = other.memo.get("joined")
    if not isinstance(joined, frozenset):
        pairs = (first + second for first, second in zip(other.words, other.words[1:], strict=False))
        joined = other.memo["joined"] = frozenset((*pairs, *(candidate.replace("-", "") for candidate in other.words)))
    return plain in joined
