"""Follow-up questions made to stand alone by rules, for generators that cannot do it themselves.

English and simple Chinese. Each rule names what it saw; where none is sure, the question stays as it is. The history
is folded from its first question on, so that a chain of follow-ups keeps its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import regex

from generation.prompt import Turn
from generation.words import content_words, is_function_word, words
from retrieval.followup_zh import rewrite_chinese

Rule = Literal["none", "ellipsis", "wh-only", "pronoun", "deictic", "chinese"]

_LONGEST = 1_000
_PREPOSITIONS = "in|for|at|on|during|with|without|by|from|under|after|before|to|of|within|about"

_ELLIPSIS = regex.compile(
    r"^(?:(?:and|but|or|so|ok(?:ay)?|then|also)[,\s]+)*(?P<opening>(?:what|how) about\s+|what (?=if\s)|and\s+|also\s+)"
    r"(?P<rest>[^?]+)\??$",
    regex.IGNORECASE,
)
_BARE_PREPOSITION = regex.compile(rf"^(?P<rest>(?:{_PREPOSITIONS})\s+[^?]+)\?$", regex.IGNORECASE)
_STARTS_WITH_PREPOSITION = regex.compile(rf"^(?P<preposition>{_PREPOSITIONS})\s+(?P<object>.+)$", regex.IGNORECASE)
_WH_ONLY = regex.compile(
    r"^(?:(?:and|but|so)[,\s]+)*(?P<wh>why(?: not)?|how|when|where|who|since when|until when|how (?:much|many|long)"
    r"|how often|by whom|from whom)\s*\??$",
    regex.IGNORECASE,
)
_AUXILIARY = r"(?:is|are|was|were|do|does|did|can|could|may|must|should|will|would|has|have)"
_YES_NO = regex.compile(rf"^{_AUXILIARY}(?:n't)?\b", regex.IGNORECASE)
_CLAUSE = regex.compile(
    rf"^(?:{_AUXILIARY}|who|what|when|where|why|how|which|whose)(?:n't)?\b|^(?:i|we|you|he|she|they|it)\s+\p{{Ll}}",
    regex.IGNORECASE,
)
_PRONOUN = regex.compile(
    r"\b(?P<pronoun>it|its|they|them|their|theirs|he|him|his|she|her|hers)\b(?!['’](?:d|ll))", regex.IGNORECASE
)
_POSSESSIVE = frozenset({"its", "their", "theirs", "his", "hers"})
_DEICTIC = regex.compile(r"\b(?P<pronoun>this|that|these|those)(?=\s*(?:\?|$|[,.;]))", regex.IGNORECASE)
_DEICTIC_SUBJECT = regex.compile(
    rf"^(?P<before>(?:[\w']+\s+){{0,3}}?{_AUXILIARY}\s+)(?P<pronoun>this|that|these|those)"
    r"(?=\s+(?:apply|count|include|cover|mean|work|cost|also|still|allowed|require|requires|required|need|allow|valid|mandatory|optional|true|different"
    r"|for|in|on|to|by|only)\b)",
    regex.IGNORECASE,
)
_EXPLETIVE = regex.compile(
    r"\bis it\s+(?:\w+\s+)?\w+\s+(?:to|that|if)\b|\bit\s+(?:is|was)\s+\w+\s+(?:to|that)\b|\bit\s+takes?\b"
    r"|\bit\s+rains?\b|\bdoes it\s+(?:take|matter)\b",
    regex.IGNORECASE,
)
_QUESTION_OPENING = regex.compile(
    rf"^(?:(?:what|which|who|whom|whose|when|where|why|how)(?:\s+(?:many|much|long|often|far|old))?|{_AUXILIARY})\b\s*",
    regex.IGNORECASE,
)
_NOUN_PHRASE = regex.compile(
    r"\b(?:the|our|my|your|this|a|an)\s+(?P<np>(?:(?!\b(?:is|are|was|were|do|does|did|can|could|may|must|should|will|would|"
    r"has|have|for|at|on|to|by|from|with|when|if|that|which|who|apply|applies|cover|covers|include|includes|say|says|work|"
    r"works|expire|expires|require|requires|allow|allows|need|needs)\b)[\w'’&-]+\s*){1,6})",
    regex.IGNORECASE,
)
_PARTICIPLE = regex.compile(r"(?<=\w)\s+\w+ed$")
_NAME = regex.compile(r"(?<=\s)\p{Lu}[\w'’&.-]*\w(?:\s+(?:of|and|the|for)?\s*\p{Lu}[\w'’&.-]*\w)*")
_PEOPLE = regex.compile(
    r"\b(?:(?:full|part)-time\s+)?(?:employees?|managers?|staff|contractors?|interns?|directors?|vendors?|customers?|"
    r"consultants?|workers?|members?|visitors?|executives?|trainees?|apprentices?|officers?|men|women|students?)\b",
    regex.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`text` stands alone as far as the rules could tell; `rule` is the last that changed it."""

    text: str
    changed: bool
    rule: Rule


def stand_alone(question: str, history: Sequence[Turn]) -> Rewritten:
    """Rewrite `question` with what the earlier questions of `history` were about; unchanged where no rule is sure."""
    previous: str | None = None
    for turn in history:
        if turn.role == "user" and turn.text.strip():
            previous = _rewrite(_one_line(turn.text), previous).text
    found = _rewrite(_one_line(question), previous)
    return found if found.changed else Rewritten(question, False, "none")


def _one_line(text: str) -> str:
    """Single spaces: the patterns below take a time that grows with the square of a run of white space."""
    return " ".join(text.split())


