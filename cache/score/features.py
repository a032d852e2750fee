"""What a score sees of a pair of English questions: numbers, the same both ways round.

Similarity says that two questions are about the same; whether one answer serves both shows in the words. Much overlap
with few words replaced or added is how a trap looks; little overlap at high similarity is how a paraphrase looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cache.guards import contrast, lexicon
from cache.guards.thesaurus import Thesaurus
from cache.guards.words import Text

NAMES: Final = (
    "similarity", "similarity_by_length", "words_most", "content_most", "content_least",
    "shared_words", "shared_pairs", "shared_letters", "letters_within",
    "cover_low", "rare_low", "shared_weight", "shared_rarest", "shared_names",
    "open_most", "open_share", "open_rare_most", "open_rare_least", "open_rarest", "open_names", "open_verbs",
    "stems_apart", "inflected", "plurals", "frame", "order", "same_end",
    "asks_most", "asks_least", "questions", "persons", "pointing", "relations", "function_apart",
    "near_replaced", "near_added", "near_reworded", "near_related",
)  # fmt: skip

_ASKS: Final = (
    "how many", "how much", "how long", "how often", "how far", "how old",
    "how", "what", "which", "when", "where", "who", "whom", "whose", "why",
)  # fmt: skip
_ASKED: Final = {name: number + 1 for number, name in enumerate(_ASKS)}
_CODES: Final = (contrast.REPLACED, contrast.ADDED, contrast.REWORDED, contrast.RELATED)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_YES_NO: Final = _words("""
    is are was were am do does did can could will would should shall may might must has have had
""")
_RELATIONS: Final = _words("""
    in on at to from with without for by of into over under after before between through during against as than about
    within per upon off out up down
