"""Did a tenant's data train a model? What is on record of its adapters, and of every model that its questions meet.

The answer is `yes` where a declaration names the data, `no` where every adapter on record declares its data and none
names it, and `unknown` where something that answers this tenant declares nothing. It is as good as the declarations:
nobody can read from weights what they were trained on. This product trains no generator and no adapter.
"""

from __future__ import annotations

import time
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import select

from audit.log import AuditLog
from audit.query import Filters, query_log
from audit.record import Detail, decode
from audit.trail import Trail
from cache.score import default_score
from cache.verifier.artefact import read_artefact
from generation.adapters.lineage import Declaration, Origin, Refused, origins, record_refusal, refusals
from generation.adapters.registry import Registered, registered
from generation.adapters.training import ForeignTraining, Source, Training, training_of
from indexing.catalogue import all_collections
from indexing.embedders.hashing import PREFIX as HASHING
from indexing.embedders.model_files import PACKAGED
from service.control import Control
from service.generators import pools_of, table_of
from service.settings import Settings
from tenancy.errors import InvalidInput, NotFound, StrongroomError
from tenancy.identity import Principal
from tenancy.names import document_name
from tenancy.schema import documents, versions
from tenancy.tenant import ReadView, TenantHandle
from tenancy.types import among

Answer = Literal["yes", "no", "unknown"]
Now = Literal["current", "superseded", "deleted", "never here"]

SHOWN: Final = 1_000
"""Sources of one declaration that an answer over HTTP holds."""
SCOPE: Final = (
    "by what is declared: adapters of this tenant, and adapters that the deployment gave to its pools. Base models of"
    " generators and embedding models are as their makers published them or as the operator configured them;"
    " what those were trained on is not known here"
)
_PAGE: Final = 1_000
_DOCUMENTS: Final = select(documents.c.name, documents.c.version).where(among(documents.c.name, "wanted"))
_VERSIONS: Final = select(versions.c.document, versions.c.version).where(among(versions.c.document, "wanted"))


@dataclass(frozen=True, slots=True)
class _Tenant:
    """What can still be read of a tenant. `versions` are (document, version) and whether that one is the present one;
    all but the name is empty for a deleted tenant.
    """

    name: str
    rows: Mapping[str, Registered]
    versions: Mapping[tuple[str, str], Now]
    models: Sequence[dict[str, Any]]
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _Record:
    """What lies beside the audit log, and outlives everything else."""

    origins: Sequence[Origin]
    refused: Sequence[Refused]

    @property
    def documents(self) -> set[str]:
        declared = (source for one in self.origins for said in one.declarations for source in said.sources)
        return {source.document for source in declared if source.document} | {one.document for one in self.refused}


def lineage(
    control: Control,
    principal: Principal,
    *,
    document: str | None = None,
    adapter: str | None = None,
    shown: int | None = None,
) -> dict[str, Any]:
    """The answer for the tenant of `principal`, of all its data or of one `document`, over all its adapters or the one
    of this name or id. `shown` bounds the sources that are listed of each declaration.

    Raises `NotFound` for an adapter that is on no record.
    """
    handle = control.tenants.open(principal, suspended=True)
    record = _Record(origins(handle.audit), refusals(handle.audit))
    asked = set() if document is None else {unicodedata.normalize("NFC", document)}
    with handle.reading() as view:
        tenant = _Tenant(
            name=handle.name,
            rows={one.id: one for one in registered(view)},
            versions=_versions(view, record.documents | asked),
            models=list(_models(control.settings, handle, view)),
        )
    return _answer(tenant, record, _events(control.logs.of(principal)), document, adapter, shown)


def lineage_of_deleted(
    control: Control, tenant_id: str, *, document: str | None = None, adapter: str | None = None
) -> dict[str, Any]:
    """The same for a deleted tenant, by its id: its documents and models are gone, its adapters' record is not.

    Raises `NotFound`.
    """
    found, name = control.tenants.resolve(tenant_id)
    if found != tenant_id:
        raise NotFound(
            "no deleted tenant has this id", item=tenant_id[:100], remedy="see `strongroom tenant certificate`"
        )
    log = control.logs.of_id(tenant_id)
    record = _Record(origins(log.files), refusals(log.files))
    return _answer(_Tenant(name, {}, {}, [], deleted=True), record, _events(log), document, adapter, None)


def asked_for(document: str | None, adapter: str | None) -> dict[str, Detail]:
    """What was asked, as the event of the query has it. Raises `InvalidInput` for what no document is called."""
    given = {"document": document, "adapter": adapter}
    return {name: document_name(value, name) for name, value in given.items() if value is not None}


def declared(training: Training | None) -> dict[str, Detail]:
    """A declaration as the event of a registration has it: its digest and counts; the registry has the sources."""
    if training is None:
        return {"training": "undeclared"}
    return {
        "training": "declared",
        "training_manifest": training.digest,
        "training_sources": len(training.sources),
        "training_documents": training.documents,
    }


