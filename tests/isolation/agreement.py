"""How an answer of the service is read and held against a document of the oracle, and what is counted."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from httpx import Response

from tests.isolation.oracle import Document

MARKS = re.compile(r"qz\d+x\d+z|nq\d+t\d+d\d+q")
"""Secrets planted in texts and titles, one a version, and names of documents."""


class Difference(AssertionError):
    """The service did what the oracle does not allow."""


@dataclass
class Tally:
    """What has happened so far. `first_difference` is the step of the first one and what it was."""

    steps: int = 0
    positive_finds: int = 0
    exact_hits: int = 0
    semantic_hits: int = 0
    answers: int = 0
    revocations: int = 0
    grants: int = 0
    restarts: int = 0
    refusals: int = 0
    first_difference: tuple[int, str] | None = None

    def __str__(self) -> str:
        counts = {name.replace("_", " "): value for name, value in vars(self).items() if isinstance(value, int)}
        differences = 0 if self.first_difference is None else 1
        return "\n".join(f"{name:<15} {value:>7,}" for name, value in (counts | {"differences": differences}).items())


def agree(holds: bool, difference: str) -> None:
    if not holds:
        raise Difference(difference)


def version(document: Document) -> str:
    return f"sha256:{hashlib.sha256(document.text.encode()).hexdigest()}"


def current(readable: dict[str, Document], shown: dict[str, Any]) -> str:
    """The text of a document that was returned or cited, which must be readable and of the present version."""
    document = readable.get(shown["document"])
    if document is None:
        raise Difference(f"{shown['document']} is not readable")
    agree(shown["version"] == version(document), f"{shown['document']} in a version that is not the present one")
    return document.text


def place(readable: dict[str, Document], passage: dict[str, Any]) -> tuple[str, int]:
    """Document and paragraph of a passage, which must stand there character by character."""
    text = current(readable, passage)
    agree(text[passage["start"] : passage["end"]] == passage["text"], "a passage is not in its document")
    paragraphs = readable[passage["document"]].paragraphs
    agree(passage["text"] in paragraphs, "a passage is not a paragraph")
    starts = [len("\n\n".join((*paragraphs[:at], ""))) for at in range(len(paragraphs))]
    return passage["document"], starts.index(passage["start"])


def done(response: Response) -> dict[str, Any]:
    """The last event of a stream, which must hold what the deltas said."""
    events = [event.split("\ndata: ") for event in response.text.removesuffix("\n\n").split("\n\n")]
    name, data = events[-1]
    agree(name == "event: done", f"a stream ended with {name}")
    done: dict[str, Any] = json.loads(data)
    deltas = "".join(json.loads(data)["text"] for name, data in events if name == "event: delta")
    agree(deltas in ("", done["answer"]), "the deltas of a stream are not its answer")
    return done
