"""Documents as rows: written, listed, shown, deleted. Every change announces itself in the same transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import Executable, Integer, Row, bindparam, case, delete, func, insert, select, update

from indexing.chunk import Chunk
from indexing.chunk_rows import unchanged, write_chunks
from indexing.origin import Origin, lies_under
from indexing.parse.tags import language_among
from tenancy.acl import AccessList, get_access_list, get_access_lists, set_access_list
from tenancy.errors import InvalidInput, NotFound
from tenancy.prepared import Prepared
from tenancy.schema import chunks, documents, items, versions
from tenancy.tenant import ReadView, TenantHandle, WriteView
from tenancy.types import Text

MAX_LISTED: Final = 1000

# Statements are made once: for a short document, making them takes longer than running them.
_STORED = select(
    documents.c.id,
    documents.c.name,
    documents.c.version,
    documents.c.media_type,
    documents.c.title,
    documents.c.metadata,
    documents.c.origin,
    chunks.c.id.label("first_chunk"),
).outerjoin(chunks, (chunks.c.document_id == documents.c.id) & (chunks.c.ordinal == 0))
_OWN = _STORED.where(documents.c.name.in_(bindparam("names", expanding=True)))
_HAS_PARTS: Final = Prepared(
    select(documents.c.id)
    .where((documents.c.name >= bindparam("first", type_=Text)) & (documents.c.name < bindparam("behind", type_=Text)))
    .limit(1)
)
_FAMILY = _STORED.where(
    (documents.c.name == bindparam("name"))
    | ((documents.c.name >= bindparam("first")) & (documents.c.name < bindparam("behind")))
)
_ALIKE = (
    select(documents.c.name, documents.c.origin)
    .where(documents.c.version == bindparam("version"))
    .order_by(documents.c.name)
    .limit(bindparam("limit", type_=Integer))
)
_ADD_VERSION = insert(versions)
_NEWEST_VERSION = select(func.max(versions.c.ordinal)).where(versions.c.document_id == bindparam("id"))


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document as a list shows it; `updated` is UTC epoch seconds, `language` None where nothing tells it."""

    name: str
    version: str
    title: str
    media_type: str
    origin: str
    updated: float
    language: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentDetail:
    """A document with all that is known about it, except its text.

    `places` are those that its chunks begin at, in order, `MAX_LISTED` at most; `hidden` counts the chunks that a
    person who opens the file does not see.
    """

    record: DocumentRecord
    metadata: Mapping[str, Any]
    warnings: tuple[str, ...]
    chunks: int
    access: AccessList
    places: tuple[str, ...] = ()
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """What ingestion compares with: `first_chunk` changes with every write of the document's content."""

    id: int
    name: str
    version: str
    media_type: str
    title: str
    metadata: Mapping[str, Any]
    origin: Origin
    first_chunk: int
    access: AccessList


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A version of a document, ready to be written: `terms` packed, one a chunk; `vectors` (chunks, dimension) of the
    model `model_id` on record, without those that are `carried` over: by ordinal, the id of a chunk of the version
    before that has the vector."""

    version: str
    title: str
    media_type: str
    metadata: Mapping[str, str | int | float | bool]
    warnings: tuple[str, ...]
    chunks: Sequence[Chunk]
    terms: Sequence[bytes]
    vectors: npt.NDArray[np.float32]
    model_id: int
    carried: Mapping[int, int] = field(default_factory=dict)

    def columns(self, origin: Origin, now: float) -> dict[str, Any]:
        """Those of the document's row, but its name."""
        return {
            "version": self.version,
            "title": self.title,
            "media_type": self.media_type,
            "metadata": dict(self.metadata),
            "warnings": list(self.warnings),
            "origin": origin.text,
            "updated": now,
        }

    def record(self, document_id: int, ordinal: int, name: str, now: float) -> dict[str, Any]:
        """The record of this version, the `ordinal`-th of the document."""
        return {
            "document_id": document_id,
            "ordinal": ordinal,
            "version": self.version,
            "document": name,
            "chunks": len(self.chunks),
            "created": now,
        }


def list_documents(tenant: TenantHandle, *, after: str = "", limit: int = 100) -> list[DocumentRecord]:
    """Documents by name, from behind `after` on. For those who administer documents: access lists do not apply."""
    if not 1 <= limit <= MAX_LISTED:
        raise InvalidInput(f"the limit is from 1 to {MAX_LISTED}", item="limit")
    query = select(documents).where(documents.c.name > after).order_by(documents.c.name).limit(limit)
    with tenant.reading() as view:
        return [_record(row) for row in view.execute(query)]


