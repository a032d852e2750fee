"""One document, top to bottom: compare, parse, chunk, embed, and write in one transaction.

Text is embedded outside the write transaction, which is short, and which checks that nobody else wrote the document
meanwhile. A document is searchable as a whole or not at all: its rows, access list and epochs are one commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from indexing import documents, items
from indexing.adding import New, add_all, ids_of
from indexing.agreed import chunking_of
from indexing.carrying import carrying, carrying_nothing
from indexing.chunk import Ruler, chunk, embedded_text, indexed_text
from indexing.chunk_rows import NotCarried
from indexing.documents import Content, Stored
from indexing.filters import misfits
from indexing.language import language_of
from indexing.model import claim_model, claim_pipeline, current_since, require_model
from indexing.origin import API, Origin
from indexing.outcome import METADATA_TYPE, Change, Outcome, Status, failed, written
from indexing.parse import Parsed, ParseFailure
from indexing.parse.model import MAX_TITLE, Scalar
from indexing.parse.tags import LANGUAGE
from indexing.pipeline import Pipeline as Pipeline
from indexing.prepared import Draft, Embedded, Known, Move, Prepared, Relist, Removal, Wanted, Writable, version_of
from indexing.prepared import Source as Source
from indexing.relisting import relisted
from indexing.stepwise import encoded, in_turn
from indexing.terms import pack, term_postings
from tenancy.acl import AccessList, get_access_list, set_access_list
from tenancy.errors import Conflict, InvalidInput, ModelMismatch, StrongroomError
from tenancy.names import document_name, nfc_name
from tenancy.tenant import TenantHandle, WriteView

_MOVES: Final = 2
"""Changes of the tenant's model that one write follows."""

_ERASING: Final = frozenset({Change.UPDATED, Change.REMOVED})
"""Changes that take text out of the database: it leaves the write-ahead log too."""


def ingest(tenant: TenantHandle, pipeline: Pipeline, source: Source) -> list[Outcome]:
    """Bring one source into the tenant's collection: one outcome for it, or for each line of a JSON Lines file.

    Raises what the pipeline's `afford` raises, `ParseFailure` and the other errors of a source that yields nothing,
    `Conflict`, `ModelMismatch`, `Unavailable`. Afterwards either all of the document is searchable in the new version,
    or nothing has changed.
    """
    with in_turn(pipeline.turn):
        prepared = prepare(tenant, pipeline, source)
    pipeline = at_present(tenant, pipeline)
    drafts = [item for item in prepared if isinstance(item, Draft)]
    tokens = {draft.name: _tokens(pipeline, draft) for draft in drafts}
    if pipeline.afford is not None:
        pipeline.afford(sum(tokens.values()))
    return write(tenant, pipeline, embed(pipeline, prepared, tokens))


def put_document(tenant: TenantHandle, pipeline: Pipeline, source: Source) -> list[Outcome]:
    """`ingest` for one request: raises the error where the only outcome is a failure."""
    outcomes = ingest(tenant, pipeline, source)
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    return outcomes


def look_up(tenant: TenantHandle, pipeline: Pipeline, names: Sequence[str]) -> Known:
    """What sources of these names, a few dozen at most, are compared with. Raises `ModelMismatch`."""
    agreed = _as_agreed(tenant, pipeline)
    with tenant.reading() as view:
        if agreed.embedder_of is None:
            require_model(view, agreed.embedder.fingerprint)
        else:
            agreed = replace(agreed, embedder=agreed.embedder_of(view))
        return Known(agreed, documents.stored_families(view, names), current_since(view, agreed.revision))


def prepare(tenant: TenantHandle, pipeline: Pipeline, source: Source, known: Known | None = None) -> list[Prepared]:
    """Compare, parse and chunk. Nothing is written; an unchanged source is not even parsed.

    What a file no longer holds is removed only if all of it could be read: a broken line hides which one it was.
    `known` is what was looked up before, where that is so.
    Raises `InvalidInput` for a bad name, `ParseFailure`, `ModelMismatch`.
    """
    name = document_name(source.name)
    if source.title is not None:
        source = replace(source, title=document_name(source.title, "title", limit=MAX_TITLE))
    source = replace(source, metadata=_named(source.metadata))
    version = version_of(source.data)
    if known is None or name not in known.families:
        known = look_up(tenant, pipeline, [name])
    family, since = known.families[name], known.since
    own = family.get(name)
    if own is not None and len(family) == 1 and _is_current(own, version, source, since):
        return [_relist(name, own, source.origin, _wanted(source))]
    results = pipeline.parse(tenant, name, source.data, source.media_type)
    agreed = known.pipeline
    prepared: list[Prepared] = [_prepare(agreed, source, name, version, result, family, since) for result in results]
    outcomes = [item for item in prepared if isinstance(item, Outcome)]
    if all(outcome.error is None for outcome in outcomes):
        kept = {item.document if isinstance(item, Outcome) else item.name for item in prepared}
        prepared += [Removal(gone, stored) for gone, stored in family.items() if gone not in kept]
    else:
        prepared = relisted(name, prepared, family, _wanted(source))
    return carrying(tenant, prepared)


