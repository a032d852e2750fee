"""The error of a file, or of one line of a file, that yields no text."""

from __future__ import annotations

from typing import ClassVar, Literal

from tenancy.errors import InvalidInput

Status = Literal["no_text", "encrypted", "corrupt", "unsupported", "empty", "too_large", "timed_out"]


class ParseFailure(InvalidInput):
    """Raised for a whole file; returned among the results for one child of it, named by `suffix`."""

    code: ClassVar[str] = "parse-failure"

    def __init__(
        self, status: Status, reason: str, *, item: str | None = None, remedy: str | None = None, suffix: str = ""
    ) -> None:
        super().__init__(reason, item=item, remedy=remedy)
        self.status: Status = status
        self.suffix = suffix
