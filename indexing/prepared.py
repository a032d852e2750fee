"""A document on its way in: as it comes, parsed, compared with what is stored, embedded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from indexing.chunk import Chunk
from indexing.documents import Stored
from indexing.origin import API, Origin
from indexing.outcome import Outcome
from indexing.parse import Parsed
from indexing.parse.model import Scalar
from indexing.pipeline import Pipeline
from tenancy.acl import AccessList

_EVERYBODY: Final = "tenant"
_PIECE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Source:
    """A document as it comes in.

    `access` None keeps the list of a document that is there, and lets nobody read a new one. `media_type` None is
    recognised from name and content; `title` None is taken from the content, or else the name; `metadata` comes over
    what the content says. For a file of lines, each line's own title and metadata come first. `data` may be an open
    file, which is read piece by piece.
    """

    name: str
    data: bytes | BinaryIO
    access: AccessList | None = None
    media_type: str | None = None
    title: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    origin: Origin = API

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data) if isinstance(self.data, bytes) else os.fstat(self.data.fileno()).st_size


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What stands in the database about sources of some names: `families` is by name, and `since` the chunk behind
    which all were made by `pipeline`, which is as the tenant's contract and collection want it."""

    pipeline: Pipeline
    families: Mapping[str, dict[str, Stored]]
    since: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sides of an access list that a source gives; None leaves what is stored at the moment of writing.

    An old list is never carried over from the time of comparing: it could undo a revocation. With `narrower` nobody
    reads who did not before: the list is that of a file whose content is not the document's.
    """

    allow: frozenset[str] | None
    deny: frozenset[str] | None
    narrower: bool = False

    def over(self, stored: AccessList) -> AccessList:
        if self.narrower:
            allow = stored.allow if self.allow is None else _both(stored.allow, self.allow)
            return AccessList(allow, stored.deny | (self.deny or frozenset()))
        return AccessList(
            stored.allow if self.allow is None else self.allow, stored.deny if self.deny is None else self.deny
        )


def version_of(data: bytes | BinaryIO) -> str:
    """A digest of a source's content; an open file is left at its beginning."""
    if isinstance(data, bytes):
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    digest = hashlib.sha256()
    data.seek(0)
    while piece := data.read(_PIECE):
        digest.update(piece)
    data.seek(0)
    return f"sha256:{digest.hexdigest()}"


def _both(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Labels whose holders both let read, as far as the labels alone tell."""
    if _EVERYBODY in one:
        return other
    return one if _EVERYBODY in other else one & other


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A document parsed and chunked, not yet embedded. `before` is what was stored when it was compared.

    `carried` are the chunks that need no embedding: by ordinal, the id of a stored chunk that reads the same.
    """

    name: str
    version: str
    title: str
    parsed: Parsed
    chunks: Sequence[Chunk]
    terms: Sequence[bytes]
    origin: Origin
    wanted: Wanted
    before: Stored | None
    carried: Mapping[int, int] = field(default_factory=dict)

    @property
    def fresh(self) -> list[Chunk]:
        """The chunks to be embedded."""
        return [piece for piece in self.chunks if piece.ordinal not in self.carried]


@dataclass(frozen=True, slots=True)
class Relist:
    """The text is the same, the access list or the origin may not be. `failure` is why a new text cannot be read."""

    name: str
    stored: Stored
    origin: Origin
    wanted: Wanted
    failure: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """A document whose source is gone."""

    name: str
    stored: Stored


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """A draft with its vectors (fresh chunks, dimension), and the tokens that the model read for them."""

    draft: Draft
    vectors: npt.NDArray[np.float32]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A document whose source lies elsewhere now, and is cut as it was: nothing of it has to be embedded."""

    draft: Draft
    stored: Stored

    @property
    def name(self) -> str:
        return self.draft.name


Prepared = Draft | Relist | Removal | Move | Outcome
Writable = Embedded | Relist | Removal | Move | Outcome