def embed(
    pipeline: Pipeline, prepared: Sequence[Prepared], tokens: Mapping[str, int] = MappingProxyType({})
) -> list[Writable]:
    """Embed the chunks of all drafts in one call, so that the model works on full batches; but those whose vectors are
    carried over. Where that fails, each draft is tried alone, and only those that fail alone are failures. `tokens` are
    those of drafts by name, where they are known.
    """
    drafts = [item for item in prepared if isinstance(item, Draft)]
    if not drafts:
        return [item for item in prepared if not isinstance(item, Draft)]
    try:
        texts = [embedded_text(piece.text, piece.context) for draft in drafts for piece in draft.fresh]
        vectors = encoded(pipeline.embedder, texts, pipeline.turn)
    except StrongroomError as error:
        if len(drafts) > 1:
            return [writable for item in prepared for writable in embed(pipeline, [item], tokens)]
        return [failed(item.name, error) if isinstance(item, Draft) else item for item in prepared]
    ends = np.cumsum([len(draft.fresh) for draft in drafts])
    pieces = iter(np.split(vectors, ends[:-1]))

    def embedded(draft: Draft) -> Embedded:
        known = tokens.get(draft.name)
        return Embedded(draft, next(pieces), _tokens(pipeline, draft) if known is None else known)

    return [embedded(item) if isinstance(item, Draft) else item for item in prepared]


def _tokens(pipeline: Pipeline, draft: Draft) -> int:
    """Those that the model has to read."""
    return sum(pipeline.embedder.token_count(embedded_text(piece.text, piece.context)) for piece in draft.fresh)


def write(tenant: TenantHandle, pipeline: Pipeline, writables: Sequence[Writable]) -> list[Outcome]:
    """Write everything in one transaction. A document that somebody else wrote meanwhile is a failure, unwritten.

    Where the tenant moved to another model since the embedding, it is done again with that one.
    Raises `ModelMismatch`, `Unavailable`; then nothing of it is written.
    """
    outcomes = [item for item in writables if isinstance(item, Outcome)]
    if len(outcomes) == len(writables):
        items.record_alone(tenant, outcomes, pipeline.clock())
        return outcomes
    pipeline = _as_agreed(tenant, pipeline)
    for _ in range(_MOVES):
        try:
            return _write_all(tenant, pipeline, writables)
        except ModelMismatch:
            moved = at_present(tenant, pipeline)
            if moved.embedder.fingerprint == pipeline.embedder.fingerprint:
                raise
            pipeline = moved
            drafts = [item.draft if isinstance(item, Embedded) else item for item in writables]
            writables = embed(pipeline, drafts)
        except NotCarried:
            writables = embed(pipeline, carrying_nothing(writables))
    return _write_all(tenant, pipeline, writables)


def at_present(tenant: TenantHandle, pipeline: Pipeline) -> Pipeline:
    """`pipeline` with the model of the tenant's present collection. Raises `ModelMismatch`."""
    if pipeline.embedder_of is None:
        return pipeline
    with tenant.reading() as view:
        return replace(pipeline, embedder=pipeline.embedder_of(view))


def _as_agreed(tenant: TenantHandle, pipeline: Pipeline) -> Pipeline:
    return replace(pipeline, chunking=chunking_of(tenant.contract.chunking, pipeline.chunking))


def _write_all(tenant: TenantHandle, pipeline: Pipeline, writables: Sequence[Writable]) -> list[Outcome]:
    with tenant.writing() as view:
        embedder, now = pipeline.embedder, pipeline.clock()
        found = require_model(view, embedder.fingerprint)
        engine = pipeline.engine_of(tenant) if found is None else found.engine
        model_id = claim_model(view, embedder.spec, embedder.fingerprint, engine, now).model.id
        claim_pipeline(view, pipeline.revision)
        outcomes = _written(view, writables, model_id, now)
        items.record(view, outcomes, now)
    if any(outcome.change in _ERASING for outcome in outcomes):
        tenant.erase_traces()
    return outcomes


