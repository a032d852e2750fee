"""Path patterns of access rules."""

from __future__ import annotations

import fnmatch
import re
from typing import Final

from tenancy.errors import InvalidInput
from tenancy.names import document_name

_ANY_DEPTH: Final = "**"
_CLASS = re.compile(r"\[!?[^\]]+\]")


def relative_path(path: str, kind: str) -> str:
    """As `document_path`, of what somebody wrote: with slashes alone."""
    name = document_path(path, kind)
    if "\\" in name:
        raise InvalidInput("a path is written with '/'", item=name, remedy="replace the backslashes; ? fits one")
    return name


def document_path(path: str, kind: str = "document") -> str:
    """`path` in NFC: parts joined by "/", none of them empty, "." or "..". Raises `InvalidInput`."""
    name = document_name(path, f"{kind} path")
    if any(part in {"", ".", ".."} for part in name.split("/")):
        raise InvalidInput(
            f"{name!r} is not a relative path without empty parts, '.' and '..'",
            item=name,
            remedy="write it as in hr/pay.pdf; for everything in a folder, hr/**",
        )
    return name


class Glob:
    """A pattern over relative paths: `*`, `?`, `[...]` inside one part, `**` for any number of parts.

    A trailing `**` stands for at least one part: "hr/**" is what is below hr. Matching takes time
    proportional to the parts of pattern and path, whatever the pattern.
    """

    def __init__(self, pattern: str) -> None:
        """Raises `InvalidInput` for a pattern that cannot be meant."""
        if pattern != pattern.strip():
            raise InvalidInput("begins or ends with a blank", item=pattern, remedy="write ? for a blank that is meant")
        parts = relative_path(pattern, "rule").split("/")
        for part in parts:
            if _ANY_DEPTH in part and part != _ANY_DEPTH:
                raise InvalidInput(
                    f"{pattern!r}: '**' is a part of its own", item=pattern, remedy="write hr/** or **/pay.pdf"
                )
            if "[" in _CLASS.sub("", part):
                raise InvalidInput(
                    f"{pattern!r}: '[' without its ']'", item=pattern, remedy="write [[] for the character itself"
                )
        if parts[-1] == _ANY_DEPTH:
            parts.append("*")
        self._parts = [None if part == _ANY_DEPTH else re.compile(fnmatch.translate(part)) for part in parts]

    def matches(self, path: str) -> bool:
        """Whether an NFC path fits the pattern: a walk through the pattern's positions, all at once."""
        positions = self._skipping({0})
        for name in path.split("/"):
            following = set()
            for position in positions:
                if position == len(self._parts):
                    continue
                part = self._parts[position]
                if part is None:
                    following.add(position)
                elif part.match(name):
                    following.add(position + 1)
            positions = self._skipping(following)
        return len(self._parts) in positions

    def _skipping(self, positions: set[int]) -> set[int]:
        """With the positions that are reached by letting `**` stand for nothing."""
        reached = set(positions)
        for position in sorted(positions):
            while position < len(self._parts) and self._parts[position] is None:
                position += 1
                reached.add(position)
        return reached
