"""What an answer passes on its way out: stages that take its text piece by piece and say what may leave.

    leaving = Chain([stage, another])
    leaving.feed("The notice ")     # what may leave now; a stage holds back what it cannot judge yet
    leaving.flush()                 # the rest, once the answer is complete

A stage gives the same text however the answer was cut into pieces, so a stream shows what the whole answer shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tenancy.errors import Conflict


class Withheld(Conflict):
    """A check of the answer failed, so that it does not leave; the record says which one."""

    code = "withheld"


class Stage(Protocol):
    """One check of one answer. `detail` (counts and verdicts, no text) is for the audit, `warnings` for the asker."""

    @property
    def detail(self) -> Mapping[str, int | bool | str]: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def feed(self, text: str) -> str:
        """Take the next characters; returns those that may leave now. Raises `Withheld`."""
        ...

    def flush(self) -> str:
        """The answer is complete: returns what was held back. Raises `Withheld`."""
        ...


class Chain:
    """Stages, each fed with what the one before lets out; itself a stage."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = tuple(stages)

    @property
    def detail(self) -> Mapping[str, int | bool | str]:
        return {name: value for stage in self._stages for name, value in stage.detail.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(warning for stage in self._stages for warning in stage.warnings)

    def feed(self, text: str) -> str:
        for stage in self._stages:
            text = stage.feed(text)
        return text

    def flush(self) -> str:
        text = ""
        for stage in self._stages:
            text = stage.feed(text) + stage.flush()
        return text