def _prepare(
    pipeline: Pipeline,
    source: Source,
    file: str,
    version: str,
    result: Parsed | ParseFailure,
    family: dict[str, Stored],
    since: int | None,
) -> Draft | Relist | Outcome:
    """One parsed document: a draft, or what makes one unnecessary or impossible."""
    name = file + result.suffix
    if isinstance(result, ParseFailure):
        return failed(name, result)
    try:
        name = document_name(name)
        if result.suffix:
            metadata = {key: value for key, value in source.metadata.items() if key not in result.metadata}
            origin = Origin(source.origin.root, file)
            source = replace(source, origin=origin, title=None, metadata=metadata)
        if result.source is not None:
            version = version_of(result.source)
        before = family.get(name)
        wanted = _wanted(source, result)
        if before is not None and _is_current(before, version, source, since):
            return _relist(name, before, source.origin, wanted)
        embedder = pipeline.embedder
        ruler = Ruler(embedder.token_starts, embedder.fingerprint.window)
        chunks = chunk(result.text, pipeline.chunking, blocks=result.blocks, places=result.places, ruler=ruler)
        terms = [pack(term_postings(indexed_text(piece.text, piece.context))) for piece in chunks]
        # Without the "#", with which a title would look like an address and be taken out of answers.
        own = " ".join([PurePosixPath(file).name, result.suffix.removeprefix("#")]).rstrip()
        title = source.title or result.title or own
        parsed = replace(result, metadata=_with_language(result, {**result.metadata, **source.metadata}))
        return Draft(name, version, title, parsed, chunks, terms, source.origin, wanted, before)
    except InvalidInput as error:
        return failed(name, error)


def _with_language(parsed: Parsed, metadata: dict[str, Scalar]) -> dict[str, Scalar]:
    """What the file, or who brings it, says about its language comes before what its text looks like."""
    if LANGUAGE in metadata:
        return metadata
    told = language_of(parsed.text, parsed.blocks)
    return metadata if told is None else {**metadata, LANGUAGE: told}


def _wanted(source: Source, parsed: Parsed | None = None) -> Wanted:
    """The source's access list, with the sides that a line itself names in their place."""
    allow, deny = (None, None) if source.access is None else (source.access.allow, source.access.deny)
    if parsed is not None and parsed.allow is not None:
        allow = frozenset(parsed.allow)
    if parsed is not None and parsed.deny is not None:
        deny = frozenset(parsed.deny)
    return Wanted(allow, deny)


def _is_current(stored: Stored, version: str, source: Source, since: int | None) -> bool:
    """Whether the same bytes went through the same pipeline, as the same kind of file, and is called the same."""
    return (
        stored.version == version
        and since is not None
        and stored.first_chunk > since
        and (source.media_type is None or source.media_type.partition(";")[0].strip().lower() == stored.media_type)
        and source.title in {None, stored.title}
        and all(_same(stored.metadata.get(name), value) for name, value in source.metadata.items())
    )


def _same(stored: object, given: object) -> bool:
    """Equal and of one type: 1, 1.0 and true are three values to a filter."""
    return type(stored) is type(given) and stored == given


