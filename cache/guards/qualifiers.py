"""Qualifiers guard: one thing, qualified in two ways, however the rest is worded.

"How do I close a current account?" and "What are the steps to end a fixed-term account?" ask about the same noun and
name two of its kinds. A qualifier is the word right before a noun and behind an article or a preposition, so that
verbs ("to open accounts") are none. A judgement ("a good book", "the best book") is none either, and a word that the
other text has in some form, or that is related to one of its words, is no other kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cache.guards import lexicon
from cache.guards.contrast import unmatched, unrelated
from cache.guards.thesaurus import Thesaurus, thesaurus
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "qualifiers"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARTICLES: Final = _words("a an the my your our his her its their any some no each")
_OPENERS: Final = _ARTICLES | _words("of for to in on at with by from and per")
# As in `contrast`: in a long text two words for one thing are more often a rewording.
_LONG: Final = 12
# Three fifths of the longer word, and at least so many letters.
_SHORTEST_ROOT: Final = 5


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is not Language.ENGLISH or min(len(question.content), len(cached.content)) >= _LONG:
        return passed(NAME)
    ours, theirs = _qualified(question), _qualified(cached)
    shared = ours.keys() & theirs.keys()
    if not shared:
        return passed(NAME)
    mine, other = unmatched(question, cached), unmatched(cached, question)
    table = thesaurus()
    own, opposed = set(unrelated(mine, other, table)), set(unrelated(other, mine, table))
    if any(
        ours[noun] <= own and theirs[noun] <= opposed and not _same_root(ours[noun], theirs[noun]) for noun in shared
    ):
        return veto(NAME, "another kind of the same thing")
    return passed(NAME)


def _same_root(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """ "Probation" and "probationary", which the thesaurus does not know to be related."""
    for one in ours:
        for other in theirs:
            root = max(_SHORTEST_ROOT, -(-3 * max(len(one), len(other)) // 5))
            if len(min(one, other, key=len)) >= root and one[:root] == other[:root]:
                return True
    return False


def _qualified(text: Text) -> Mapping[str, frozenset[str]]:
    """The qualifiers of each noun, by its stem, read once."""
    known = text.memo.get("qualified")
    if isinstance(known, dict):
        return known
    found: dict[str, set[str]] = {}
    told: set[str] = set()
    content, table = set(text.content), thesaurus()
    words = text.words
    for opener, before, word, noun in zip(("", *words), words, words[1:], words[2:], strict=False):
        if word not in content or noun not in content:
            continue
        behind = before in _OPENERS and _is_noun(noun, table, behind=before)
        if behind or (before in content and _goes_on(opener, before, word, noun)):
            root = text.stems[noun]
            found.setdefault(root, set()).add(word)
            if _tells_kind(word, table, verb=before in _ARTICLES):
                told.add(root)
    kinds = {root: frozenset(words) for root, words in found.items() if root in told}
    text.memo["qualified"] = kinds
    return kinds


def _is_noun(word: str, table: Thesaurus, *, behind: str) -> bool:
    """First of all a noun; behind an article and a qualifier one that is more often a verb, too ("a tax return")."""
    parts = table.word(word).parts
    return parts[:1] == "n" or (behind in _ARTICLES and "n" in parts)


def _goes_on(opener: str, before: str, word: str, noun: str) -> bool:
    """ "A direct debit payment": nouns in a row, the first of which may be an adjective."""
    first, second, third = (thesaurus().word(part).parts[:1] for part in (before, word, noun))
    return second == third == "n" and (first in ("n", "a") or opener in _ARTICLES)


def _tells_kind(word: str, table: Thesaurus, *, verb: bool) -> bool:
    """Not a judgement or its superlative; a word that is a verb first ("a work permit") only behind an article."""
    if word.endswith("est") or word in lexicon.JUDGEMENTS:
        return False
    return table.word(word).parts[:1] != "v" or (verb and not word.endswith("ed"))
