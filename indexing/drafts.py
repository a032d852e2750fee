"""A document on its way into a collection: as it comes in, parsed and chunked, with its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from indexing.chunk import Chunk
from indexing.documents import Stored
from indexing.origin import API, Origin
from indexing.parse import Parsed
from indexing.parse.model import Scalar
from tenancy.acl import AccessList


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it comes in.

    `access` None keeps the list of a document that is there, and lets nobody read a new one. `media_type` None is
    recognised from name and content; `title` None is taken from the content, or else the name; `metadata` comes over
    what the content says. For a file of lines, each line's own title and metadata come first.
    """

    name: str
    data: bytes
    access: AccessList | None = None
    media_type: str | None = None
    title: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    origin: Origin = API


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sides of an access list that a source gives; None leaves what is stored at the moment of writing.

    An old list is never carried over from the time of comparing: it could undo a revocation.
    """

    allow: frozenset[str] | None
    deny: frozenset[str] | None

    def over(self, stored: AccessList) -> AccessList:
        return AccessList(
            stored.allow if self.allow is None else self.allow, stored.deny if self.deny is None else self.deny
        )


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A document parsed and chunked, not yet embedded. `before` is what was stored when it was compared."""

    name: str
    version: str
    title: str
    parsed: Parsed
    chunks: Sequence[Chunk]
    terms: Sequence[bytes]
    origin: Origin
    wanted: Wanted
    before: Stored | None


@dataclass(frozen=True, slots=True)
class Relist:
    """The text is the same, the access list or the origin may not be."""

    name: str
    stored: Stored
    origin: Origin
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Removal:
    """A document whose source is gone."""

    name: str
    stored: Stored


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A draft with its vectors (chunks, dimension), and the tokens that the model read for them."""

    draft: Draft
    vectors: npt.NDArray[np.float32]
    tokens: int
