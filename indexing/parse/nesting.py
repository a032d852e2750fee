"""Files within a file: attachments of a mail, members of an archive, and what is in them again.

One budget holds for the whole tree, so that neither depth nor number nor size multiply: an archive that contains itself
ends at `max_depth`, one that unpacks to more and more at `max_expanded_bytes`. What is over a bound is a failure of its
own, and what was read before it stays.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from indexing.parse.failure import ParseFailure
from indexing.parse.model import Nest, Parsed, ParseLimits, ParseResult
from tenancy.names import mapped_controls

MAX_SUFFIX: Final = 400
"""Characters that the path of a file within a file keeps in a name, each level of nesting."""

_NO_STEP = re.compile(r"(?:\.{0,2}|[A-Za-z]:)")
_REMEDY: Final = "unpack it, and add the files one by one"

Read = Callable[[str, bytes, str | None, str | None, Nest], list[ParseResult]]
"""(name, data, media type, charset, nest): as `indexing.parse.parse`; raises `ParseFailure`."""


class _Budget:
    def __init__(self, limits: ParseLimits) -> None:
        self.files = limits.max_children
        self.bytes = limits.max_expanded_bytes
        self.characters = max(limits.max_characters, limits.max_expanded_bytes)
        self.deadline = time.monotonic() + limits.seconds


class Tree:
    """Implements `Nest` for one level of the tree."""

    def __init__(self, limits: ParseLimits, read: Read) -> None:
        self._limits = limits
        self._read = read
        self._depth = 0
        self._budget = _Budget(limits)
        self._used: dict[str, int] = {}

    def read(
        self, suffix: str, name: str, data: bytes, media_type: str | None = None, charset: str | None = None
    ) -> list[ParseResult]:
        failure = self.over(len(data))
        if failure is not None:
            return self.refuse(suffix, failure)
        self._count()
        self._budget.bytes -= len(data)
        suffix = self._own(suffix)
        budget = self._budget
        files, characters = budget.files, budget.characters
        try:
            results = self._read(name, data, media_type, charset, self._below())
        except ParseFailure as error:
            return [_under(error, suffix)]
        # What is deeper in the tree was counted there; a file of rows gives many documents without asking for each.
        budget.files = min(budget.files, files - len(results) + 1)
        budget.characters = characters - sum(len(result.text) for result in results if isinstance(result, Parsed))
        if budget.characters < 0:
            budget.characters = characters
            return [_under(_too_large("all that the file holds gives more text than one file may"), suffix)]
        return [_taken(result, suffix, data) for result in results]

    def refuse(self, suffix: str, failure: ParseFailure) -> list[ParseResult]:
        self._count()
        return [_under(failure, self._own(suffix))]

    def over(self, size: int) -> ParseFailure | None:
        limits, budget = self._limits, self._budget
        if self._depth >= limits.max_depth:
            return _too_large(f"is nested more than {limits.max_depth} files deep")
        if size > limits.max_bytes or size > budget.bytes:
            return _too_large(
                f"all that the file holds unpacks to more than {limits.max_expanded_bytes} bytes, "
                f"or this part alone to more than {limits.max_bytes}"
            )
        if time.monotonic() > budget.deadline:
            return ParseFailure("timed_out", f"its turn did not come within {limits.seconds:.0f} s", remedy=_REMEDY)
        return None

    def _count(self) -> None:
        self._budget.files -= 1
        if self._budget.files < 0:
            raise _too_large(f"holds more than {self._limits.max_children} files")

    def _below(self) -> Tree:
        below = Tree.__new__(Tree)
        below._limits, below._read, below._budget = self._limits, self._read, self._budget
        below._depth = self._depth + 1
        below._used = {}
        return below

    def _own(self, suffix: str) -> str:
        """`suffix` as a name may be, and unlike those before it."""
        label = safe_path(suffix.removeprefix("#"))
        number = self._used.get(label, 0) + 1
        while f"{label}~{number}" in self._used:
            number += 1
        self._used[label] = number
        if number == 1:
            return f"#{label}"
        self._used[f"{label}~{number}"] = 1
        return f"#{label}~{number}"


def safe_path(path: str) -> str:
    """`path` as part of a document's name: no way up or to a root, no control characters, and not endless."""
    text = unicodedata.normalize("NFC", path.encode("utf-8", "replace").decode("utf-8").replace("\\", "/"))
    text = mapped_controls(text, lambda _: "_")
    steps = [step.strip() for step in text.split("/")]
    kept = "/".join(step for step in steps if not _NO_STEP.fullmatch(step)) or "unnamed"
    if len(kept) > MAX_SUFFIX:
        kept = kept[: MAX_SUFFIX // 2].rstrip() + "…" + kept[-MAX_SUFFIX // 2 + 1 :].lstrip()
    return kept


def _taken(result: ParseResult, suffix: str, data: bytes) -> ParseResult:
    if isinstance(result, ParseFailure):
        return _under(result, suffix)
    source = data if result.source is None else result.source
    return replace(result, suffix=suffix + result.suffix, allow=None, deny=None, source=source)


def _too_large(reason: str) -> ParseFailure:
    return ParseFailure("too_large", reason, remedy=_REMEDY)


def _under(failure: ParseFailure, suffix: str) -> ParseFailure:
    failure.suffix = suffix + failure.suffix
    return failure