def _named(metadata: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """`metadata` with names in NFC. Raises `InvalidInput` for what is no name, and for one name twice."""
    named = {nfc_name(name, "metadata"): value for name, value in metadata.items()}
    if len(named) < len(metadata):
        raise InvalidInput("two metadata names are one in Unicode's normal form", item="metadata")
    return named


def _relist(name: str, stored: Stored, origin: Origin, wanted: Wanted) -> Relist | Outcome:
    if wanted.over(stored.access) == stored.access and origin == stored.origin:
        return Outcome(name, Status.UNCHANGED)
    return Relist(name, stored, origin, wanted)


def _written(view: WriteView, writables: Sequence[Writable], model_id: int, now: float) -> list[Outcome]:
    """Documents that nobody has are written first and together, all else in order."""
    unknown: dict[str, Embedded] = {}
    for item in writables:
        if isinstance(item, Embedded) and item.draft.before is None:
            unknown.setdefault(item.draft.name, item)
    for name in ids_of(view, list(unknown)):
        del unknown[name]
    contents = {name: _content(view, item.draft, item.vectors, model_id) for name, item in unknown.items()}
    add_all(view, [_new(item.draft, contents[name]) for name, item in unknown.items()], now)

    def outcome(item: Writable) -> Outcome:
        if isinstance(item, Embedded) and unknown.get(item.draft.name) is item:
            return _indexed(item, contents[item.draft.name], Change.ADDED)
        return _write(view, item, model_id, now)

    return [outcome(item) for item in writables]


def _new(draft: Draft, content: Content) -> New:
    return New(draft.name, content, draft.origin, draft.wanted.over(AccessList()))


def _write(view: WriteView, item: Writable, model_id: int, now: float) -> Outcome:
    if isinstance(item, Outcome):
        return item
    if isinstance(item, Move):
        return _write_move(view, item, model_id, now)
    name, before = (item.draft.name, item.draft.before) if isinstance(item, Embedded) else (item.name, item.stored)
    present = documents.find_stored(view, name)
    if (present and present.first_chunk) != (before and before.first_chunk):
        if present is None or not isinstance(item, Embedded) or present.version != item.draft.version:
            reason = "somebody else wrote the document meanwhile"
            return failed(name, Conflict(reason, item=name, remedy="ingest it again"))
        item = Relist(name, present, item.draft.origin, item.draft.wanted)
    if isinstance(item, Embedded):
        return _write_content(view, item, present, model_id, now)
    if isinstance(item, Removal):
        documents.remove(view, item.stored.id, now)
        return Outcome(name, Status.REMOVED, Change.REMOVED)
    return _write_access(view, item, now)


def _write_access(view: WriteView, item: Relist, now: float) -> Outcome:
    if item.origin != item.stored.origin:
        documents.adopt(view, item.stored.id, item.origin)
    before = get_access_list(view, item.stored.id)
    access = item.wanted.over(before)
    changed = set_access_list(view, item.stored.id, access, now)
    outcome = item.failure or Outcome(item.name, Status.UNCHANGED)
    lost = bool(before.allow and not access.allow)
    return replace(outcome, change=Change.ACL_UPDATED, lost_readers=lost) if changed else outcome


def _write_move(view: WriteView, item: Move, model_id: int, now: float) -> Outcome:
    draft, stored = item.draft, item.stored
    present = documents.find_stored(view, stored.name)
    if present is None or present.first_chunk != stored.first_chunk or documents.find_stored(view, draft.name):
        reason = "somebody else wrote the document meanwhile"
        return failed(draft.name, Conflict(reason, item=draft.name, remedy="ingest it again"))
    content = _content(view, draft, np.empty((0, 1), dtype=np.float32), model_id)
    access = draft.wanted.over(present.access)
    documents.rename(view, present.id, draft.name, content, draft.origin, access, now)
    if content.metadata != present.metadata:
        # A search index knows metadata by a document's rows: other metadata, other rows.
        documents.rewrite(view, present.id, content)
    return Outcome(
        draft.name, Status.UNCHANGED, Change.MOVED, len(draft.chunks), content.warnings, moved_from=stored.name,
        lost_readers=bool(present.access.allow and not access.allow),
    )  # fmt: skip


def _write_content(view: WriteView, item: Embedded, present: Stored | None, model_id: int, now: float) -> Outcome:
    draft = item.draft
    content = _content(view, draft, item.vectors, model_id)
    if present is None:
        add_all(view, [_new(draft, content)], now)
        return _indexed(item, content, Change.ADDED)
    access = draft.wanted.over(present.access)
    content = replace(content, carried=draft.carried)
    documents.replace(view, present.id, draft.name, content, draft.origin, access, now)
    lost = bool(present.access.allow and not access.allow)
    roots = {present.origin.root, draft.origin.root}
    other = present.origin.root if len(roots) > 1 and API.root not in roots else None
    return replace(_indexed(item, content, Change.UPDATED), lost_readers=lost, replaced_root=other)


def _indexed(item: Embedded, content: Content, change: Change) -> Outcome:
    count, status = len(content.chunks), written(content.warnings)
    return Outcome(
        item.draft.name, status, change, count, content.warnings, tokens=item.tokens, embedded=len(item.vectors)
    )


def _content(view: WriteView, draft: Draft, vectors: npt.NDArray[np.float32], model_id: int) -> Content:
    """What is written of `draft`. Its warnings name the metadata that are not of the type that the contract says."""
    mistyped = misfits(draft.parsed.metadata, view.tenant.contract.metadata)
    return Content(
        version=draft.version,
        title=draft.title,
        media_type=draft.parsed.media_type,
        metadata=draft.parsed.metadata,
        warnings=(*draft.parsed.warnings, *(f"{METADATA_TYPE}:{name}" for name in mistyped)),
        chunks=draft.chunks,
        terms=draft.terms,
        vectors=vectors,
        model_id=model_id,
    )
