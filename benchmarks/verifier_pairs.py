"""Pairs of questions made by rules: one meaning in two wordings, or two meanings that differ in one thing.

`templates` makes both questions from the frames and words beside this module; `swaps` changes one thing in a question
that somebody asked. Everything is drawn from the generator that is passed in, so a seed gives the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import regex

from benchmarks import verifier_frames as frames
from benchmarks import verifier_words as words
from cache.guards.lexicon import EN_ANTONYMS


@dataclass(frozen=True, slots=True)
class Pair:
    """`same`: one answer serves both. `kind` says where the pair comes from; `weight` scales its loss."""

    a: str
    b: str
    same: bool
    kind: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Meaning:
    """A frame and its slots; two meanings are equal exactly where one answer serves both."""

    table: str
    frame: str
    slots: tuple[tuple[str, tuple[str, ...]], ...]
    scope: tuple[str, ...] = ()
    qualifier: tuple[str, ...] = ()
    domain: int = -1

    def slot(self, name: str) -> tuple[str, ...]:
        return dict(self.slots)[name]

    def with_slot(self, name: str, value: tuple[str, ...]) -> Meaning:
        return replace(self, slots=tuple((key, value if key == name else old) for key, old in self.slots))


TABLES = {
    "action": frames.ACTION,
    "thing": frames.THING,
    "placed": frames.PLACED,
    "named": frames.NAMED,
    "numbered": frames.NUMBERED,
}
_SHARES = (("action", 0.48), ("thing", 0.22), ("placed", 0.07), ("named", 0.1), ("numbered", 0.13))
_IRREGULAR = {
    "withdraw": "withdrawn", "take": "taken", "give": "given", "write": "written", "send": "sent", "put": "put",
    "cut": "cut", "shut": "shut", "see": "seen", "eat": "eaten", "grow": "grown", "freeze": "frozen", "buy": "bought",
    "sell": "sold", "teach": "taught", "bring": "brought", "leave": "left", "feed": "fed", "hand": "handed",
    "let": "let", "make": "made", "come": "come", "go": "gone", "get": "got", "keep": "kept", "quit": "quit",
    "drink": "drunk", "pay": "paid", "regain": "regained", "set": "set", "unfreeze": "unfrozen", "rebook": "rebooked",
    "learn": "learned",
}  # fmt: skip
_DOUBLE = frozenset(("put", "cut", "shut", "set", "let", "get", "log", "wrap", "quit", "swap", "stop"))
_IN_SLOT = regex.compile(r"\{(\w)\}")


def templates(random: Random, count: int) -> Iterator[Pair]:
    """Pairs of own sentences, half of each kind; of the different ones half in the same wording."""
    tables, shares = [table for table, _ in _SHARES], [share for _, share in _SHARES]
    for number in range(count):
        meaning = draw(random, random.choices(tables, shares)[0])
        one = wording(random, meaning)
        if number % 2:
            yield Pair(dressed(random, one[1]), dressed(random, wording(random, meaning)[1]), True, "template")
            continue
        other = changed(random, meaning)
        kept = one[0] if other.frame == meaning.frame and random.random() < 0.5 else None
        yield Pair(dressed(random, one[1]), dressed(random, wording(random, other, kept)[1]), False, "template")


def draw(random: Random, table: str) -> Meaning:
    frame = random.choice(list(TABLES[table]))
    scope = random.choice(random.choice(words.SCOPES)) if random.random() < 0.25 else ()
    if table == "action":
        domain = random.randrange(len(words.DOMAINS))
        verbs, objects = words.DOMAINS[domain]
        qualifier = random.choice(random.choice(words.QUALIFIERS)) if random.random() < 0.12 else ()
        slots = (("v", random.choice(verbs)), ("o", random.choice(objects)))
        return Meaning(table, frame, slots, scope, qualifier, domain)
    if table == "thing":
        domain = random.randrange(len(words.THINGS))
        return Meaning(table, frame, (("o", random.choice(words.THINGS[domain])),), scope, (), domain)
    needed = {name for line in TABLES[table][frame] for name in _IN_SLOT.findall(line)}
    return Meaning(table, frame, tuple((name, _value(random, name, frame)) for name in sorted(needed)), ())


def _value(random: Random, name: str, frame: str) -> tuple[str, ...]:
    if name in ("a", "b"):
        return (random.choice(words.COMPANIES if frame in ("move", "transfer") else words.PLACES),)
    plain: dict[str, Sequence[str]] = {
        "c": words.COUNTRIES, "m": words.COMPANIES, "d": words.DAYS, "e": words.MONTHS,
    }  # fmt: skip
    if name in plain:
        return (random.choice(plain[name]),)
    if name == "r":
        return random.choice(words.ROLES)
    if name == "x":
        return (f"{random.choice(words.FIRST_NAMES)} {random.choice(words.LAST_NAMES)}",)
    if name == "k":
        if frame == "capital":
            return (random.choice(words.CAPITALS),)
        return (str(random.choice((5, 10, 12, 15, 20, 25, 30, 40, 45, 50, 60, 75, 80, 100, 120, 150, 200, 250, 500))),)
    if name == "i":
        return (f"{random.choice(('', '', 'A', 'BX-', 'INV', 'C-'))}{random.randrange(100, 99999)}",)
    if name == "y":
        return (str(random.randrange(1950, 2027)),)
    if name == "t":
        hour, half = random.randrange(1, 12), random.choice(("am", "pm"))
        day = {"am": "in the morning", "pm": "in the afternoon" if hour < 6 else "in the evening"}[half]
        clock = f"{hour + 12 * (half == 'pm'):02d}:00"
        return (f"{hour}{half}", f"{hour} {half}", clock, f"{words.SMALL[hour - 1]} {day}", f"{hour} o'clock {day}")
    number = random.randrange(2, 30)
    return (str(number), words.SMALL[number - 1]) if number <= 12 else (str(number),)


def changed(random: Random, meaning: Meaning) -> Meaning:
    """Another meaning that differs in exactly one thing."""
    options: list[Callable[[], Meaning]] = [lambda: _other_frame(random, meaning)]
    options += [lambda name=name: _other_value(random, meaning, name) for name, _ in meaning.slots] * 2
    if meaning.table in ("action", "thing"):
        options += [lambda: _other_scope(random, meaning)] * 2
    if meaning.table == "action":
        options.append(lambda: _other_qualifier(random, meaning))
    if meaning.table == "placed":
        options += [lambda: replace(meaning, slots=(("a", meaning.slot("b")), ("b", meaning.slot("a"))))] * 3
    while True:
        other = random.choice(options)()
        if other != meaning:
            return other


def _other_frame(random: Random, meaning: Meaning) -> Meaning:
    table = TABLES[meaning.table]
    names = {name for name, _ in meaning.slots}
    if meaning.table in ("action", "thing", "placed"):
        fitting = list(table)
    else:
        fitting = [frame for frame, lines in table.items() if set(_IN_SLOT.findall(lines[0])) == names]
    return replace(meaning, frame=random.choice(fitting))


def _other_value(random: Random, meaning: Meaning, name: str) -> Meaning:
    if meaning.table == "action":
        return meaning.with_slot(name, random.choice(words.DOMAINS[meaning.domain][0 if name == "v" else 1]))
    if meaning.table == "thing":
        return meaning.with_slot(name, random.choice(words.THINGS[meaning.domain]))
    old = meaning.slot(name)[0]
    value = _value(random, name, meaning.frame)
    if name == "x" and random.random() < 0.6:
        first, last = old.split()
        parts = value[0].split()
        value = (f"{first} {parts[1]}",) if random.random() < 0.5 else (f"{parts[0]} {last}",)
    if name in ("i", "y", "k", "n") and old.isdigit() and random.random() < 0.6:
        value = (_near_number(random, old),)
    if name == "t" and random.random() < 0.4:
        hour = regex.match(r"\d+", old)
        half = "pm" if old.endswith("am") else "am"
        value = (f"{hour.group() if hour else 7}{half}",)
    return meaning if value[0] == old else meaning.with_slot(name, value)


def _near_number(random: Random, number: str) -> str:
    kind = random.randrange(4)
    if kind == 0:
        return number + "0"
    if kind == 1:
        return str(int(number) + random.choice((1, 2, 5, 10)))
    position = random.randrange(len(number))
    if kind == 2 and len(number) > 1:
        position = max(1, position)
        turned = number[: position - 1] + number[position] + number[position - 1] + number[position + 1 :]
        return turned.lstrip("0") or "1"
    digit = random.choice("123456789")
    return number[:position] + digit + number[position + 1 :]


def _other_scope(random: Random, meaning: Meaning) -> Meaning:
    if not meaning.scope:
        return replace(meaning, scope=random.choice(random.choice(words.SCOPES)))
    if random.random() < 0.4:
        return replace(meaning, scope=())
    group = next(group for group in words.SCOPES if meaning.scope in group)
    return replace(meaning, scope=random.choice(group))


def _other_qualifier(random: Random, meaning: Meaning) -> Meaning:
    if meaning.qualifier and random.random() < 0.4:
        return replace(meaning, qualifier=())
    return replace(meaning, qualifier=random.choice(random.choice(words.QUALIFIERS)))


def wording(random: Random, meaning: Meaning, line: str | None = None) -> tuple[str, str]:
    """The line of the frame that was taken, and the question in it."""
    line = line or random.choice(TABLES[meaning.table][meaning.frame])
    values = {name: random.choice(value) for name, value in meaning.slots}
    if "v" in values:
        verb = values["v"]
        values |= {"g": gerund(verb), "p": participle(verb)}
    if meaning.qualifier:
        values["o"] = _qualified(values["o"], random.choice(meaning.qualifier))
    text = line
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    if meaning.scope:
        text = _scoped(random, text, random.choice(meaning.scope))
    return line, text[0].upper() + text[1:]


def _scoped(random: Random, text: str, scope: str) -> str:
    bare, mark = (text[:-1], "?") if text.endswith("?") else (text, "")
    if random.random() < 0.12:
        return f"{scope}, {bare[0].lower()}{bare[1:]}{mark}"
    head, comma, tail = bare.partition(", ")
    return f"{head} {scope}{comma}{tail}{mark}"


def _qualified(thing: str, adjective: str) -> str:
    first, _, rest = thing.partition(" ")
    if first in ("a", "an", "my", "the", "our") and rest:
        if first in ("a", "an"):
            first = "an" if adjective[0] in "aeiou" else "a"
        return f"{first} {adjective} {rest}"
    return f"{adjective} {thing}"


def gerund(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first in _DOUBLE:
        stem = first + first[-1]
    elif first.endswith("e") and not first.endswith(("ee", "ye")):
        stem = first[:-1]
    else:
        stem = first
    return f"{stem}ing{space}{rest}"


def participle(verb: str) -> str:
    first, space, rest = verb.partition(" ")
    if first in _IRREGULAR:
        past = _IRREGULAR[first]
    elif first in _DOUBLE:
        past = f"{first}{first[-1]}ed"
    elif first.endswith("e"):
        past = f"{first}d"
    elif first.endswith("y") and first[-2] not in "aeiou":
        past = f"{first[:-1]}ied"
    else:
        past = f"{first}ed"
    return f"{past}{space}{rest}"


def dressed(random: Random, text: str) -> str:
    """The same question as people type it: politeness, case, marks, misspelt words, short forms."""
    if random.random() < 0.1:
        before = random.choice(words.FILLERS_BEFORE)
        text = before + (text if before.endswith("! ") else text[0].lower() + text[1:])
    if random.random() < 0.08:
        text = text.rstrip("?") + random.choice(words.FILLERS_AFTER)
    if random.random() < 0.3:
        for full, short in (("What is ", "What's "), ("what is ", "whats "), ("I am ", "I'm "), ("do not ", "don't ")):
            text = text.replace(full, short) if random.random() < 0.5 else text.replace(short, full)
    if random.random() < 0.1:
        text = _misspelt(random, text)
    if random.random() < 0.15:
        text = text.lower()
    if random.random() < 0.15:
        text = text.rstrip("?.! ")
    return text


def _misspelt(random: Random, text: str) -> str:
    long = list(regex.finditer(r"\b[a-z]{6,}\b", text))
    if not long:
        return text
    match = random.choice(long)
    word: str = match.group()
    at = random.randrange(2, len(word) - 2)
    wrong = random.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        )
    )
    return text[: match.start()] + wrong + text[match.end() :]


_OPPOSITES: dict[str, list[str]] = {}
for _one, _other in sorted(EN_ANTONYMS):
    _OPPOSITES.setdefault(_one, []).append(_other)
_NEGATED = regex.compile(
    r"\b(should|can|could|must|will|would|may|do|does|did) "
    r"(I|you|we|they|he|she|it|people|one|someone|anyone|women|men)\b"
)
_SINGLE = regex.compile(r"\b(?:not|never)\b |n't\b")
_NUMBER = regex.compile(r"(?<![\w.,])\d{1,6}(?![\w,]*\d)")
_NAME = regex.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*")
_FROM_TO = regex.compile(r"\b(from) ([\w-]+) (to) ([\w-]+)")
_THAN = regex.compile(
    r"\b(?:Is|Are|Does|Do|Was|Were|is|are) ([\w' -]{3,30}?) "
    r"((?:better|worse|more \w+|less \w+|\w{3,}er) than) ([\w' -]{3,30})\?$"
)
_UNCLEAR = frozenset(("in", "on", "up", "out", "work", "like", "right", "question", "kids"))
_QUESTION = {"how": "why", "why": "how", "when": "where", "where": "when", "who": "when"}
_ADDED = (
    "in India", "in the US", "in Germany", "in 2012", "for free", "for beginners", "for women", "without a degree",
    "online", "at home", "in winter", "for children", "as a student", "in a small town", "over 40", "on a Mac",
    "within a week", "in the 1990s", "abroad", "at night",
)  # fmt: skip


def swaps(random: Random, questions: Sequence[str], count: int) -> Iterator[Pair]:
    """At most `count` pairs from questions that were asked: two in three different in one thing, the rest dressed."""
    names = sorted({match for question in questions for match in _NAME.findall(question)})
    made = 0
    for question in random.sample(list(questions), len(questions)):
        if made >= count:
            return
        if not 4 <= len(question.split()) <= 24:
            continue
        if made % 3 == 0:
            other: str | None = dressed(random, dressed(random, question))
            same = True
        else:
            other, same = _swapped(random, question, names), False
        if other and other != question:
            made += 1
            yield Pair(question, dressed(random, other) if not same else other, same, "swap")


def crossed(random: Random, pairs: Sequence[Pair], count: int) -> Iterator[Pair]:
    """At most `count` pairs of other words and one change: a question, and its labelled rewording with a swap."""
    names = sorted({match for pair in pairs for match in _NAME.findall(pair.a)})
    made = 0
    for pair in random.sample(list(pairs), len(pairs)):
        if made >= count:
            return
        if pair.same and len(pair.b.split()) <= 24 and (other := _swapped(random, pair.b, names)):
            made += 1
            yield Pair(dressed(random, pair.a), other, False, "crossed")


def _swapped(random: Random, question: str, names: Sequence[str]) -> str | None:
    """The question with one thing changed, or nothing where no rule fits; common rules are tried last."""
    rules = [_by_number, _by_name, _by_opposite, _by_order]
    random.shuffle(rules)
    for rule in [*rules, _by_negation if random.random() < 0.5 else _by_qualifier, _by_question_word]:
        if (found := rule(random, question, names)) and found != question:
            return found
    return _by_qualifier(random, question, names)


def _by_number(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    found = list(_NUMBER.finditer(question))
    if not found:
        return None
    match = random.choice(found)
    return question[: match.start()] + _near_number(random, match.group()) + question[match.end() :]


def _by_name(random: Random, question: str, names: Sequence[str]) -> str | None:
    found = list(_NAME.finditer(question))
    if not found or not names:
        return None
    match = random.choice(found)
    return question[: match.start()] + random.choice(names) + question[match.end() :]


def _by_opposite(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    words_ = regex.finditer(r"[a-z]+", question)
    fitting = [match for match in words_ if match.group() in _OPPOSITES and match.group() not in _UNCLEAR]
    if not fitting:
        return None
    match = random.choice(fitting)
    return question[: match.start()] + random.choice(_OPPOSITES[match.group()]) + question[match.end() :]


def _by_order(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    if match := _FROM_TO.search(question):
        return question[: match.start()] + f"from {match[4]} to {match[2]}" + question[match.end() :]
    if match := _THAN.search(question):
        return f"{question[: match.start(1)]}{match[3]} {match[2]} {match[1]}?"
    return None


def _by_negation(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    if match := _SINGLE.search(question):
        return (question[: match.start()] + question[match.end() :]).replace("  ", " ")
    if match := _NEGATED.search(question):
        return f"{question[: match.end()]} not{question[match.end() :]}"
    if match := regex.search(r"\b(is|are|was|were) (it|there|this|that) ", question, flags=regex.IGNORECASE):
        return f"{question[: match.end()]}not {question[match.end() :]}"
    return None


def _by_question_word(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    first, _, rest = question.partition(" ")
    other = _QUESTION.get(first.lower())
    return f"{other.capitalize()} {rest}" if other and random.random() < 0.4 else None


def _by_qualifier(random: Random, question: str, names: Sequence[str]) -> str | None:  # noqa: ARG001 - one signature
    if not question.endswith("?") or question.count("?") > 1:
        return None
    return f"{question[:-1].rstrip()} {random.choice(_ADDED)}?"
