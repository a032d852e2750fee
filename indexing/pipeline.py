"""What turns a tenant's documents into rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from indexing.catalogue import EMBEDDED
from indexing.chunk import CHUNKER_REVISION, Chunking
from indexing.embed import Embedder
from indexing.parse import ParseFailure, ParseLimits, ParseResult, parse
from indexing.stepwise import TakeTurn
from indexing.terms import TERMS_REVISION
from tenancy.tenant import ReadView, TenantHandle

Parse = Callable[[TenantHandle, str, bytes | BinaryIO, str | None], list[ParseResult]]
"""From a tenant, a file's name, its content and its media type, if known, to its documents: `ParsePool.parse`."""

ParseAll = Callable[[TenantHandle, Sequence[tuple[str, bytes]]], list[list[ParseResult] | ParseFailure]]
"""From a tenant, and names and contents of short files, to what each gives: `ParsePool.parse_all`."""


def parse_here(
    _tenant: TenantHandle, name: str, content: bytes | BinaryIO, media_type: str | None
) -> list[ParseResult]:
    """Parse in this process, for files that can be trusted; see `indexing.parse.pool` for others."""
    return parse(name, content if isinstance(content, bytes) else content.read(), media_type)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What turns documents into rows. `engine_of` names where a tenant's first collection is made.

    `embedder_of` says which model a tenant's collection has now; with it, ingestion goes on where the tenant moves to
    another model meanwhile. Without it, `embedder` is the only one. Where others need the machine too, `turn` waits for
    this work's turn, and is held while a document is parsed, and while each few chunks are embedded. `parse` is where
    files are parsed, `parse_all` where several short ones are, at one go; longer ones than `max_bytes` are not even
    read. `afford` is told how many tokens a source has before any of them is embedded, and raises where that is too
    much.
    """

    embedder: Embedder
    chunking: Chunking = field(default_factory=Chunking)
    engine_of: Callable[[TenantHandle], str] = lambda _tenant: EMBEDDED
    clock: Callable[[], float] = time.time
    embedder_of: Callable[[ReadView], Embedder] | None = None
    turn: TakeTurn | None = None
    parse: Parse = parse_here
    parse_all: ParseAll | None = None
    max_bytes: int = ParseLimits().max_bytes
    afford: Callable[[int], None] | None = None

    @property
    def revision(self) -> str:
        """Equal where equal text gives equal chunks and terms."""
        return json.dumps([CHUNKER_REVISION, TERMS_REVISION, repr(self.chunking)])
