"""Forms guard: small words and endings between the same content words.

"rent" and "rent out", "my boss fires me" and "I fire my boss", "was I paid" and "did I pay", "the paying agent" and
"the paid agent", "only managers approve" and "managers only approve", "test server" and "server test" share every word
that carries content. The rules hold only where all content is the same; anything else is for the other guards.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cache.guards import lexicon
from cache.guards.relations import is_number
from cache.guards.thesaurus import thesaurus
from cache.guards.units import MONTHS, WEEKDAYS
from cache.guards.words import Language, Text
from cache.verdict import Verdict, passed, veto

NAME = "forms"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PARTICLES: Final = _words("out off over up down on away back against to for with about")
# These make another verb also where the other text has none.
_OWN: Final = _words("out off over up on against")
_ALIKE: Final = ({"to", "with"}, {"about", "on"}, {"about", "for"})
_BE: Final = _words("is are was were am be been being")
_PASSIVE: Final = _BE | _words("get gets got getting")
_AUXILIARY: Final = _PASSIVE | _words("do does did has have had will would by")
_BEFORE_VERBS: Final = _BE | _words("i you we they he she to can could should will would do does did who not")
_SUBJECTS: Final = {"i": 1, "we": 2, "he": 3, "she": 4, "they": 5}
_OBJECTS: Final = {"me": 1, "us": 2, "him": 3, "them": 5}
# "For me to cancel", "let me cancel", "tell me": the person behind these does it, or is only told.
_LOOSE: Final = frozenset({"for", "let", "lets"}) | lexicon.EN_FILLERS
# Of two of these in each other's place, each names another part ("on" and "by" a train are one).
_OTHER_PART: Final = frozenset(
    _words(pair)
    for pair in (
        "for from",
        "for by",
        "for with",
        "for as",
        "for against",
        "by to",
        "by as",
        "with as",
        "to as",
        "to from",
    )
)
# Behind a subject a form with "s" is a verb: "how it works".
_NOT_PLURAL: Final = _words("it he she this that who")
# With one of these the past is told otherwise, or the participle is none.
_TIMED: Final = _PASSIVE | _words("did had would by")
_HAVE: Final = _words("has have")
_ARTICLES: Final = _words("a an the my your our his her its their this that each every one which what")
_PLURALS: Final = _words("children women men people")
_FOCUS: Final = _words("only even just")


def check(question: Text, cached: Text, language: Language) -> Verdict:
    if language is Language.CHINESE or question.words == cached.words:
        return passed(NAME)
    if _roots(question) != _roots(cached):
        return passed(NAME)
    if _particle_differs(question, cached) or _particle_differs(cached, question):
        return veto(NAME, "another verb")
    if _party_differs(question, cached):
        return veto(NAME, "person does or suffers")
    if _voice_differs(question, cached) or _voice_differs(cached, question):
        return veto(NAME, "voice differs")
    if _stage_differs(question.words, cached.words):
        return veto(NAME, "stage differs")
    if _focus_differs(question, cached):
        return veto(NAME, "focus differs")
    if _preposition_differs(question, cached):
        return veto(NAME, "preposition differs")
    if _plural_differs(question, cached) or _plural_differs(cached, question):
        return veto(NAME, "plural with a meaning of its own")
    if _time_differs(question, cached) or _time_differs(cached, question):
        return veto(NAME, "time differs")
    if _nouns_swapped(question, cached):
        return veto(NAME, "nouns exchanged")
    return passed(NAME)


def _roots(text: Text) -> Counter[str]:
    return Counter(text.stems[word] for word in text.content if word not in _FOCUS)


def _particle_differs(question: Text, cached: Text) -> bool:
    """Whether a verb has another particle in `cached` ("apply for", "apply to"), or has lost one ("rent out")."""
    ours, theirs = _particles(question), _particles(cached)
    for root in ours.keys() & theirs.keys():
        mine, other = ours[root], theirs[root]
        if not mine or mine in cached.words:
            continue
        if other and other not in question.words and {mine, other} not in _ALIKE:
            return True
        if not other and (mine in _OWN or (mine == "for" and question.words[-1] == "for")):
            return True
    return False


def _particles(text: Text) -> dict[str, str]:
    """The particle right behind each verb, by its stem; "" where there is none."""
    words, content, found = text.words, set(text.content), dict[str, str]()
    for position, word in enumerate(words):
        if word not in content or not _is_verb(word, words[position - 1] if position else "who"):
            continue
        after, beyond = [*words[position + 1 : position + 3], "", ""][:2]
        particle = after if after in _PARTICLES and not _is_bound(beyond) and (after, beyond) != ("up", "to") else ""
        found.setdefault(text.stems[word], particle)
    return found


def _is_bound(word: str) -> bool:
    """ "On Monday", "over five": no particle of a verb."""
    return word in WEEKDAYS or word in MONTHS or is_number(word)


def _is_verb(word: str, before: str) -> bool:
    parts = thesaurus().word(word).parts
    return before in _BEFORE_VERBS or (parts[:1] == "v" and before not in ("a", "an", "the"))


def _party_differs(question: Text, cached: Text) -> bool:
    """ "We owe the client" against "the client owes us": a person does it in one text and suffers it in the other."""
    if "by" in question.words or "by" in cached.words:
        return False
    ours, theirs = (_cases(question), _cases(cached))
    return any(ours[person] != theirs[person] for person in ours.keys() & theirs.keys())


def _cases(text: Text) -> dict[int, bool]:
    """Of each person that stands in one case only, whether it is the subject."""
    found: dict[int, set[bool]] = {}
    for before, word in zip(("", *text.words), text.words, strict=False):
        if word in _SUBJECTS:
            found.setdefault(_SUBJECTS[word], set()).add(True)
        elif word in _OBJECTS and before not in _LOOSE:
            found.setdefault(_OBJECTS[word], set()).add(False)
    return {person: cases.pop() for person, cases in found.items() if len(cases) == 1}


def _voice_differs(question: Text, cached: Text) -> bool:
    """ "Was I paid" against "did I pay", "who is promoted" against "who promoted", "paid agent" against "paying"."""
    ours, theirs = _bare(question), _bare(cached)
    if [question.stems[word] for word in ours] != [cached.stems[word] for word in theirs]:
        return False
    passive = not _PASSIVE.isdisjoint(question.words) and _PASSIVE.isdisjoint(cached.words)
    return any(
        _is_participle(one) and ((passive and one not in ("started", "done")) or _is_present(two))
        for one, two in zip(ours, theirs, strict=True)
        if one not in lexicon.EN_FUNCTION
    )


def _bare(text: Text) -> list[str]:
    return [word for word in text.words if word not in _AUXILIARY]


def _is_participle(word: str) -> bool:
    return word.endswith("ed") or word in lexicon.IRREGULAR


def _is_present(word: str) -> bool:
    return word.endswith("ing")


def _stage_differs(ours: tuple[str, ...], theirs: tuple[str, ...]) -> bool:
    """ "Is it being paid" against "has it been paid"; "too late" against "late"."""
    going = ("being" in ours and "been" in theirs) or ("been" in ours and "being" in theirs)
    # At the end of a question "too" means "also".
    return going or ("too" in ours[:-1]) != ("too" in theirs[:-1])


def _focus_differs(question: Text, cached: Text) -> bool:
    """ "Only managers approve" against "managers only approve": the same words, but for the place of "only"."""
    for focus in _FOCUS:
        if question.words.count(focus) != 1 or cached.words.count(focus) != 1:
            continue
        ours, theirs = question.words.index(focus), cached.words.index(focus)
        if ours != theirs and _without(question.words, ours) == _without(cached.words, theirs):
            return True
    return False


def _without(words: tuple[str, ...], position: int) -> tuple[str, ...]:
    return words[:position] + words[position + 1 :]


def _preposition_differs(question: Text, cached: Text) -> bool:
    """ "Tips for staff" against "tips from staff": all words are the same, but for one that names another part."""
    ours, theirs = _without_articles(question), _without_articles(cached)
    if len(ours) != len(theirs):
        return False
    apart = [(one, other) for one, other in zip(ours, theirs, strict=True) if one != other]
    return len(apart) == 1 and frozenset(apart[0]) in _OTHER_PART


def _without_articles(text: Text) -> list[str]:
    return [text.stems[word] for word in text.words if word not in ("a", "an", "the")]


def _plural_differs(question: Text, cached: Text) -> bool:
    """ "Customs" against "custom"; "two glasses" and "savings account" are plain."""
    words = question.words
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        if before in _NOT_PLURAL or is_number(before) or word in cached.words:
            continue
        singles = {lexicon.PLURALS.get(word)}
        if after not in question.content:
            singles.add(lexicon.PLURALS_ALONE.get(word))
        if after in ("of", "and"):
            singles.add(lexicon.PLURALS_OF.get(word))
        # "The algorithm works" is a verb, "the works council" is none.
        if before not in question.content and (mass := lexicon.PLURALS_MASS.get(word)) and _is_mass(mass, cached):
            singles.add(mass)
        if any(single in cached.words and single not in words for single in singles if single):
            return True
    return False


def _is_mass(word: str, text: Text) -> bool:
    """Whether the word stands for no single thing there: without an article, or before the noun that it qualifies."""
    position = text.words.index(word) if word in text.words else -1
    before, after = (["", *text.words][position], [*text.words, ""][position + 1])
    return position >= 0 and before not in text.content and (before not in _ARTICLES or after in text.content)


def _time_differs(question: Text, cached: Text) -> bool:
    """ "Which contracts expired" against "which contracts expire", "has he charged" against "does he charge"."""
    if not _TIMED.isdisjoint((*question.words, *cached.words)):
        return False
    perfect = not _HAVE.isdisjoint(question.words)
    if not _HAVE.isdisjoint(cached.words) or (perfect and {"do", "does"}.isdisjoint(cached.words)):
        return False
    present = {cached.stems[word]: word for word in cached.content}
    return any(
        _is_past(word) and (other := present.get(question.stems[word], word)) != word and not _is_inflected(other)
        for word in question.content
    )


def _is_past(word: str) -> bool:
    return _is_participle(word) and word not in _PLURALS


def _is_inflected(word: str) -> bool:
    return _is_participle(word) or _is_present(word)


def _nouns_swapped(question: Text, cached: Text) -> bool:
    """ "Test server" against "server test": two neighbours changed places, and nothing else moved."""
    ours, theirs = question.words, cached.words
    if len(ours) != len(theirs):
        return False
    apart = [place for place, (one, two) in enumerate(zip(ours, theirs, strict=True)) if one != two]
    if len(apart) != 2 or apart[1] != apart[0] + 1:
        return False
    first, second = (question.stems[ours[place]] for place in apart)
    if (second, first) != tuple(cached.stems[theirs[place]] for place in apart):
        return False
    table = thesaurus()
    capitals = {word for word in (*question.cased[1:], *cached.cased[1:]) if word[0].isupper()}
    return all(
        word in question.content
        and "n" in table.word(word).parts
        and word.capitalize() not in capitals
        and not is_number(word)
        for word in (ours[place] for place in apart)
    )
