"""A message as a document, whichever format it came in: subject, who and when, the body, and attachments as children.

The body is what a reader sees. Mails carry it twice or more; where the plain text says something else than the page
beside it, nobody sees that, and it stays as hidden text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from indexing.parse import html
from indexing.parse.building import Building
from indexing.parse.failure import ParseFailure
from indexing.parse.model import (
    ATTACHMENTS_NOT_READ,
    HIDDEN_TEXT,
    Parsed,
    ParseLimits,
    ParseResult,
    Scalar,
    Source,
    clean,
    finish,
)

MAX_FIELD: Final = 2_000
"""Characters of a header field in the text: a list of recipients may be endless."""
_OTHER_WORDS: Final = 0.2
"""An alternative body says something else when more of its words than this share are not in the one that is shown."""

_WORD = re.compile(r"\w+")
_ADDRESS = re.compile(r"https?://\S+|mailto:\S+|<[^<>\s]+>")
_PARAGRAPHS = re.compile(r"\n[ \t]*\n")


class Body(NamedTuple):
    """One content of a message; `alternatives` are others of the same content, the best one first."""

    text: str
    is_html: bool
    alternatives: tuple[Body, ...] = ()


class Attached(NamedTuple):
    """A file of a message, or the reason why it is not read."""

    name: str
    data: bytes | ParseFailure
    media_type: str | None = None
    charset: str | None = None


@dataclass(slots=True)
class Letter:
    media_type: str
    subject: str = ""
    fields: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    metadata: dict[str, Scalar] = field(default_factory=dict)
    warnings: set[str] = field(default_factory=set)


def results(letter: Letter, source: Source, limits: ParseLimits) -> list[ParseResult]:
    """The message, and behind it what its attachments hold."""
    building = Building(limits.max_characters)
    heads = [f"{name}: {value[:MAX_FIELD]}" for name, value in letter.fields if value]
    building.add("\n".join(([f"Subject: {letter.subject}"] if letter.subject else []) + heads))
    for body in letter.bodies:
        shown = _add(building, body, limits, hidden=False)
        for other in body.alternatives:
            if _says_more(other, shown, limits):
                _add(building, other, limits, hidden=True)
    warnings = letter.warnings | ({HIDDEN_TEXT} if building.hidden else set())
    nest = source.nest
    if nest is None and letter.attached:
        warnings.add(ATTACHMENTS_NOT_READ)
    if letter.attached:
        letter.metadata["attachments"] = len(letter.attached)
    message = Parsed(
        building.text(),
        letter.subject or None,
        letter.media_type,
        tuple(warnings),
        {name: clean(value) if isinstance(value, str) else value for name, value in letter.metadata.items()},
        blocks=building.blocks(),
    )
    found = [finish(message)]
    for number, attached in enumerate(letter.attached if nest is not None else (), 1):
        if nest is None:
            break
        suffix = f"#attachment-{number}/{attached.name}"
        if isinstance(attached.data, ParseFailure):
            found += nest.refuse(suffix, attached.data)
        else:
            found += nest.read(suffix, attached.name, attached.data, attached.media_type, attached.charset)
    return found


def _add(building: Building, body: Body, limits: ParseLimits, *, hidden: bool) -> str:
    """Add a body; its text."""
    if body.is_html:
        page = html.extract(body.text, limits.seconds)
        html.add_page(building, page, hidden=hidden)
        return page.text
    for paragraph in _PARAGRAPHS.split(clean(body.text)):
        building.add(paragraph, hidden=hidden)
    return body.text


def _says_more(other: Body, shown: str, limits: ParseLimits) -> bool:
    text = html.extract(other.text, limits.seconds).text if other.is_html else other.text
    words = set(_WORD.findall(_ADDRESS.sub(" ", text).casefold()))
    unseen = words - set(_WORD.findall(shown.casefold()))
    return len(unseen) > _OTHER_WORDS * len(words)
