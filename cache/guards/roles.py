"""Roles guard: who does what to whom, by the order of the words and the voice.

"A loyal to B" and "B loyal to A", "A thanked B" and "A was thanked by B", "dollars to euros" and "euros to dollars",
"A is bigger than B" and "B is bigger than A" have the same words. So have "in August he left" and "he left in August",
which mean the same. What tells them apart is measured on PAWS: where phrases only move, one block of words leaves its
place; where roles are exchanged, two do, and one of them stands where the other stood, behind the same words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import regex

from cache.guards import lexicon
from cache.guards.numbers import alternatives
from cache.guards.units import MONTHS
from cache.guards.words import WORD, Language, Text, spell_out
from cache.verdict import Verdict, passed, veto

NAME = "roles"

_LIST: Final = frozenset({",", "and", "or"})
_WORD_OR_COMMA: Final = regex.compile(rf"{WORD}|,")
_PERSONS: Final = frozenset({"who", "whom", "which", "what"})
_DO: Final = frozenset({"do", "does", "did"})
_DETERMINERS: Final = frozenset(
    ["a", "an", "the", "this", "that", "these", "those", "his", "her", "its", "their", "my", "your", "our"]
)
_PARTICIPLE: Final = (
    r"\w+(?:ed|en|wn|ght|ld|und|pt|nt|ne|ung|ood|ost|ade|id|urt|it|ut|et|un|ft|lt|ead|ain)|"
    + alternatives(lexicon.IRREGULAR)
)
_PASSIVE: Final = regex.compile(
    rf"\b(?:is|are|was|were|be|been|being|get|gets|got)\b(?:\s+[\w'-]+){{1,5}}?\s+(?:{_PARTICIPLE})\s+by\b"
)
# Between two words these say which of them is which; "and" and "with" do not.
_DIRECTED: Final = frozenset(
    [
        "to",
        "into",
        "than",
        "from",
        "of",
        "for",
        "by",
        "over",
        "against",
        "onto",
        "under",
        "above",
        "below",
        "before",
        "after",
        "through",
        "via",
        "as",
    ]
)
_ZH_DIRECTED: Final = "给給对對向让讓由被把为為替比叫使跟"
MOST_BLOCKS: Final = 40

_Item = tuple[str, tuple[str, ...]]


def turned(question: Text, cached: Text, language: Language) -> bool:
    """Whether both compare the same two things, in opposite order: "A is bigger than B", "B is smaller than A"."""
    if language is Language.CHINESE:
        return _turned_by(question.source.partition("比"), cached.source.partition("比"))
    if question.words.count("than") != 1 or cached.words.count("than") != 1:
        return False
    ours, theirs = _compared(question), _compared(cached)
    straight = ours[0] & theirs[0] or ours[1] & theirs[1]
    return bool(ours[0] & theirs[1] and ours[1] & theirs[0]) and not straight


def _turned_by(ours: tuple[str, str, str], theirs: tuple[str, str, str]) -> bool:
    """ "A比B高" and "B比A低": what stands before 比 in one begins what stands behind it in the other."""
    first, second = ours[0].strip(), theirs[0].strip()
    return bool(first and second and ours[2].startswith(second) and theirs[2].startswith(first) and first != second)


def _compared(text: Text) -> tuple[set[str], set[str]]:
    """Stems before the comparative in front of "than", and behind it."""
    position = text.words.index("than")
    content = set(text.content)
    before = [text.stems[word] for word in text.words[: max(0, position - 1)] if word in content]
    behind = [text.stems[word] for word in text.words[position + 1 :] if word in content]
    return set(before[-3:]), set(behind[:3])


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE:
        return _check_chinese(question, cached)
    if not lexicon.SYMMETRIC.isdisjoint(question.words):
        return passed(NAME)
    ours, theirs = _common(question, cached), _common(cached, question)
    voice = _is_passive(question) != _is_passive(cached)
    if len(ours) < 2 or sorted(item for item, _ in ours) != sorted(item for item, _ in theirs):
        return passed(NAME)
    if [item for item, _ in ours] == [item for item, _ in theirs]:
        return veto(NAME, "active and passive exchanged") if voice else passed(NAME)
    if {_asked_role(question), _asked_role(cached)} == {"subject", "object"}:
        return passed(NAME) if voice else veto(NAME, "roles exchanged")
    if voice or not _exchanged(ours, theirs):
        return passed(NAME)
    return veto(NAME, "roles exchanged")


def _check_chinese(question: Text, cached: Text) -> Verdict:
    """Of the same characters "年假怎么申请" and "怎么申请年假" ask one thing, "从上海到北京" and "从北京到上海" two."""
    if question.content == cached.content or sorted(question.content) != sorted(cached.content):
        return passed(NAME)
    ours, theirs = "".join(question.content), "".join(cached.content)
    if _other_side(ours, theirs) or _exchanged(_numbered(question.content), _numbered(cached.content)):
        return veto(NAME, "roles exchanged")
    return passed(NAME)


def _other_side(ours: str, theirs: str) -> bool:
    """ "给客户打折" and "客户给打折": what a word of direction points at stands before it in the other text."""
    return any(
        ours.count(word) == theirs.count(word) == 1 and _points_back(ours.partition(word), theirs.partition(word))
        for word in _ZH_DIRECTED
    )


def _points_back(ours: tuple[str, str, str], theirs: tuple[str, str, str]) -> bool:
    """By the one or two characters behind the word; what stands behind it in both texts is no difference."""
    for length in (1, 2):
        after, there = ours[2][:length], theirs[2][:length]
        told = after != there and len(after) == len(there) == length
        if told and (theirs[0].endswith(after) or ours[0].endswith(there)):
            return True
    return False


def _numbered(units: tuple[str, ...]) -> list[_Item]:
    seen: Counter[str] = Counter()
    found: list[_Item] = []
    for unit in units:
        seen[unit] += 1
        found.append((f"{unit}#{seen[unit]}", ()))
    return found


def _is_passive(text: Text) -> bool:
    return "by" in text.words and _PASSIVE.search(text.source.lower()) is not None


def _asked_role(text: Text) -> str:
    """What is asked for: the subject in "Who reports to Ana?", the object in "Who does Ana report to?"."""
    if len(text.words) < 2 or text.words[0] not in _PERSONS:
        return ""
    if text.words[1] in _DO or (text.words[0] == "which" and not _DO.isdisjoint(text.words[2:4])):
        return "object"
    return "" if text.words[1] in lexicon.EN_FUNCTION else "subject"


def _common(text: Text, other: Text) -> list[_Item]:
    """Stems that both texts have equally often, numbered where they repeat, with the words that link each to the last.

    Dates are left out: "15 October" and "October 15" are one, and `slots` compares them.
    """
    mine = Counter(text.stems[word] for word in text.content)
    theirs = Counter(other.stems[word] for word in other.content)
    seen: Counter[str] = Counter()
    found: list[_Item] = []
    link: list[str] = []
    dated = _date_words(text.words)
    after_comma = _after_comma(text) if "," in text.source else frozenset()
    for position, word in enumerate(text.words):
        if position in after_comma:
            link.append(",")
        if position in dated:
            continue
        if word in lexicon.EN_FUNCTION or word in lexicon.EN_FILLERS:
            if word not in _DETERMINERS:
                link.append(word)
            continue
        root = text.stems[word]
        if mine[root] != theirs.get(root, 0):
            link.append("*")
            continue
        seen[root] += 1
        found.append((f"{root}#{seen[root]}", tuple(link)))
        link = []
    return found


def _date_words(words: tuple[str, ...]) -> frozenset[int]:
    """Positions of months, of the days beside them and of the years behind those."""
    months = [position for position, word in enumerate(words) if word in MONTHS and word not in ("may", "march")]
    near = {
        beside
        for month in months
        for beside in range(max(0, month - 1), min(len(words), month + 3))
        if words[beside].rstrip("stndrh").isdigit()
    }
    return frozenset((*months, *near))


def _after_comma(text: Text) -> frozenset[int]:
    """Positions of the words right behind a comma."""
    found: set[int] = set()
    position = 0
    for match in _WORD_OR_COMMA.finditer(text.source):
        if match.group() == ",":
            found.add(position)
        else:
            position += len(spell_out(match.group().lower()))
    return frozenset(found)


def _exchanged(ours: list[_Item], theirs: list[_Item]) -> bool:
    """Whether two blocks have changed places, and not one phrase moved."""
    blocks, links = _blocks(ours, theirs)
    place = {item: position for position, (item, _) in enumerate(theirs)}
    link_there = dict(theirs)
    order = sorted(range(len(blocks)), key=lambda number: place[blocks[number][0]])
    if len(blocks) > MOST_BLOCKS:
        return True
    before = {number: (links[number][-1:], blocks[number - 1] if number else ()) for number in range(len(blocks))}
    there = {
        number: (link_there[blocks[number][0]][-1:], blocks[order[position - 1]] if position else ())
        for position, number in enumerate(order)
    }
    if _directed_swap(blocks, order, before, there):
        return True
    if _moved(order, [len(block) for block in blocks]) < 2:
        return False
    rank = {number: position for position, number in enumerate(order)}
    return any(
        rank[one] > rank[two]
        and (there[two] == before[one] or there[one] == before[two])
        and not (_listed(range(one + 1, two + 1), before) and _listed(order[rank[two] + 1 : rank[one] + 1], there))
        for two in range(len(blocks))
        for one in range(two)
    )


def _listed(blocks: Iterable[int], before: _Before) -> bool:
    """Whether the blocks only go on with a list: its order says nothing."""
    return all(before[block][0] and before[block][0][0] in _LIST for block in blocks)


_Before = dict[int, tuple[tuple[str, ...], tuple[str, ...]]]


def _directed_swap(blocks: list[tuple[str, ...]], order: list[int], before: _Before, there: _Before) -> bool:
    """ "dollars to euros" against "euros to dollars": neighbours changed places around the same directed word."""
    rank = {number: position for position, number in enumerate(order)}
    for number in range(len(blocks) - 1):
        after = number + 1
        between = before[after][0]
        swapped = rank[number] == rank[after] + 1 and between == there[number][0] and not _DIRECTED.isdisjoint(between)
        # Behind one preposition each, both only moved: "of A for B", "for B of A".
        if swapped and before[number][0] == there[after][0]:
            return True
    return False


def _blocks(ours: list[_Item], theirs: list[_Item]) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Runs of items that follow one another in both texts behind the same words; and the words before each run."""
    place = {item: position for position, (item, _) in enumerate(theirs)}
    blocks: list[list[str]] = []
    links: list[tuple[str, ...]] = []
    for position, (item, link) in enumerate(ours):
        last = ours[position - 1][0] if position else ""
        if last and place[item] == place[last] + 1 and theirs[place[item]][1] == link:
            blocks[-1].append(item)
        else:
            blocks.append([item])
            links.append(link)
    return [tuple(block) for block in blocks], links


def _moved(order: list[int], weights: list[int]) -> int:
    """How many blocks leave the heaviest sequence that keeps its order."""
    best = [0] * len(order)
    length = [0] * len(order)
    for position, number in enumerate(order):
        best[position], length[position] = weights[number], 1
        for earlier in range(position):
            weight = best[earlier] + weights[number]
            if order[earlier] < number and weight > best[position]:
                best[position], length[position] = weight, length[earlier] + 1
    heaviest = max(range(len(order)), key=lambda position: (best[position], length[position]))
    return len(order) - length[heaviest]