def named_in(control: Control, refused: ForeignTraining) -> Iterator[tuple[Principal, list[Source]]]:
    """Each tenant of this deployment whose documents a refused declaration names, by its name or its id, and which."""
    ids = {record.id: record.name for record in control.tenants.listed()}
    by_name: dict[str, list[Source]] = defaultdict(list)
    for source in refused.foreign:
        by_name[ids.get(source.tenant or "", source.tenant or "")].append(source)
    for name in sorted(by_name.keys() & set(ids.values())):
        yield control.authenticator.operator(name), by_name[name]


def tell(control: Control, principal: Principal, training: Training, sources: Sequence[Source], trail: Trail) -> None:
    """Let the tenant of `principal` find in its own lineage and log that another's adapter, which was refused, named
    its documents. Neither says whose adapter it was.
    """
    count = record_refusal(control.logs.of(principal).files, training, sources, time.time())
    trail.note(detail={"training_manifest": training.digest, "documents": count})


def _answer(
    tenant: _Tenant,
    record: _Record,
    events: Mapping[tuple[str, str], int],
    document: str | None,
    adapter: str | None,
    shown: int | None,
) -> dict[str, Any]:
    named = None if document is None else unicodedata.normalize("NFC", document)
    kept = {one.id for one in record.origins}
    found = [*record.origins, *(_without_record(row) for row in tenant.rows.values() if row.id not in kept)]
    if adapter is not None:
        found = [one for one in found if adapter in (one.id, one.name)]
        if not found:
            raise NotFound("no such adapter is on record", item=adapter[:100], remedy="`strongroom lineage`")
    rows = [_adapter(tenant, one, named, events, shown) for one in found]
    refused = [one for one in record.refused if named in (None, one.document)]
    answering = tenant.models if adapter is None else []
    findings = list(_findings(rows, answering))
    if named is not None and not tenant.deleted and named not in {one for one, _ in tenant.versions}:
        findings.append(f"no document {named} was ever here: check the name, its folder too")
    return {
        "tenant": tenant.name,
        "document": document,
        "trained": _trained(rows, answering),
        "scope": SCOPE,
        "adapters": rows,
        "refused": [] if adapter is not None else [_refused(tenant, one) for one in refused[:shown]],
        "models": list(answering),
        "findings": findings,
    }


def _trained(rows: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]]) -> Answer:
    if any(row["matching"] for row in rows):
        return "yes"
    undeclared = any(not row["declarations"] for row in rows) or any(model["undeclared_adapter"] for model in models)
    # What stands in the place of what was declared declares nothing.
    altered = any(not said["intact"] for row in rows for said in row["declarations"])
    return "unknown" if undeclared or altered else "no"


def _without_record(row: Registered) -> Origin:
    """An adapter of before lineage was kept, or of a restored copy: what it was trained on, nobody said here."""
    return Origin(row.id, row.name, row.base, row.base, None, row.revision, row.rank, row.modules, row.created, ())


def _adapter(
    tenant: _Tenant,
    one: Origin,
    document: str | None,
    events: Mapping[tuple[str, str], int],
    shown: int | None,
) -> dict[str, Any]:
    row = tenant.rows.get(one.id)
    declarations = [_declaration(tenant, one, said, document, events, shown) for said in one.declarations]
    return {
        "adapter": one.name,
        "id": one.id,
        "state": "gone" if row is None else "usable" if row.revoked is None else "revoked",
        "registered": one.registered,
        "revoked": None if row is None else row.revoked,
        "base": one.base,
        "made_for": one.made_for,
        "base_revision": one.base_revision,
        "revision": one.revision,
        "rank": one.rank,
        "modules": list(one.modules),
        "matching": sum(said["matching"] for said in declarations),
        "declarations": declarations,
    }


def _declaration(
    tenant: _Tenant,
    adapter: Origin,
    said: Declaration,
    document: str | None,
    events: Mapping[tuple[str, str], int],
    shown: int | None,
) -> dict[str, Any]:
    """`matching` counts what of it is the tenant's own, or the document asked for. `intact`: the sources are those of
    the digest; `event` is the record in the audit log that has this digest, None where none is there any more.
    """
    matching = [source for source in said.sources if source.tenant is not None and document in (None, source.document)]
    listed = matching if document is not None else list(said.sources)
    now = [tenant.versions.get((source.document or "", source.version)) for source in matching]
    return {
        "manifest": said.digest,
        "declared": said.declared,
        "intact": training_of(said.sources).digest == said.digest,
        "event": events.get((adapter.id, said.digest)),
        "total": len(said.sources),
        "matching": len(matching),
        "deleted": 0 if tenant.deleted else now.count("deleted"),
        "licences": sorted({source.licence for source in said.sources}),
        "sources": [_source(tenant, source) for source in listed[:shown]],
    }


