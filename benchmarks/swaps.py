"""Generated pairs: small changes to questions of the training part that change the answer, and some that do not.

Labelled sets hold few questions that differ in one word, and caches meet them all the time. Made from the words and
modifiers of the questions themselves and WordNet's sisters; seeded, so that the same questions give the same pairs.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cache.guards import lexicon
from cache.guards.thesaurus import Relation, Thesaurus

_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_FRAMES = (
    (("How do I ",), ("How can I ", "How do you ", "how do i ", "What is the best way to ", "How would I ")),
    (("How can I ",), ("How do I ", "how can i ", "What's the best way to ")),
    (("What is the ",), ("What's the ", "what is the ", "whats the ", "Please tell me the ")),
    (("What are the ",), ("what are the ", "What're the ", "Which are the ")),
    (("What are some ",), ("What are ", "Which are some ")),
    (("Is there ",), ("is there ", "Do you know if there is ")),
)
_OPENERS = ("Hi, ", "Hello, ", "hey ", "um ", "Quick question: ", "Just wondering, ", "Please, ")
_CLOSERS = (" Thanks!", " please", " ?", "??", " Thank you.")


@dataclass(frozen=True, slots=True)
class Pair:
    a: str
    b: str
    same: bool
    kind: str


def generate(questions: Sequence[str], table: Thesaurus, *, limit: int, seed: int) -> list[Pair]:
    """At most `limit` pairs, about two in three of them different."""
    chance = random.Random(seed)
    chosen = sorted({question.strip() for question in questions if 4 <= len(question.split()) <= 25})
    chance.shuffle(chosen)
    sisters, modifiers = _sisters(chosen, table), _modifiers(chosen, table)
    makers = (
        lambda text: _sister(text, sisters, table, chance),
        lambda text: _other_modifier(text, modifiers, chance),
        lambda text: _added_modifier(text, modifiers, chance),
        lambda text: _sister(text, sisters, table, chance),
        lambda text: _reframed(text, chance),
        lambda text: _misspelt(text, chance),
    )
    pairs: list[Pair] = []
    for number, question in enumerate(chosen):
        made = makers[number % len(makers)](question)
        if made is not None and made.b != question:
            pairs.append(made if chance.random() < 0.5 else Pair(made.b, made.a, made.same, made.kind))
        if len(pairs) == limit:
            break
    return pairs


def _content(text: str, table: Thesaurus) -> list[re.Match[str]]:
    return [
        match
        for match in _WORD.finditer(text)
        if match.group().lower() not in lexicon.EN_FUNCTION
        and match.group().lower() not in lexicon.EN_FILLERS
        and table.word(match.group().lower()).rarity > 0.5
    ]


def _sisters(questions: Sequence[str], table: Thesaurus) -> dict[int, list[str]]:
    """Sense above -> words of the questions below it."""
    words = {match.group().lower() for question in questions for match in _content(question, table)}
    found: dict[int, list[str]] = defaultdict(list)
    for word in sorted(words):
        for sense in table.word(word).above:
            found[sense].append(word)
    return found


def _modifiers(questions: Sequence[str], table: Thesaurus) -> dict[str, list[str]]:
    """Noun -> the adjectives and nouns that stand before it somewhere."""
    found: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        matches = _content(question, table)
        for before, noun in pairwise(matches):
            between = question[before.end() : noun.start()]
            if (
                between == " "
                and table.word(before.group().lower()).parts[:1] in ("a", "n")
                and table.word(noun.group().lower()).parts[:1] == "n"
            ):
                found[noun.group().lower()].add(before.group().lower())
    return {noun: sorted(words) for noun, words in sorted(found.items())}


def _sister(text: str, sisters: dict[int, list[str]], table: Thesaurus, chance: random.Random) -> Pair | None:
    matches = [match for match in _content(text, table) if table.word(match.group().lower()).parts[:1] in ("n", "a")]
    chance.shuffle(matches)
    for match in matches:
        word = match.group().lower()
        others = [
            other
            for sense in sorted(table.word(word).above)
            for other in sisters.get(sense, ())
            if table.relation(word, other) in (Relation.SISTER, Relation.OPPOSITE) and other[:4] != word[:4]
        ]
        if others:
            return Pair(text, _replaced(text, match, chance.choice(others)), False, "sister")
    return None


def _other_modifier(text: str, modifiers: dict[str, list[str]], chance: random.Random) -> Pair | None:
    for before, noun in _beside(text):
        others = [word for word in modifiers.get(noun.group().lower(), ()) if word[:4] != before.group().lower()[:4]]
        if before.group().lower() in modifiers.get(noun.group().lower(), ()) and others:
            return Pair(text, _replaced(text, before, chance.choice(others)), False, "other modifier")
    return None


def _added_modifier(text: str, modifiers: dict[str, list[str]], chance: random.Random) -> Pair | None:
    matches = list(_WORD.finditer(text))
    chance.shuffle(matches)
    for match in matches:
        others = [word for word in modifiers.get(match.group().lower(), ()) if word not in text.lower().split()]
        if others:
            changed = text[: match.start()] + chance.choice(others) + " " + text[match.start() :]
            return Pair(text, re.sub(r"\b([Aa])n? (?=[aeiou])", r"\1n ", changed), False, "added modifier")
    return None


def _beside(text: str) -> list[tuple[re.Match[str], re.Match[str]]]:
    matches = list(_WORD.finditer(text))
    return list(pairwise(matches))


def _replaced(text: str, match: re.Match[str], word: str) -> str:
    shown = word.capitalize() if match.group()[0].isupper() else word
    return text[: match.start()] + shown + text[match.end() :]


def _reframed(text: str, chance: random.Random) -> Pair | None:
    for starts, instead in _FRAMES:
        for start in starts:
            if text.startswith(start):
                return Pair(text, chance.choice(instead) + text[len(start) :], True, "frame")
    if chance.random() < 0.5:
        opener = chance.choice(_OPENERS)
        return Pair(text, opener + text[0].lower() + text[1:], True, "opener")
    return Pair(text, text.rstrip(" ?") + chance.choice(_CLOSERS), True, "closer")


def _misspelt(text: str, chance: random.Random) -> Pair | None:
    matches = [match for match in _WORD.finditer(text) if len(match.group()) >= 6 and match.group().islower()]
    if not matches:
        return Pair(text, text.lower(), True, "lower case")
    match = chance.choice(matches)
    word, place = match.group(), chance.randrange(1, len(match.group()) - 2)
    changed = chance.choice(
        (
            word[:place] + word[place + 1 :],
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + word[place] + word[place:],
        )
    )
    return Pair(text, _replaced(text, match, changed), True, "misspelt")