def show_document(tenant: TenantHandle, name: str) -> DocumentDetail:
    """One document. For those who administer documents. Raises `NotFound`."""
    with tenant.reading() as view:
        row = view.execute(select(documents).where(documents.c.name == name)).one_or_none()
        if row is None:
            raise _absent(name)
        mine = chunks.c.document_id == row.id
        count, hidden = view.execute(select(func.count(), func.count(case((chunks.c.hidden, 1)))).where(mine)).one()
        places = view.execute(
            select(chunks.c.place)
            .where(mine & chunks.c.place.is_not(None))
            .group_by(chunks.c.place)
            .order_by(func.min(chunks.c.ordinal))
            .limit(MAX_LISTED)
        ).scalars()
        found = tuple(places)
        access = get_access_list(view, row.id)
    return DocumentDetail(_record(row), row.metadata, tuple(row.warnings), count, access, found, hidden)


def change_access(tenant: TenantHandle, name: str, access: AccessList, now: float) -> bool:
    """Replace a document's access list; False where it was the same. Raises `NotFound`."""
    with tenant.writing() as view:
        document_id = view.execute(select(documents.c.id).where(documents.c.name == name)).scalar_one_or_none()
        if document_id is None:
            raise _absent(name)
        return set_access_list(view, document_id, access, now)


def delete_document(tenant: TenantHandle, name: str, now: float) -> list[str]:
    """Delete a document, or all that came from the rows of the file `name`; returns the names. Raises `NotFound`.

    What ingestion noted of parts of it that gave no document is forgotten, also where that is all there is. The text
    is gone from the database file and its write-ahead log when this returns.
    """
    with tenant.writing() as view:
        family = stored_family(view, name)
        forgotten = _forget_failures(view, name, family)
        if not family and not forgotten:
            raise _absent(name)
        for stored in family.values():
            remove(view, stored.id, now)
    tenant.erase_traces()
    return sorted(family)


def _forget_failures(view: WriteView, name: str, family: Collection[str]) -> bool:
    """Forget what is on record of `name` and its parts but for the documents of `family`; whether there was any."""
    behind = (items.c.name >= f"{name}#") & (items.c.name < f"{name}$")
    query = select(items.c.name, items.c.origin).where(
        (items.c.status != "removed") & ((items.c.name == name) | behind)
    )
    found = [
        row.name
        for row in view.execute(query).all()
        if row.name not in family and (row.name == name or Origin.parse(row.origin).file == name)
    ]
    for one in found:
        view.execute(delete(items).where(items.c.name == one))
    return bool(found)


def find_stored(view: ReadView, name: str) -> Stored | None:
    """The document `name`, if there is one."""
    return _stored(view, _OWN, {"names": [name]}).get(name)


def stored_family(view: ReadView, name: str) -> dict[str, Stored]:
    """The document `name` and those that were made from parts of the file `name`, by name."""
    found = _stored(view, _FAMILY, {"name": name, **_range_of_parts(name)})
    return {key: stored for key, stored in found.items() if key == name or stored.origin.file == name}


def stored_families(view: ReadView, names: Sequence[str]) -> dict[str, dict[str, Stored]]:
    """`stored_family` of a few dozen names, by name, with few statements."""
    own = _stored(view, _OWN, {"names": names})
    return {
        name: stored_family(view, name)
        if view.rows(_HAS_PARTS, _range_of_parts(name))
        else {name: own[name]} if name in own else {}
        for name in names
    }  # fmt: skip


def _range_of_parts(name: str) -> dict[str, str]:
    # "$" follows "#": the range holds every name that begins with `name` and "#", through the index of names.
    return {"first": f"{name}#", "behind": f"{name}$"}


def _stored(view: ReadView, query: Executable, parameters: Mapping[str, Any]) -> dict[str, Stored]:
    rows = view.execute(query, parameters).all()
    lists = get_access_lists(view, [row.id for row in rows])
    return {
        row.name: Stored(
            id=row.id,
            name=row.name,
            version=row.version,
            media_type=row.media_type,
            title=row.title,
            metadata=row.metadata,
            origin=Origin.parse(row.origin),
            first_chunk=row.first_chunk or 0,
            access=lists[row.id],
        )
        for row in rows
    }


def holds_under(view: ReadView, roots: Collection[str]) -> bool:
    """Whether there is any document from one of `roots`."""
    query = select(documents.c.id).limit(1)
    return any(view.execute(query.where(lies_under(documents.c.origin, root))).first() is not None for root in roots)


def names_under(view: ReadView, root: str) -> list[tuple[str, str | None]]:
    """The names of all documents that came from `root`, each with that of its file where it is a part of one."""
    query = select(documents.c.name, documents.c.origin).where(lies_under(documents.c.origin, root))
    return [(row.name, Origin.parse(row.origin).file) for row in view.execute(query)]