def _rewrite(question: str, previous: str | None) -> Rewritten:
    unchanged = Rewritten(question, False, "none")
    if previous is None or len(question) > _LONGEST or len(previous) > _LONGEST:
        return unchanged
    if regex.search(r"\p{Han}", question):
        text = rewrite_chinese(question, previous)
        return Rewritten(text, True, "chinese") if text is not None and text != question else unchanged
    for rule, apply in _RULES:
        text = apply(question, previous)
        if text is not None and text != question:
            return Rewritten(text, True, rule)
    return unchanged


def _ellipsis(question: str, previous: str) -> str | None:
    """ "And in Germany?", "What about managers?": the previous question with one part exchanged or added."""
    match = _ELLIPSIS.match(question) or _BARE_PREPOSITION.match(question)
    if match is None:
        return None
    rest = str(match.group("rest")).strip()
    body = previous.rstrip(" ?")
    if rest.lower().startswith("if "):
        return f"{body}, {rest}?"
    if _CLAUSE.match(rest) or len(content_words(rest)) > 6:
        return None
    prepositional = _STARTS_WITH_PREPOSITION.match(rest)
    if prepositional:
        same = regex.compile(
            rf"\b{prepositional['preposition']}(?:\s+(?!(?:{_PREPOSITIONS})\b)[^\s,]+){{1,4}}$", regex.IGNORECASE
        )
        earlier = same.search(body)
        return f"{body[: earlier.start()].rstrip()} {rest}?" if earlier else f"{body} {rest}?"
    if _PEOPLE.search(rest) and (earlier := _PEOPLE.search(body)):
        return f"{body[: earlier.start()]}{rest}{body[earlier.end() :]}?"
    names = list(_NAME.finditer(body))
    if rest[0].isupper() and len(names) == 1:
        return f"{body[: names[0].start()]}{rest}{body[names[0].end() :]}?"
    if sibling := _sibling(rest, body):
        return f"{body[: sibling[0]]}{rest}{body[sibling[1] :]}?"
    return f"{body}, regarding {rest}?"


def _sibling(phrase: str, body: str) -> tuple[int, int] | None:
    """Where `body` has a phrase of the same kind: "casual leave" for "sick leave"."""
    parts = phrase.split()
    if len(parts) < 2:
        return None
    for match in regex.finditer(rf"\b([\w'’-]+)\s+{regex.escape(parts[-1])}\b", body, regex.IGNORECASE):
        if not all(is_function_word(word) for word in words(match.group(1))):
            return match.start(), match.end()
    return None


def _wh_only(question: str, previous: str) -> str | None:
    """ "Why?" after a question: that question again, with the new question word."""
    match = _WH_ONLY.match(question)
    if match is None:
        return None
    word = match.group("wh").lower().removesuffix(" not")
    body = previous.rstrip(" ?")
    if _YES_NO.match(body):
        return f"{word.capitalize()} {body[0].lower()}{body[1:]}?"
    opening = regex.match(r"(?:what|which|who|when|where|why|how)\s+(?=\S)", body, regex.IGNORECASE)
    if opening and _YES_NO.match(body[opening.end() :]):
        return f"{word.capitalize()} {body[opening.end() :]}?"
    return f"{body}, {word}?"


def _pronoun(question: str, previous: str) -> str | None:
    """ "Does it apply to interns?": the topic of the previous question in its place.

    A previous question without a clear topic is added in brackets instead.
    """
    match = _PRONOUN.search(question)
    if match is None or _EXPLETIVE.search(question) or _has_antecedent(question[: match.start()]):
        return None
    return _replaced(question, match, previous)


def _deictic(question: str, previous: str) -> str | None:
    """ "Who approved that?": likewise, where the word stands alone and not before a noun or a clause."""
    match = _DEICTIC_SUBJECT.search(question) or _DEICTIC.search(question)
    if match is None or _has_antecedent(question[: match.start("pronoun")]):
        return None
    return _replaced(question, match, previous)


def _replaced(question: str, match: regex.Match[str], previous: str) -> str | None:
    topic = _topic(previous)
    if topic is None:
        return f"{question} ({previous.rstrip(' ?')})"
    pronoun = match.group("pronoun").lower()
    possessive = pronoun in _POSSESSIVE or (pronoun == "her" and bool(regex.match(r"\s+\w", question[match.end() :])))
    ending = ("'" if topic.endswith("s") else "'s") if possessive else ""
    start, end = match.span("pronoun")
    replaced = f"{question[:start]}{topic}{ending}{question[end:]}"
    return replaced[0].upper() + replaced[1:]


def _has_antecedent(before: str) -> bool:
    """Whether the question itself already names what the pronoun stands for."""
    if _NAME.search(f" {before}"[1:]):
        return True
    rest = _QUESTION_OPENING.sub("", before)
    return bool(_NOUN_PHRASE.search(rest)) or sum(not is_function_word(word) for word in words(rest)) > 3


def _topic(previous: str) -> str | None:
    """What the previous question was about: a noun phrase with a determiner, or a name; `None` for a whole clause."""
    body = previous.rstrip(" ?")
    quoted = regex.search(r"[\"“]([^\"”]+)[\"”]", body)
    if quoted:
        return str(quoted.group(1))
    phrase = _NOUN_PHRASE.search(body)
    if phrase:
        return f"the {_PARTICIPLE.sub('', phrase.group('np').strip())}"
    name = _NAME.search(body)
    if name:
        return str(name.group())
    return None


_RULES: tuple[tuple[Rule, Callable[[str, str], str | None]], ...] = (
    ("wh-only", _wh_only),
    ("ellipsis", _ellipsis),
    ("pronoun", _pronoun),
    ("deictic", _deictic),
)
