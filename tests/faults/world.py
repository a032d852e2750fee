"""What the victims write and ask, and a ledger of the states that a crash may leave: no code of the product decides."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

FILES = ("parking", "canteen", "laundry", "training", "equipment", "insurance", "relocation", "overtime", "uniform")
"""Documents that `strongroom ingest` keeps from a folder."""

POSTED = ("bicycle", "language", "sabbatical", "telephone")
"""Documents that clients put and delete over HTTP."""

ACCESS = {"red": (["group:red"], ["user:cy"]), "blue": (["group:blue"], ["user:bo"])}
"""Access lists: labels that allow, and labels that deny. All users are in both groups."""

READERS = {"ana": {"red", "blue"}, "bo": {"red"}, "cy": {"blue"}}
"""Which lists let whom read."""


@dataclass(frozen=True, slots=True)
class State:
    """A document as a whole: which text, under which access list."""

    revision: int
    colour: str


def text_of(topic: str, revision: int) -> str:
    """A few chunks that all tell their topic and revision; the first sentence answers `question(topic)`."""
    paragraphs = [
        f"The {topic} allowance is {100 + revision} euros a month. "
        + f"Rule {revision} of {topic}, part {part}: keep each receipt, name the {topic} office, and wait. " * 9
        for part in range(1, 5)
    ]
    return "\n\n".join(paragraphs)


def version_of(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def question(topic: str) -> str:
    return f"How much is the {topic} allowance?"


def topic_of(document: str) -> str:
    return document.removesuffix(".txt").rpartition("/")[2]


@dataclass
class Ledger:
    """For each document the states that it may be in: one when all was acknowledged, more while a change is under way.

    None means absent. `texts` holds every text ever written, by document and version.
    """

    states: dict[str, set[State | None]] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)
    revisions: int = 0

    def fresh(self, document: str, colour: str) -> State:
        """A state that no document has been in."""
        self.revisions += 1
        text = text_of(topic_of(document), self.revisions)
        self.texts[document, version_of(text)] = text
        return State(self.revisions, colour)

    def known(self, document: str) -> State | None:
        """The state of a document of which everything is acknowledged."""
        (state,) = self.states.get(document, {None})
        return state

    def intend(self, document: str, state: State | None) -> None:
        self.states.setdefault(document, {None}).add(state)

    def settle(self, document: str, state: State | None) -> None:
        self.states[document] = {state}


@dataclass
class Folder:
    """The files that `strongroom ingest` reads, and the states that it is to bring about."""

    path: Path
    wanted: dict[str, State | None] = field(default_factory=dict)

    def write(self, document: str, state: State | None) -> None:
        """Put the text of `state` into the file; without one, remove it."""
        self.wanted[document] = state
        if state is None:
            (self.path / document).unlink(missing_ok=True)
        else:
            (self.path / document).write_text(text_of(topic_of(document), state.revision))
