"""Polarity guard: negators by parity, antonyms by pair.

One flip between the two texts reverses the answer. Two flips cancel out only where one of them is a negator, a
degree or the order of a comparison ("more impatient" = "less patient", "not brave" = "cowardly", "A is bigger than B" =
"B is smaller than A"); two independent antonyms do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.numbers import alternatives
from cache.guards.words import Language, Text, stem
from cache.verdict import Verdict, passed, veto

NAME = "polarity"
_DEGREES: Final = frozenset(
    (a, b) for x, y in (("more", "less"), ("most", "least"), ("more", "fewer")) for a, b in ((x, y), (y, x))
)
_DEGREE_STEMS: Final = frozenset((stem(a), stem(b)) for a, b in _DEGREES)
_NEGATORS: Final = frozenset(stem(word) for word in lexicon.EN_NEGATORS)

_NONE: Final[frozenset[str]] = frozenset()
# By their first letter.
_PREFIXES: Final[dict[str, tuple[str, ...]]] = {}
for _prefix in sorted(lexicon.EN_NEGATIVE_PREFIXES):
    _PREFIXES[_prefix[0]] = (*_PREFIXES.get(_prefix[0], ()), f"{_prefix}-", _prefix)

_OPPOSITES: Final[dict[str, set[str]]] = {}
for _one, _other in lexicon.EN_ANTONYMS:
    if stem(_one) not in _NEGATORS and stem(_other) not in _NEGATORS and stem(_one) != stem(_other):
        _OPPOSITES.setdefault(stem(_one), set()).add(stem(_other))
_BEGINNINGS: Final = sorted(lexicon.OPPOSED_BEGINNINGS)
_HARMLESS: Final[dict[str, list[tuple[str, ...]]]] = {}
for _phrase in lexicon.EN_NO_NEGATION:
    for _number, _word in enumerate(_phrase):
        if _word in lexicon.EN_NEGATORS or _word == "no":
            _HARMLESS.setdefault(_word, []).append((*_phrase, str(_number)))
_HIDDEN: Final[dict[str, list[tuple[str, ...]]]] = {}
for _phrase in lexicon.EN_NEGATING_PHRASES:
    _HIDDEN.setdefault(_phrase[0], []).append(_phrase)
_ZH_HARMLESS: Final = regex.compile(rf"(\p{{Script=Han}})[不没沒]\1|{alternatives(lexicon.ZH_NO_NEGATION)}")
_ZH_NEGATOR: Final = regex.compile(alternatives(lexicon.ZH_NEGATORS))
_ZH_ANTONYMS: Final = sorted(lexicon.ZH_ANTONYMS, key=lambda pair: (-len(pair[0]), pair))


def check(question: Text, cached: Text, language: Language, *, turned: bool = False) -> Verdict:
    """`turned`: the two texts compare the same two things the other way round, which is one flip."""
    if language is Language.CHINESE:
        negators, weak = abs(_zh_negators(question.source) - _zh_negators(cached.source)), False
        antonyms, degrees = _zh_antonyms(question.source, cached.source), 0
    else:
        ours, theirs = _en_negators(question), _en_negators(cached)
        negators = abs(ours - theirs)
        weak = _has_weak(cached if ours > theirs else question, question if ours > theirs else cached)
        antonyms, degrees = _en_antonyms(question, cached)
    if turned:
        return passed(NAME) if (antonyms + degrees + negators) % 2 else veto(NAME, "comparison turned round")
    if antonyms == 0 and degrees == 0:
        return veto(NAME, "negation differs") if negators % 2 and not weak else passed(NAME)
    if antonyms == degrees + negators:
        return passed(NAME)
    return veto(NAME, "opposite words")


def negators(text: Text) -> int:
    """How many negators an English text holds."""
    return _en_negators(text)


def _en_negators(text: Text) -> int:
    known = text.memo.get("negators")
    if isinstance(known, int):
        return known
    words = text.words
    if lexicon.EN_NEGATORS.isdisjoint(words) and _HIDDEN.keys().isdisjoint(words) and "on-" not in text.source:
        text.memo["negators"] = 0
        return 0
    count = sum(
        (word in lexicon.EN_NEGATORS and not _is_harmless(words, position))
        or (word.startswith("non-") and len(word) > 5)
        or (word in _HIDDEN and _negates(words, position))
        for position, word in enumerate(words)
    )
    text.memo["negators"] = count
    return count


def _negates(words: tuple[str, ...], position: int) -> bool:
    """Whether a phrase that denies without a negator begins there; a place that is "far from" another denies none."""
    for phrase in _HIDDEN[words[position]]:
        end = position + len(phrase)
        if words[position:end] == phrase:
            return phrase[0] != "far" or "".join(words[end : end + 1]).endswith(("ed", "ing"))
    return False


def _is_harmless(words: tuple[str, ...], position: int) -> bool:
    """Whether the negator stands in a phrase that negates nothing ("no more than", "whether or not")."""
    for *phrase, offset in _HARMLESS.get(words[position], ()):
        start = position - int(offset)
        if start >= 0 and words[start : start + len(phrase)] == tuple(phrase):
            return True
    return False


def _has_weak(fewer: Text, more: Text) -> bool:
    """Whether the text with fewer negators says its "no" by another word ("I lost access": "I have no access")."""
    return any(word in lexicon.EN_WEAK_NEGATORS and word not in more.stems for word in fewer.words)


def _en_antonyms(question: Text, cached: Text) -> tuple[int, int]:
    """How many antonym pairs and how many degree pairs stand against each other."""
    ours, theirs = _own_words(question, cached), _own_words(cached, question)
    degrees = sum((a, b) in _DEGREES for a in ours for b in theirs)
    own = {cached.stems[word] for word in theirs}
    free = {root: found for root, found in _roots(cached).items() if found in own}
    antonyms = 0
    for a in ours:
        against = [root for root in opposites(a, question, free) if (question.stems[a], root) not in _DEGREE_STEMS]
        if against:
            antonyms += 1
            taken = min(against)
            free = {root: found for root, found in free.items() if found != taken}
    return antonyms, degrees


def _own_words(text: Text, other: Text) -> list[str]:
    """Words that the other text has in no form. "non-members" counts as a negator, and not as an opposite too."""
    stems = set(other.stems.values())
    return [
        word
        for word, found in text.stems.items()
        if word not in other.stems
        and found not in stems
        and word not in lexicon.EN_NEGATORS
        and not word.startswith("non-")
    ]


def has_opposite(word: str, text: Text, other: Text) -> bool:
    """Whether an antonym of `word` of `text` stands in `other`."""
    return bool(opposites(word, text, _roots(other)))


def _roots(text: Text) -> dict[str, str]:
    """The stems of a text, and each without its negative prefix ("lock" for "unlock"), to the stem."""
    known = text.memo.get("roots")
    if isinstance(known, dict):
        return known
    roots = {root: root for root in text.stems.values()}
    for root in text.stems.values():
        for base in _bases(root):
            roots.setdefault(base, root)
    text.memo["roots"] = roots
    return roots


def _bases(root: str) -> list[str]:
    prefixes = _PREFIXES.get(root[:1])
    if not prefixes or not root.startswith(prefixes):
        return []
    return [base for prefix in prefixes if root.startswith(prefix) and len(base := root[len(prefix) :]) > 2]


def opposites(word: str, text: Text, roots: Mapping[str, str]) -> Set[str]:
    """The stems in `roots` that are opposites of `word` of `text`: by list, by negative prefix, or -ful and -less.

    `roots` gives the stem of each stem, and of each that stands behind a negative prefix.
    """
    root = text.stems[word]
    known = _OPPOSITES.get(root, _NONE)
    found = set() if known.isdisjoint(roots) else {against for against in known if roots.get(against) == against}
    if roots.get(root, root) != root:
        found.add(roots[root])
    found.update(base for base in _bases(root) if roots.get(base) == base)
    if root.endswith("ful") and (deprived := f"{root[:-3]}less") in roots:
        found.add(deprived)
    elif root.endswith("less") and (given := f"{root[:-4]}ful") in roots:
        found.add(given)
    found.update(counterpart for counterpart in _counterparts(root) if roots.get(counterpart) == counterpart)
    return found


def _counterparts(root: str) -> Set[str]:
    """Opposites by the form alone: "overpaid" and "underpaid", "franchisor" and "franchisee", "long-" and "short-term".

    A stem has lost one "e": that of "franchisee" ends in one still.
    """
    found: set[str] = set()
    if root.endswith(("or", "er")) and len(root) > 4:
        found.add(f"{root[:-2]}e")
    elif root.endswith("e") and len(root) > 4:
        found |= {f"{root[:-1]}or", f"{root[:-1]}er"}
    for one, other in _BEGINNINGS:
        if root.startswith(one) and len(rest := root[len(one) :]) > 2:
            found.add(other + rest)
    head, hyphen, tail = root.partition("-")
    if hyphen and tail:
        found |= {f"{against}-{tail}" for against in _OPPOSITES.get(stem(head), _NONE)}
    return found


def _zh_negators(text: str) -> int:
    return len(_ZH_NEGATOR.findall(_ZH_HARMLESS.sub("\u2022", text)))


def _zh_antonyms(question: str, cached: str) -> int:
    """Pairs that stand against each other; a longer word covers the shorter ones inside it."""
    flips = 0
    for a, b in _ZH_ANTONYMS:
        if a in question and b in cached and a not in cached and b not in question:
            flips += 1
            question, cached = question.replace(a, ""), cached.replace(b, "")
    return flips
