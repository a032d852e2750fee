"""What became of one item of an ingestion: of a document, or of what should have become one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from indexing.origin import Origin
from indexing.parse.failure import ParseFailure
from indexing.parse.model import INCOMPLETE, UNCERTAIN_ENCODING
from tenancy.errors import StrongroomError

METADATA_TYPE: Final = "metadata_type"
"""Followed by ":" and a name: the field is declared with another type, and filters do not find the document by it."""


class Status(StrEnum):
    """`PARTIAL` and `UNCERTAIN_ENCODING` are searchable, and their warnings say what is missing or doubtful."""

    INDEXED = "indexed"
    PARTIAL = "partial"
    UNCERTAIN_ENCODING = "uncertain_encoding"
    UNCHANGED = "unchanged"
    EMPTY = "empty"
    NO_TEXT = "no_text"
    ENCRYPTED = "encrypted"
    CORRUPT = "corrupt"
    UNSUPPORTED = "unsupported"
    TOO_LARGE = "too_large"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    REMOVED = "removed"


WRITTEN: Final = frozenset({Status.INDEXED, Status.PARTIAL, Status.UNCERTAIN_ENCODING})
"""What is searchable in the version that was just read."""


class Change(StrEnum):
    """What an ingestion did to the tenant's collection. `MOVED`: under another name, with its chunks and vectors."""

    ADDED = "added"
    UPDATED = "updated"
    ACL_UPDATED = "acl_updated"
    MOVED = "moved"
    REMOVED = "removed"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`document` is the name, `moved_from` the one that a moved document had; `chunks` and `warnings` are of what was
    written; `error` is set where the item is not in the collection as it is now.

    `lost_readers`: its list let somebody read it before, and nobody now. `replaced_root` is the folder that the content
    came from that an update took the place of, where it is another one, as in `Origin.root`.

    `embedded` of the chunks were read by the embedding model, `tokens` in all; the others kept
    their vectors; `origin` is set for a failure that goes on record.
    """

    document: str
    status: Status
    change: Change = Change.NONE
    chunks: int = 0
    warnings: tuple[str, ...] = ()
    error: StrongroomError | None = None
    moved_from: str | None = None
    tokens: int = field(default=0, compare=False)
    embedded: int = field(default=0, compare=False)
    origin: Origin | None = field(default=None, compare=False)
    lost_readers: bool = field(default=False, compare=False)
    replaced_root: str | None = field(default=None, compare=False)

    @property
    def reason(self) -> str | None:
        return self.error.reason if self.error is not None else None

    @property
    def remedy(self) -> str | None:
        return self.error.remedy if self.error is not None else None


def failed(document: str, error: StrongroomError) -> Outcome:
    """The item `document` gave nothing, because of `error`."""
    status = Status(error.status) if isinstance(error, ParseFailure) else Status.FAILED
    return Outcome(document, status, error=error)


def written(warnings: tuple[str, ...]) -> Status:
    """How a document is in the collection that was read with `warnings`; of these, a colon divides off a detail."""
    kinds = {warning.partition(":")[0] for warning in warnings}
    if UNCERTAIN_ENCODING in kinds:
        return Status.UNCERTAIN_ENCODING
    return Status.PARTIAL if kinds & INCOMPLETE else Status.INDEXED
