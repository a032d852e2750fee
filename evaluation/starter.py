"""A first set of questions from a tenant's own documents, without a model: a starter, to be read and corrected.

Each question is a sentence of a document that its asker may read, with a number taken out, or its rarest words where it
has none. That finds out whether documents are found by their own words, which is the easiest thing to ask of a search:
what people ask, in their words, has to come from people. Questions without an answer are general knowledge of which no
word stands in the documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import regex
from sqlalchemy import bindparam, select

from evaluation.sets import Case
from generation.sentences import Sentence, sentences
from generation.words import content_words
from tenancy.domain import permission_domain, readable_documents
from tenancy.errors import InvalidInput, NotFound
from tenancy.identity import Principal
from tenancy.schema import chunks, documents
from tenancy.tenant import ReadView, TenantHandle

MOST: Final = 500
UNANSWERABLE_SHARE: Final = 0.2

_FEWEST, _MOST_WORDS = 4, 30
_KEYWORDS: Final = 6
_TRIES: Final = 6
_NUMBER: Final = regex.compile(r"(?<![\p{L}\p{N}.,])\d+(?:[.,]\d+)*(?![\p{L}\p{N}])(?:\s?%)?")
_GAP: Final = "…"
_CHUNKS: Final = select(chunks.c.ordinal, chunks.c.key, chunks.c.text, chunks.c.hidden).where(
    chunks.c.document_id == bindparam("document")
)
_GENERAL: Final = (
    ("Which painter made the ceiling of the Sistine Chapel?", ("Sistine",)),
    ("How tall is Mount Kilimanjaro?", ("Kilimanjaro",)),
    ("Who composed the opera Rigoletto?", ("Rigoletto",)),
    ("In which year did Amundsen reach the South Pole?", ("Amundsen",)),
    ("What is the boiling point of molybdenum?", ("molybdenum",)),
    ("How many moons does Uranus have?", ("Uranus",)),
    ("Who won the football world cup in Uruguay?", ("Uruguay",)),
    ("Which river flows through Ouagadougou?", ("Ouagadougou",)),
    ("How long is the gestation of an okapi?", ("okapi",)),
    ("Who wrote the novel Middlemarch?", ("Middlemarch",)),
    ("What do axolotls eat?", ("axolotl",)),
    ("When did Vesuvius bury Pompeii?", ("Vesuvius", "Pompeii")),
    ("Which language is spoken in Vanuatu?", ("Vanuatu",)),
    ("How is the cheese Emmental made?", ("Emmental",)),
    ("Who discovered the element polonium?", ("polonium",)),
    ("How deep is Lake Baikal?", ("Baikal",)),
    ("What is the currency of Mongolia?", ("Mongolia",)),
    ("Who designed the Sagrada Familia?", ("Sagrada",)),
    ("How fast does a peregrine falcon dive?", ("peregrine",)),
    ("Which gas makes up most of Neptune?", ("Neptune",)),
)
"""Questions, with words that stand in no document which answers none of them."""


@dataclass(frozen=True, slots=True)
class Started:
    """A starter, and names, versions and chunks of the documents that were read for it."""

    cases: tuple[Case, ...]
    read: tuple[tuple[str, str, str], ...]


def starter(principal: Principal, tenant: TenantHandle, count: int, seed: int = 1) -> Started:
    """At most `count` cases from what `principal` may read now, the same ones for the same `seed` and documents.

    Raises `NotFound` where it may read nothing that can be asked about, `InvalidInput`.
    """
    if not 1 <= count <= MOST:
        raise InvalidInput(f"a starter has 1 to {MOST} questions", item="count")
    # Reproducible, no secret: which questions are drawn is nothing to guess.
    dice = random.Random(seed)  # noqa: S311
    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        rows = view.execute(select(documents.c.id, documents.c.name).order_by(documents.c.name)).all()
        readable = readable_documents(domain, view, {row.id for row in rows})
        names = {row.id: row.name for row in rows if row.id in readable}
        general = _unanswerable(view, sorted(names), min(len(_GENERAL), int(count * UNANSWERABLE_SHARE)), dice)
        cases: list[Case] = []
        read: list[tuple[str, str, str]] = []
        for document_id in _rounds(sorted(names), dice):
            if len(cases) >= count - len(general):
                break
            found = _asked(view, names, document_id, principal.user, dice)
            if found is not None and all(found[0].question != case.question for case in cases):
                cases.append(found[0])
                read.append((names[document_id], readable[document_id], found[1]))
    if not cases:
        raise NotFound(
            "this asker may read no sentence that could be asked for",
            item=principal.user,
            remedy="name an asker who may read documents",
        )
    absent = (Case(question=question, unanswerable=True, asker=principal.user) for question in general)
    return Started((*cases, *absent), tuple(read))


def _rounds(ids: Sequence[int], dice: random.Random) -> Iterator[int]:
    """Each document once in a random order, then again: a tenant of few documents is asked more about each."""
    for _ in range(_TRIES if ids else 0):
        yield from dice.sample(ids, len(ids))


def _asked(
    view: ReadView, names: dict[int, str], document_id: int, asker: str, dice: random.Random
) -> tuple[Case, str] | None:
    """A case about one document, and the chunk that it is from."""
    rows = [row for row in view.execute(_CHUNKS, {"document": document_id}) if not row.hidden]
    for row in dice.sample(rows, min(len(rows), _TRIES)):
        usable = [one for one in sentences(row.text) if not one.heading and _is_usable(one)]
        numbered = [one for one in usable if _NUMBER.search(one.text)]
        if not usable:
            continue
        sentence = dice.choice(numbered or usable)
        question, facts = _question(sentence.text)
        also = _holding(view, sorted(names), sentence.text)
        case = Case(
            question=question,
            documents=tuple(sorted({names[document_id], *(names[one] for one in also)})),
            facts=facts,
            asker=asker,
        )
        return case, row.key or f"c{row.ordinal}"
    return None


def _is_usable(sentence: Sentence) -> bool:
    return _FEWEST <= len(set(content_words(sentence.text))) <= _MOST_WORDS and len(sentence.text) <= 400


def _question(sentence: str) -> tuple[str, tuple[str, ...]]:
    """A sentence with its first number taken out, which is the fact; or its longest words, and no fact."""
    text = " ".join(sentence.split()).rstrip(".!。！ ")
    found = _NUMBER.search(text)
    if found is not None:
        return f"{text[: found.start()]}{_GAP}{text[found.end() :]}?", (found.group(),)
    words = regex.findall(r"[\p{L}\p{M}\p{N}]+", text)
    kept = sorted(range(len(words)), key=lambda place: (-len(words[place]), place))[:_KEYWORDS]
    return f"{' '.join(words[place] for place in sorted(kept))}?", ()


def _holding(view: ReadView, ids: Sequence[int], text: str) -> set[int]:
    """The documents among `ids` that hold `text`, word for word."""
    query = select(chunks.c.document_id).where(chunks.c.text.contains(text, autoescape=True)).distinct()
    return set(view.execute(query).scalars()).intersection(ids)


def _unanswerable(view: ReadView, ids: Sequence[int], count: int, dice: random.Random) -> list[str]:
    found: list[str] = []
    for question, words in dice.sample(_GENERAL, len(_GENERAL)):
        if len(found) == count:
            break
        lower = {form for word in words for form in (word, word.lower(), word.upper())}
        if not any(_holding(view, ids, form) for form in lower):
            found.append(question)
    return found
