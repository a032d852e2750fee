"""Sets of questions with what is expected of each, as JSON Lines.

    {"question": "How long is the notice?", "documents": ["handbook.md"], "facts": ["three months"], "asker": "ana"}
    {"question": "Who won the cup?", "unanswerable": true}

A line that cannot be used is named with its number and reason, and the others are used.
"""

from __future__ import annotations

import unicodedata
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tenancy.errors import InvalidInput
from tenancy.keys import keyed_hash
from tenancy.names import nfc_name
from tenancy.tenant import TenantHandle

MOST_CASES: Final = 5_000
MOST_BYTES: Final = 20_000_000
_REMEDY: Final = "see docs/operations/evaluation.md"

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=8_000)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """`documents` are names of those that answer, any of which is right to cite, and `places` where in them ("page 3");
    `facts` are texts that the answer holds. `asker` is a user of the tenant, under whose permissions it is asked. Of an
    `unanswerable` one the right answer is that it is in no document.
    """

    question: Text
    documents: tuple[Name, ...] = ()
    places: tuple[Name, ...] = ()
    facts: tuple[Text, ...] = ()
    asker: Name | None = None
    unanswerable: bool = False


@dataclass(frozen=True, slots=True)
class BadLine:
    """`number` counts from 1. No reason quotes the line."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The cases of a set, no question of one asker twice, with the lines they stand on, and the lines that are none."""

    cases: tuple[Case, ...]
    lines: tuple[int, ...]
    bad: tuple[BadLine, ...] = ()


def read_set(path: Path) -> QuestionSet:
    """The set in a file of JSON Lines. Raises `InvalidInput` where it cannot be read, or no line of it can be used."""
    try:
        with path.open("rb") as file:
            # Bounded by what is read: a pipe or a device has no size.
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput("the set cannot be read", item=str(path), remedy=str(error.strerror)) from None
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"a set has at most {MOST_BYTES:,} bytes", item=str(path), remedy="split it")
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InvalidInput("the set is UTF-16", item=str(path), remedy="save it as UTF-8")
    found = parse_lines(data.removeprefix(BOM_UTF8).split(b"\n"))
    if not found.cases:
        why = f"line {found.bad[0].number}: {found.bad[0].reason}" if found.bad else "it is empty"
        raise InvalidInput(f"no line of the set can be used ({why})", item=str(path), remedy=_REMEDY)
    return found


def parse_lines(lines: Iterable[bytes]) -> QuestionSet:
    """The cases of `lines`; blank lines are left out. Raises `InvalidInput` where there are too many."""
    cases: list[Case] = []
    places: list[int] = []
    bad: list[BadLine] = []
    seen: set[tuple[str, str | None]] = set()
    decoder = msgspec.json.Decoder(Case)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        reason = None
        try:
            case = _checked(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput) as error:
            reason = _reason(error)
        else:
            key = (case.question, case.asker)
            if key in seen:
                reason = "the same question of the same asker stands above"
            seen.add(key)
        if reason is not None:
            bad.append(BadLine(number, reason))
            continue
        cases.append(case)
        places.append(number)
        if len(cases) > MOST_CASES:
            raise InvalidInput(f"a set has at most {MOST_CASES:,} questions", item=f"line {number}", remedy="split it")
    return QuestionSet(tuple(cases), tuple(places), tuple(bad))


def question_key(tenant: TenantHandle, case: Case) -> bytes:
    """A keyed hash (16 bytes) of question and asker, by which runs are paired; it stays when the data key changes."""
    return keyed_hash(tenant.audit.purpose("evaluation-question"), case.question, case.asker or "")[:16]


def encoded(cases: Sequence[Case]) -> bytes:
    """The cases as JSON Lines."""
    return b"".join(msgspec.json.encode(case) + b"\n" for case in cases)


def _checked(case: Case) -> Case:
    if not case.question.strip():
        raise InvalidInput("the question is blank")
    if case.unanswerable and (case.documents or case.facts):
        raise InvalidInput("an unanswerable question has neither documents nor facts")
    if case.places and not case.documents:
        raise InvalidInput("it says places, and no document that they are in")
    if not case.unanswerable and not (case.documents or case.facts):
        raise InvalidInput("it says neither documents nor facts, nor that it is unanswerable")
    if not all(fact.strip() for fact in case.facts):
        raise InvalidInput("a fact is blank, and every answer would hold it")
    names = tuple(dict.fromkeys(unicodedata.normalize("NFC", name) for name in case.documents))
    # As users are on record, so that the questions of one who is deleted are found.
    asker = None if case.asker is None else nfc_name(case.asker, "asker")
    return msgspec.structs.replace(case, question=case.question.strip(), documents=names, asker=asker)


def _reason(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return error.reason
    if isinstance(error, msgspec.ValidationError):
        if "unknown field" in str(error):
            return f"it has another key than {', '.join(Case.__struct_fields__)}"
        return str(error)[:1].lower() + str(error)[1:]
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else "it is not JSON"