""")
_POINTING: Final = _words("this that these those my your our his her their the a an")
_PERSONS: Final = {
    word: number
    for number, line in enumerate((
        "i me my mine myself",
        "you your yours yourself",
        "he him his himself",
        "she her hers herself",
        "they them their theirs",
        "we us our ours",
        "it its",
    ))
    for word in line.split()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Side:
    """One text beside the other.

    `stems` gives the word of each content stem; `unmatched` are the content words without a counterpart there,
    `open` those that no close relation explains either. `cover` and `rare` are the shares of its content words that
    are matched: literally, and by relation too, weighted by rarity.
    """

    stems: dict[str, str]
    unmatched: list[str]
    open: list[str]
    cover: float
    rare: float
    rarity: float
    rarest: float
    verbs: int
    names: frozenset[str]


def features(
    question: Text, cached: Text, similarity: float, near_misses: Sequence[str], table: Thesaurus
) -> list[float]:
    """The numbers in the order of `NAMES`. `near_misses` are the codes that the guards gave with their pass."""
    ours, theirs = _side(question, cached, table), _side(cached, question, table)
    mine, other = set(question.words), set(cached.words)
    apart = mine ^ other
    one, two = asked(question.words), asked(cached.words)
    shared = ours.stems.keys() & theirs.stems.keys()
    alone = ours.stems.keys() ^ theirs.stems.keys()
    bent = [(ours.stems[stem], theirs.stems[stem]) for stem in shared if ours.stems[stem] != theirs.stems[stem]]
    rarities = [table.word(ours.stems[stem]).rarity for stem in shared]
    weight = sum(rarity**3 for rarity in rarities)
    others = sum(table.word(ours.stems.get(stem) or theirs.stems[stem]).rarity ** 3 for stem in alone)
    letters, their_letters = _letters(question.source), _letters(cached.source)
    least = min(len(question.words), len(cached.words))
    return [
        similarity,
        similarity * math.log1p(least),
        max(len(question.words), len(cached.words)),
        *_most_least(len(question.content), len(cached.content)),
        2 * len(mine & other) / max(len(mine) + len(other), 1),
        _dice(set(pairwise(question.words)), set(pairwise(cached.words))),
        _dice(letters, their_letters),
        len(letters & their_letters) / max(min(len(letters), len(their_letters)), 1),
        min(ours.cover, theirs.cover),
        min(ours.rare, theirs.rare),
        weight / (weight + others) if weight else 0.0,
        max(rarities, default=0.0),
        len(ours.names & theirs.names),
        max(len(ours.open), len(theirs.open)),
        (len(ours.unmatched) + len(theirs.unmatched)) / max(len(ours.stems) + len(theirs.stems), 1),
        *_most_least(ours.rarity, theirs.rarity),
        max(ours.rarest, theirs.rarest),
        max(_open_names(question, ours), _open_names(cached, theirs)),
        max(ours.verbs, theirs.verbs),
        len(alone),
        len(bent),
        sum(_is_plural(a, b) or _is_plural(b, a) for a, b in bent),
        contrast.frame(question.words, cached.words)[0],
        _order(list(ours.stems), list(theirs.stems)),
        _last(question) == _last(cached),
        *_most_least(one, two),
        _is_question(question) and _is_question(cached),
        len({_PERSONS[word] for word in mine & _PERSONS.keys()} ^ {_PERSONS[word] for word in other & _PERSONS.keys()}),
        len(apart & _POINTING),
        len(apart & _RELATIONS),
        len(apart & lexicon.EN_FUNCTION),
        *(code in near_misses for code in _CODES),
    ]


def _side(text: Text, other: Text, table: Thesaurus) -> _Side:
    stems = {text.stems[word]: word for word in text.content}
    content = dict.fromkeys(text.content)
    unmatched = contrast.unmatched(text, other)
    found = contrast.unrelated(unmatched, list(dict.fromkeys(other.content)), table)
    known = [table.word(word) for word in found]
    weight = sum(table.word(word).rarity ** 2 for word in content) or 1.0
    return _Side(
        stems, unmatched, found,
        1 - len(unmatched) / max(len(content), 1),
        1 - sum(word.rarity**2 for word in known) / weight,
        sum(word.rarity for word in known),
        max((table.word(word).rarity for word in unmatched), default=0.0),
        sum(word.parts[:1] == "v" for word in known),
        frozenset(word.lower() for word in text.cased[1:] if word[0].isupper()),
    )  # fmt: skip


def _most_least(a: float, b: float) -> tuple[float, float]:
    return (a, b) if a >= b else (b, a)


def _dice(a: Set[object], b: Set[object]) -> float:
    return 2 * len(a & b) / max(len(a) + len(b), 1)


def _letters(source: str) -> set[str]:
    plain = source.lower()
    return set(map("".join, zip(plain, plain[1:], plain[2:], strict=False)))


def _open_names(text: Text, side: _Side) -> int:
    """Open words with a capital that do not begin the text; none where most words have one."""
    if not side.open or 10 * sum(word[0].isupper() for word in text.cased) > 7 * len(text.cased):
        return 0
    return sum(word in side.names for word in side.open)


def _is_plural(one: str, many: str) -> bool:
    return many in (one + "s", one + "es")


def _last(text: Text) -> str:
    return text.stems[text.content[-1]] if text.content else ""


def _is_question(text: Text) -> bool:
    return "?" in text.source or (text.words[:1] != () and (text.words[0] in _YES_NO or text.words[0] in _ASKED))


def _order(ours: list[str], theirs: list[str]) -> float:
    """Share of the pairs of shared stems whose order is turned round."""
    places = {stem: position for position, stem in enumerate(theirs)}
    found = [places[stem] for stem in ours if stem in places]
    total = len(found) * (len(found) - 1) / 2
    turned = sum(found[i] > found[j] for i in range(len(found)) for j in range(i + 1, len(found)))
    return turned / total if total else 0.0


def asked(words: Sequence[str]) -> int:
    """The kind of question: by its first question word, else yes-no, else something to do."""
    for position, word in enumerate(words[:8]):
        if word in _ASKED or word == "how":
            both = f"{word} {words[position + 1]}" if position + 1 < len(words) else word
            return _ASKED.get(both, _ASKED[word])
    return len(_ASKS) + 1 if words and words[0] in _YES_NO else 0
