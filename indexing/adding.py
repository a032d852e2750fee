"""New documents as rows: many by the same statements. Of short documents, making statements takes the most time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, insert, select

from indexing.chunk_rows import NewChunks, add_chunks
from indexing.documents import Content
from indexing.origin import Origin
from tenancy.acl import AccessList, add_access_lists
from tenancy.schema import documents, versions
from tenancy.tenant import ReadView, WriteView

_TOGETHER: Final = 256

_ADD: Final = insert(documents)
_ADD_VERSIONS: Final = insert(versions)
_IDS: Final = select(documents.c.name, documents.c.id).where(documents.c.name.in_(bindparam("names", expanding=True)))


@dataclass(frozen=True, slots=True, eq=False)
class New:
    """A document that is not there yet, ready to be written."""

    name: str
    content: Content
    origin: Origin
    access: AccessList


def ids_of(view: ReadView, names: Sequence[str]) -> dict[str, int]:
    """The ids of those of `names` that there are."""
    found: dict[str, int] = {}
    for start in range(0, len(names), _TOGETHER):
        rows = view.execute(_IDS, {"names": names[start : start + _TOGETHER]})
        found.update((row.name, row.id) for row in rows)
    return found


def add(view: WriteView, name: str, content: Content, origin: Origin, access: AccessList, now: float) -> int:
    """Write a new document; returns its id."""
    add_all(view, [New(name, content, origin, access)], now)
    return ids_of(view, [name])[name]


def add_all(view: WriteView, added: Sequence[New], now: float) -> None:
    """Write new documents, each of another name."""
    for start in range(0, len(added), _TOGETHER):
        piece = added[start : start + _TOGETHER]
        view.execute(_ADD, [{"name": new.name, **new.content.columns(new.origin, now)} for new in piece])
        ids = ids_of(view, [new.name for new in piece])
        add_chunks(view, [_chunks(ids[new.name], new.content) for new in piece])
        view.execute(_ADD_VERSIONS, [new.content.record(ids[new.name], 1, new.name, now) for new in piece])
        add_access_lists(view, {ids[new.name]: new.access for new in piece}, now)
        view.bump_corpus(*(ids[new.name] for new in piece))


def _chunks(document_id: int, content: Content) -> NewChunks:
    return NewChunks(document_id, content.chunks, content.terms, content.vectors, content.model_id)
