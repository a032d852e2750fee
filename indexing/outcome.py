"""What became of one document in an ingestion."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from tenancy.errors import StrongroomError

METADATA_TYPE: Final = "metadata_type"
"""Followed by ":" and a name: the field is declared with another type, and filters do not find the document by it."""


class Status(StrEnum):
    ADDED = "added"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    ACL_UPDATED = "acl_updated"
    REMOVED = "removed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`document` is the name; `chunks` and `warnings` are of what was written; `error` is set for `FAILED` alone.

    `tokens` are those that the embedding model read.
    """

    document: str
    status: Status
    chunks: int = 0
    warnings: tuple[str, ...] = ()
    error: StrongroomError | None = None
    tokens: int = field(default=0, compare=False)

    @property
    def reason(self) -> str | None:
        return self.error.reason if self.error is not None else None

    @property
    def remedy(self) -> str | None:
        return self.error.remedy if self.error is not None else None


def failed(document: str, error: StrongroomError) -> Outcome:
    return Outcome(document, Status.FAILED, error=error)
