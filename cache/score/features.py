"""What a score sees of a pair of English questions: numbers, the same both ways round.

Similarity says that two questions are about the same; whether one answer serves both shows in the words. Much overlap
with few words replaced or added is how a trap looks; little overlap at high similarity is how a paraphrase looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cache.guards import contrast, lexicon
from cache.guards.thesaurus import Relation, Thesaurus
from cache.guards.words import Text

NAMES: Final = (
    "similarity", "words_most", "words_least", "content_most", "content_least",
    "shared_words", "shared_pairs", "shared_letters",
    "cover_low", "cover_high", "near_low", "near_high", "rare_low", "rare_high",
    "open_most", "open_least", "open_rare_most", "open_rare_least", "open_names", "open_verbs",
    "kin", "broader", "sisters",
    "frame", "middle_most", "middle_least", "order", "shared_rare",
    "asks_same", "asks_most", "asks_least", "persons", "pointing", "relations", "modals", "past",
    "same_start", "same_end", "sentences", "function_apart",
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


def _kinds(*lines: str) -> dict[str, int]:
    """Word -> the number of its line."""
    return {word: number for number, line in enumerate(lines) for word in line.split()}


_YES_NO: Final = _words("""
    is are was were am do does did can could will would should shall may might must has have had
""")
_RELATIONS: Final = _words("""
    in on at to from with without for by of into over under after before between through during against as than about
    within per upon off out up down
""")
_PAST: Final = _words("did was were had")
_POINTING: Final = _words("this that these those my your our his her their the a an")
_PERSONS: Final = _kinds(
    "i me my mine myself",
    "you your yours yourself",
    "he him his himself",
    "she her hers herself",
    "they them their theirs",
    "we us our ours",
    "it its",
)
_MODALS: Final = _kinds("can could may might possible able allowed", "should must need have shall", "will would going")


@dataclass(frozen=True, slots=True)
class _Side:
    """One text beside the other: its content words that stay open there, and how close each unmatched word comes.

    `cover`, `near` and `rare` are the shares of its content words that are matched there: literally, by relation
    too, and weighted by rarity.
    """

    open: tuple[str, ...]
    close: list[Relation]
    cover: float
    near: float
    rare: float
    rarity: float
    verbs: int


def features(
    question: Text, cached: Text, similarity: float, near_misses: Sequence[str], table: Thesaurus
) -> list[float]:
    """The numbers in the order of `NAMES`. `near_misses` are the codes that the guards gave with their pass."""
    ours, theirs = _side(question, cached, table), _side(cached, question, table)
    share, middle, opposed = contrast.frame(question.words, cached.words)
    close = ours.close + theirs.close
    mine, other = set(question.words), set(cached.words)
    apart = mine ^ other
    one, two = asked(question.words), asked(cached.words)
    shared = set(question.content) & set(cached.content)
    return [
        similarity,
        *_most_least(len(question.words), len(cached.words)),
        *_most_least(len(question.content), len(cached.content)),
        2 * len(mine & other) / max(len(mine) + len(other), 1),
        _dice(_pairs(question.words), _pairs(cached.words)),
        _dice(_letters(question.source), _letters(cached.source)),
        *_most_least(ours.cover, theirs.cover)[::-1],
        *_most_least(ours.near, theirs.near)[::-1],
        *_most_least(ours.rare, theirs.rare)[::-1],
        *_most_least(len(ours.open), len(theirs.open)),
        *_most_least(ours.rarity, theirs.rarity),
        float(max(_names(question, ours), _names(cached, theirs))),
        float(max(ours.verbs, theirs.verbs)),
        float(close.count(Relation.SYNONYM) + close.count(Relation.DERIVED)),
        float(close.count(Relation.BROADER)),
        float(close.count(Relation.SISTER)),
        share,
        *_most_least(len(middle), len(opposed)),
        _order(question, cached),
        max((table.word(word).rarity for word in shared), default=0.0),
        float(one == two),
        *_most_least(one, two),
        float(len(_found(mine, _PERSONS) ^ _found(other, _PERSONS))),
        float(len(apart & _POINTING)),
        float(len(apart & _RELATIONS)),
        float(len(_found(mine, _MODALS) ^ _found(other, _MODALS))),
        float(_PAST.isdisjoint(mine) != _PAST.isdisjoint(other)),
        float(question.words[:1] == cached.words[:1]),
        float(_last(question) == _last(cached)),
        float(abs(_sentences(question.source) - _sentences(cached.source))),
        float(len(apart & lexicon.EN_FUNCTION)),
        *(float(code in near_misses) for code in _CODES),
    ]


def _side(text: Text, other: Text, table: Thesaurus) -> _Side:
    content = dict.fromkeys(text.content)
    unmatched = contrast.unmatched(text, other)
    close = [min((table.relation(word, found) for found in other.content), default=Relation.NONE) for word in unmatched]
    open_words = tuple(word for word, relation in zip(unmatched, close, strict=True) if relation > Relation.DERIVED)
    known = [table.word(word) for word in open_words]
    weight = sum(table.word(word).rarity ** 2 for word in content) or 1.0
    count = max(len(content), 1)
    return _Side(
        open_words, close, 1 - len(unmatched) / count, 1 - len(open_words) / count,
        1 - sum(word.rarity**2 for word in known) / weight, sum(word.rarity for word in known),
        sum(word.parts[:1] == "v" for word in known),
    )  # fmt: skip


def _found(words: Set[str], kinds: Mapping[str, int]) -> set[int]:
    return {kinds[word] for word in words if word in kinds}


def _most_least(a: float, b: float) -> tuple[float, float]:
    return (a, b) if a >= b else (b, a)


def _dice(a: Set[object], b: Set[object]) -> float:
    return 2 * len(a & b) / max(len(a) + len(b), 1)


def _pairs(words: tuple[str, ...]) -> set[tuple[str, str]]:
    return set(pairwise(words))


def _letters(source: str) -> set[str]:
    plain = source.lower()
    return set(map("".join, zip(plain, plain[1:], plain[2:], strict=False)))


def _names(text: Text, side: _Side) -> int:
    """Open words with a capital that do not begin the text; none where most words have one."""
    if not side.open or 10 * sum(word[0].isupper() for word in text.cased) > 7 * len(text.cased):
        return 0
    capital = {word.lower() for word in text.cased[1:] if word[0].isupper()}
    return sum(word in capital for word in side.open)


def _last(text: Text) -> str:
    return text.stems[text.content[-1]] if text.content else ""


def _sentences(source: str) -> int:
    plain = source.rstrip(" ?!.")
    return sum(plain.count(end) for end in (". ", "? ", "! "))


def _order(question: Text, cached: Text) -> float:
    """Share of the pairs of shared words whose order is turned round."""
    places = {stem: position for position, stem in enumerate(cached.stems[word] for word in cached.content)}
    found = [
        places[stem] for stem in dict.fromkeys(question.stems[word] for word in question.content) if stem in places
    ]
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