def alike(view: ReadView, version: str, limit: int) -> list[tuple[str, Origin]]:
    """Names and origins of documents of equal content, at most `limit`."""
    rows = view.execute(_ALIKE, {"version": version, "limit": limit})
    return [(row.name, Origin.parse(row.origin)) for row in rows]


def replace(
    view: WriteView, document_id: int, name: str, content: Content, origin: Origin, access: AccessList, now: float
) -> None:
    """Put another version in a document's place, with its access list. Raises `NotCarried`."""
    view.execute(update(documents).where(documents.c.id == document_id).values(**content.columns(origin, now)))
    _retire(view, document_id, now)
    newest = view.execute(_NEWEST_VERSION, {"id": document_id}).scalar() or 0
    _write_chunks(view, document_id, name, content, newest + 1, now)
    set_access_list(view, document_id, access, now)
    view.bump_corpus(document_id)


def rename(
    view: WriteView, document_id: int, name: str, content: Content, origin: Origin, access: AccessList, now: float
) -> None:
    """Give a document another name, with what is known about it there; its id and its chunks stay as they are."""
    present = (versions.c.document_id == document_id) & versions.c.retired.is_(None)
    recorded = view.execute(select(versions).where(present)).mappings().one_or_none()
    values = {"name": name, **content.columns(origin, now)}
    view.execute(update(documents).where(documents.c.id == document_id).values(**values))
    if recorded is not None:
        _retire(view, document_id, now)
        newest = view.execute(_NEWEST_VERSION, {"id": document_id}).scalar() or 0
        view.execute(
            _ADD_VERSION, {**recorded, "ordinal": newest + 1, "document": name, "created": now, "retired": None}
        )
    set_access_list(view, document_id, access, now)
    view.bump_corpus(document_id)


def rewrite(view: WriteView, document_id: int, content: Content) -> None:
    """Put the same chunks in rows of their own, with the vectors that they have. Raises `NotCarried`."""
    carried = unchanged(view, document_id, content.chunks)
    write_chunks(view, document_id, content.chunks, content.terms, content.vectors, content.model_id, carried)


def is_cut_alike(view: ReadView, document_id: int, pieces: Sequence[Chunk], terms: Sequence[bytes]) -> bool:
    """Whether the document's chunks are `pieces`, with the same contexts, places and `terms`."""
    columns = chunks.c
    rows = view.execute(
        select(
            columns.start, columns.end, columns.heading, columns.text, columns.key, columns.context, columns.place,
            columns.hidden, columns.terms,
        )
        .where(columns.document_id == document_id)
        .order_by(columns.ordinal)
    )  # fmt: skip
    return [tuple(row) for row in rows] == [
        (piece.start, piece.end, piece.heading, piece.text, piece.key, piece.context, piece.place, piece.hidden, packed)
        for piece, packed in zip(pieces, terms, strict=True)
    ]


def adopt(view: WriteView, document_id: int, origin: Origin) -> None:
    """Note that a document comes from another place from now on; nothing that can be asked for changes."""
    view.execute(update(documents).where(documents.c.id == document_id).values(origin=origin.text))


def remove(view: WriteView, document_id: int, now: float) -> None:
    """Delete a document with its chunks and access list; the record of its versions stays.

    The caller empties the write-ahead log (`TenantHandle.erase_traces`) behind the transaction.
    """
    named = select(documents.c.name).where(documents.c.id == document_id).scalar_subquery()
    gone: dict[str, Any] = {"status": "removed", "reason": None, "remedy": None, "warnings": [], "seen": now}
    view.execute(update(items).where(items.c.name == named).values(gone))
    view.execute(delete(documents).where(documents.c.id == document_id))
    _retire(view, document_id, now)
    view.withdraw("document", document_id)
    view.bump_corpus(document_id, removed=True)


def _write_chunks(view: WriteView, document_id: int, name: str, content: Content, ordinal: int, now: float) -> None:
    """The chunks, and the record of this version, the document's `ordinal`-th."""
    write_chunks(
        view, document_id, content.chunks, content.terms, content.vectors, content.model_id, content.carried
    )  # fmt: skip
    view.execute(_ADD_VERSION, content.record(document_id, ordinal, name, now))


def _retire(view: WriteView, document_id: int, now: float) -> None:
    present = (versions.c.document_id == document_id) & versions.c.retired.is_(None)
    view.execute(update(versions).where(present).values(retired=now))


def _record(row: Row[Any]) -> DocumentRecord:
    language = language_among(row.metadata)
    return DocumentRecord(row.name, row.version, row.title, row.media_type, row.origin, row.updated, language)


def _absent(name: str) -> NotFound:
    return NotFound("no such document", item=name, remedy="list the documents to see their names")
