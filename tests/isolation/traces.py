"""Traces of one tenant in what another is shown: its name, ids, titles, and pieces of its passages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MARK = re.compile(r"(?:id|title)-[a-z]+-\d{4}|library-[a-z]+")
"""Ids and titles of documents and names of tenants: each names whose it is."""


@dataclass(frozen=True)
class Library:
    """What one tenant holds. `questions` are texts with the number of the passage that answers them.

    `width` and `step` are characters: a run of `width + step - 1` of a passage is found wherever it stands.
    """

    code: str
    passages: tuple[str, ...]
    questions: tuple[tuple[str, int], ...]
    width: int = 24
    step: int = 7

    @property
    def tenant(self) -> str:
        return f"library-{self.code}"

    def document(self, number: int) -> str:
        return f"id-{self.code}-{number:04d}"

    def title(self, number: int) -> str:
        return f"title-{self.code}-{number:04d}"

    def marks(self) -> set[str]:
        numbers = range(len(self.passages))
        return {self.tenant, *map(self.document, numbers), *map(self.title, numbers)}


class Detector:
    """Finds marks and pieces of passages of other tenants. What a tenant holds itself or has said is no trace."""

    def __init__(self, libraries: Sequence[Library]) -> None:
        self._libraries = libraries
        self._marks = {library.tenant: library.marks() for library in libraries}
        self._foreign = {
            (own.tenant, other.tenant): _windows(other.passages, other.width) - _windows(own.passages, other.width)
            for own in libraries
            for other in libraries
            if own is not other
        }
        self._texts = {
            library.tenant: _windows((*library.passages, *(text for text, _ in library.questions)), library.width)
            for library in libraries
        }

    def traces(self, shown: str, *, own: str, said: str = "") -> list[str]:
        """What of other tenants stands in `shown`, which the tenant `own` saw after saying `said`."""
        text = _spaced(shown)
        allowed = self._marks[own] | set(MARK.findall(said))
        found = sorted(set(MARK.findall(shown)) - allowed)
        for other in self._libraries:
            if other.tenant != own:
                found += _pieces(text, self._foreign[own, other.tenant], other, _spaced(said))
        return found

    def any_text(self, line: str) -> list[str]:
        """Ids, titles and pieces of any passage or question of anybody, which no log line may hold."""
        found = [mark for mark in MARK.findall(line) if not mark.startswith("library-")]
        for library in self._libraries:
            found += _pieces(_spaced(line), self._texts[library.tenant], library, "")
        return found


def _windows(texts: Iterable[str], width: int) -> set[str]:
    return {text[at : at + width] for text in map(_spaced, texts) for at in range(len(text) - width + 1)}


def _pieces(text: str, windows: set[str], library: Library, said: str) -> list[str]:
    """Pieces of a library's texts that stand in `text`, looked for at every `step` characters."""
    places = range(0, len(text) - library.width + 1, library.step)
    found = {piece for at in places if (piece := text[at : at + library.width]) in windows}
    return sorted(f"{library.code} {piece!r}" for piece in found if piece not in said)


def _spaced(text: str) -> str:
    return " ".join(text.split())
