"""Where a document came from: what `--prune` may remove, and which rows of one file belong together."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, func


@dataclass(frozen=True, slots=True)
class Origin:
    """`root` is "dir:" and the absolute path of an ingested folder, or "api". `file` is set for a part of a file.

    As text, `root` alone, or `root`, a line feed and `file`; neither can hold a line feed.
    """

    root: str
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> Origin:
        root, separator, file = text.partition("\n")
        return cls(root, file if separator else None)

    @property
    def text(self) -> str:
        return self.root if self.file is None else f"{self.root}\n{self.file}"


def lies_under(origin: ColumnElement[str], root: str) -> ColumnElement[bool]:
    """Whether the text of an origin is `root`, or that of a part of a file there."""
    return (origin == root) | (func.substr(origin, 1, len(root) + 1) == f"{root}\n")


API = Origin("api")