def _source(tenant: _Tenant, source: Source) -> dict[str, Any]:
    found: dict[str, Any] = {
        "document": source.document,
        "dataset": source.dataset,
        "version": source.version,
        "licence": source.licence,
    }
    if source.document is not None and not tenant.deleted:
        found["now"] = tenant.versions.get((source.document, source.version), "never here")
    return {name: value for name, value in found.items() if value is not None}


def _refused(tenant: _Tenant, one: Refused) -> dict[str, Any]:
    now = None if tenant.deleted else tenant.versions.get((one.document, one.version), "never here")
    return {"document": one.document, "version": one.version, "now": now, "manifest": one.digest, "at": one.at}


def _findings(rows: Sequence[dict[str, Any]], models: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What somebody should look at, as sentences."""
    for row in rows:
        who = f"the adapter {row['adapter']} ({row['id']}, {row['state']})"
        deleted = sum(said["deleted"] for said in row["declarations"])
        if not row["declarations"]:
            yield f"{who} does not say what it was trained on"
        if deleted and row["state"] == "usable":
            yield f"{who} was trained on {_count(deleted, 'document version')} of documents that were deleted since"
        if not all(said["intact"] for said in row["declarations"]):
            yield f"{who}: the sources on record are not those that were declared"
    for model in models:
        if model["undeclared_adapter"]:
            yield f"the pool {model['pool']} answers with an adapter of the deployment that declares nothing"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _events(log: AuditLog) -> dict[tuple[str, str], int]:
    """The records of registrations by adapter and digest of the declaration."""
    found: dict[tuple[str, str], int] = {}
    after: str | None = None
    while True:
        filters = Filters(action="adapter.add", outcome="allowed", order="asc")
        page = query_log(log, filters, limit=_PAGE, after=after)
        for stored in page.events:
            event = decode(stored.payload)
            adapter, digest = event.detail.get("adapter"), event.detail.get("training_manifest")
            if isinstance(adapter, str) and isinstance(digest, str):
                found.setdefault((adapter, digest), event.seq)
        after = page.cursor
        if after is None:
            return found


def _versions(view: ReadView, wanted: Collection[str]) -> dict[tuple[str, str], Now]:
    """Every version that the documents `wanted` ever had, and what became of it."""
    if not wanted:
        return {}
    there = {row.name: row.version for row in view.execute(_DOCUMENTS, {"wanted": wanted})}
    found: dict[tuple[str, str], Now] = {}
    for row in view.execute(_VERSIONS, {"wanted": wanted}):
        now: Now = "deleted"
        if row.document in there:
            now = "current" if there[row.document] == row.version else "superseded"
        found[row.document, row.version] = now
    return found


def _models(settings: Settings, tenant: TenantHandle, view: ReadView) -> Iterator[dict[str, Any]]:
    """Every model that the tenant's questions and documents meet. `training` says what is known of its data here."""
    for collection in all_collections(view):
        model = collection.model
        yield _model(
            "embedding",
            model.spec if model.fingerprint is None else model.fingerprint.name,
            None if model.fingerprint is None else model.fingerprint.revision,
            _published(model.spec),
            collection=collection.state,
        )
    score = default_score()
    yield _model(
        "score", "shipped with the program", score.revision, "public pairs of questions", embedder=score.embedder
    )
    if settings.cache.verifier.path:
        yield _verifier(Path(settings.cache.verifier.path).expanduser())
    pools = pools_of(settings.generation)
    try:
        entries = table_of(settings.generation).of(tenant.name, tenant.contract)
    except InvalidInput as error:
        yield _model("generator", "none serves this tenant", None, f"not to be had: {error.code}")
        return
    for entry in entries:
        _, pool = pools[entry.name]
        if pool.kind == "extractive":
            yield _model("generator", entry.model, None, "none: quotes sources", pool=entry.name)
            continue
        yield _model(
            "generator", entry.model, pool.revision or None, "not known here", pool=entry.name, adapter=pool.adapter
        )


def _model(
    role: str, name: str, revision: str | None, training: str, *, adapter: str = "", **more: str
) -> dict[str, Any]:
    own = {"adapter": adapter} if adapter else {}
    return {
        "role": role,
        "model": name,
        "revision": revision,
        "training": training,
        "undeclared_adapter": bool(adapter),
        **own,
        **more,
    }


def _published(spec: str) -> str:
    if spec.startswith(HASHING):
        return "none: hashes words"
    return "as its makers published it" if spec == PACKAGED or "@" in spec else "not known here"


def _verifier(folder: Path) -> dict[str, Any]:
    """What the verifier's own manifest says."""
    try:
        artefact = read_artefact(folder)
    except StrongroomError as error:
        return _model("verifier", folder.name, None, f"not to be had: {error.code}")
    said = {str(name): value for name, value in artefact.manifest.training.items()}
    return _model("verifier", folder.name, artefact.revision, "as its manifest says") | {"declared": said}
