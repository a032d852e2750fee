"""/v1/documents: one tenant's documents and their access lists, for those who load them (role ingest)."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import Request, Router, delete, get, patch, put
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.spec import Example
from litestar.params import Body, FromQuery, JSONBody

from audit.record import Resource
from audit.trail import Trail
from indexing.documents import change_access, delete_document, list_documents, show_document
from indexing.ingest import Source, at_present, put_document
from indexing.items import Item, list_items
from indexing.outcome import Outcome
from service.auth import QUERY, principal_of, request_id_of
from service.bodies import AccessBody, DocumentBody
from service.charging import ADMITS, FREE, WITHDRAWS, Afford, loading
from service.openapi import PROBLEMS
from service.operation import operation
from service.problems import Malformed
from service.selection import label_summary
from service.tariff import embedding
from service.wiring import Services
from tenancy.acl import AccessList
from tenancy.errors import InvalidInput, NotFound
from tenancy.identity import Role
from tenancy.names import document_name as nfc_document
from tenancy.tenant import TenantHandle

_PREFIX: Final = b"/v1/documents/"
_ACL: Final = "/acl"
_DOTS: Final = frozenset({".", ".."})
_EXAMPLES = [
    Example(summary="Text", value={"text": "Notice: three months.", "title": "Notice", "allow": ["group:staff"]}),
    Example(
        summary="A file",
        value={
            "content_base64": "PHA+Tm90aWNlOiB0aHJlZSBtb250aHMuPC9wPg==",
            "media_type": "text/html",
            "allow": ["tenant"],
        },
    ),
]


class DocumentSummary(msgspec.Struct, frozen=True):
    """`updated` is UTC epoch seconds, `language` what the file says or its text tells. In a list by status, `reason`
    and `remedy` say why the file gave no document, or not its present version; `version`, `title` and `media_type` are
    null where there is no document."""

    id: str
    version: str | None
    title: str | None
    media_type: str | None
    updated: float
    status: str | None = None
    reason: str | None = None
    remedy: str | None = None
    warnings: list[str] = []
    language: str | None = None


class DocumentList(msgspec.Struct, frozen=True):
    """`after` continues the list; it is null at its end."""

    documents: list[DocumentSummary]
    after: str | None


class DocumentResponse(msgspec.Struct, frozen=True):
    """A document with its access list, without its text. `places` are pages, slides, sheets with their cells, where its
    chunks begin, 1000 at most; `hidden` of the chunks are not seen by who opens the file.
    """

    id: str
    version: str
    title: str
    media_type: str
    updated: float
    chunks: int
    warnings: list[str]
    metadata: dict[str, Any]
    allow: list[str]
    deny: list[str]
    places: list[str]
    hidden: int


class DocumentOutcome(msgspec.Struct, frozen=True):
    """What became of one document, and what changed; a file of several documents gives one for each of them."""

    id: str
    status: str
    change: str
    chunks: int
    warnings: list[str]
    reason: str | None = None


class PutResponse(msgspec.Struct, frozen=True):
    outcomes: list[DocumentOutcome]


class AccessResponse(msgspec.Struct, frozen=True):
    id: str
    allow: list[str]
    deny: list[str]
    changed: bool


class DeleteResponse(msgspec.Struct, frozen=True):
    deleted: list[str]


def router(services: Services) -> Router:
    handlers = [*_reading(services), *_writing(services)]
    return Router("/documents", route_handlers=handlers, tags=["documents"])


def _reading(services: Services) -> list[HTTPRouteHandler]:
    control, run = services.control, services.workers.run

    @get("/", opt={QUERY: frozenset({"after", "limit", "status"})}, summary="List documents", responses=PROBLEMS)
    async def list_all(
        request: Request[Any, Any, Any],
        after: FromQuery[str] = "",
        limit: FromQuery[int] = 100,
        status: FromQuery[str] = "",
    ) -> DocumentList:
        """All documents of the tenant by name, also those that the caller may not read; `limit` is 1 to 1000. With
        `status`, what ingestion left in that state, also files that gave no document: partial, encrypted, corrupt ...
        """
        principal = principal_of(request)
        async with operation(control, request, "document.list", Role.INGEST) as trail:
            tenant = await run(control.tenants.open, principal)
            if status:
                items = await run(list_items, tenant, status, after=after, limit=limit)
                listed = [_item(item) for item in items]
            else:
                found = await run(list_documents, tenant, after=after, limit=limit)
                listed = [
                    DocumentSummary(
                        one.name, one.version, one.title, one.media_type, one.updated, language=one.language
                    )
                    for one in found
                ]
            trail.note(detail={"documents": len(listed), **({"status": status} if status else {})})
            await trail.intent()
        return DocumentList(listed, listed[-1].id if len(listed) == limit else None)

    @get("/{id:path}", summary="Show a document", responses=PROBLEMS)
    async def show(request: Request[Any, Any, Any]) -> DocumentResponse:
        """What is known about a document, and who may read it."""
        document = document_name(request)
        async with operation(control, request, "document.show", Role.INGEST) as trail:
            trail.note(resources=[Resource(document=document, stage="listed")])
            await trail.intent()
            tenant = await run(control.tenants.open, principal_of(request))
            detail = await run(show_document, tenant, document)
        record = detail.record
        return DocumentResponse(
            record.name, record.version, record.title, record.media_type, record.updated, detail.chunks,
            list(detail.warnings), dict(detail.metadata), sorted(detail.access.allow), sorted(detail.access.deny),
            list(detail.places), detail.hidden,
        )  # fmt: skip

    return [list_all, show]


def _writing(services: Services) -> list[HTTPRouteHandler]:
    control, run = services.control, services.workers.run

    @put(
        "/{id:path}",
        opt={ADMITS: True},
        summary="Add or replace a document",
        responses=PROBLEMS,
        request_max_body_size=services.settings.server.max_document,
    )
    async def store(
        request: Request[Any, Any, Any], data: Annotated[DocumentBody, Body(examples=_EXAMPLES)]
    ) -> PutResponse:
        """Parse, chunk and embed a document, and put it in the place of its older version in one step. Equal content
        is not embedded again. The id is the document's name; it may hold slashes, but no . or .. between them.
        """
        document, principal = document_name(request), principal_of(request)
        async with operation(control, request, "document.put", Role.INGEST, tenant=data.tenant) as trail:
            trail.note(resources=[Resource(document=document, stage="written")])
            source = _source(document, data)
            if source.access is not None:
                trail.note(detail=_lists(source.access))
            tenant = await run(control.tenants.open, principal)
            turn = services.loading.turn(principal.tenant_id)
            async with _admitted(services, request, trail, tenant, source) as afford, turn as workers:
                await trail.intent()
                tenant = await workers.run(control.tenants.open, principal)
                with embedding(trail, services.path.tariff, tenant) as use:
                    model = (await workers.run(at_present, tenant, services.pipeline)).embedder.fingerprint
                    use.by(model.name, model.revision)
                    pipeline = services.in_turn(principal, tenant, lambda tokens: afford(tokens, model.name))
                    outcomes = await workers.run(put_document, tenant, pipeline, source)
                    use.used(sum(outcome.tokens for outcome in outcomes))
                trail.note(detail={"outcomes": len(outcomes), **_detail(outcomes)})
                await services.settle(tenant)
        return PutResponse([_outcome(outcome) for outcome in outcomes])

    @delete("/{id:path}", status_code=200, opt={FREE: WITHDRAWS}, summary="Delete a document", responses=PROBLEMS)
    async def remove(request: Request[Any, Any, Any]) -> DeleteResponse:
        """Delete a document, or all that came from the lines of one file. Its text is gone from the disk after it."""
        document = document_name(request)
        async with operation(control, request, "document.delete", Role.INGEST) as trail:
            trail.note(resources=[Resource(document=document, stage="deleted")])
            await trail.intent()
            tenant = await run(control.tenants.open, principal_of(request))
            deleted = await run(delete_document, tenant, document, time.time())
            trail.note(resources=[Resource(document=one, stage="deleted") for one in deleted])
            await services.settle(tenant)
        return DeleteResponse(deleted)

    # The address ends in /acl, which a route cannot say after a path: `document_name` requires it.
    @patch("/{id:path}", opt={FREE: WITHDRAWS}, summary="Replace a document's access list", responses=PROBLEMS)
    async def change(request: Request[Any, Any, Any], data: JSONBody[AccessBody]) -> AccessResponse:
        """Replace the access list as a whole. The change holds from the next question on."""
        document = document_name(request, _ACL)
        async with operation(control, request, "acl.set", Role.INGEST, tenant=data.tenant) as trail:
            access = AccessList.of(data.allow, data.deny)
            trail.note(resources=[Resource(document=document, stage="access")], detail=_lists(access))
            await trail.intent()
            tenant = await run(control.tenants.open, principal_of(request))
            changed = await run(change_access, tenant, document, access, time.time())
            await services.settle(tenant)
        return AccessResponse(document, sorted(access.allow), sorted(access.deny), changed)

    return [store, remove, change]


def _admitted(
    services: Services, request: Request[Any, Any, Any], trail: Trail, tenant: TenantHandle, source: Source
) -> AbstractAsyncContextManager[Afford]:
    path, model = services.path, services.path.embedders.default.fingerprint.name
    return loading(
        path.admission, path.tariff, trail, principal_of(request), tenant,
        model=model, size=source.size, request_id=request_id_of(request),
    )  # fmt: skip


def document_name(request: Request[Any, Any, Any], suffix: str = "", prefix: bytes = _PREFIX) -> str:
    """The document's name as it stands in the address between `prefix` and `suffix`, percent-decoded once; the
    framework's would be a path, which loses doubled slashes.
    """
    raw: bytes = request.scope["raw_path"]
    before, found, rest = raw.partition(b"?")[0].partition(prefix)
    if before.strip(b"/") or not found:
        remedy = f"write {prefix.decode()} without percent signs"
        raise NotFound("there is nothing under this address", remedy=remedy)
    try:
        name = unquote_to_bytes(rest).decode("utf-8")
    except UnicodeDecodeError:
        raise Malformed("the document's id is not UTF-8", item="id") from None
    if not name.endswith(suffix):
        raise NotFound("only an access list can be changed in part", remedy="PATCH /v1/documents/{id}/acl")
    name = nfc_document(name.removesuffix(suffix))
    if not _DOTS.isdisjoint(name.split("/")):
        raise InvalidInput("an id must not hold . or .. between slashes", item="id", remedy="proxies resolve them")
    return name


def _source(document: str, data: DocumentBody) -> Source:
    if (data.text is None) == (data.content_base64 is None):
        raise InvalidInput("a document is either text or content_base64", item="text")
    media_type = data.media_type
    if data.text is not None:
        content, media_type = data.text.encode("utf-8"), media_type or "text/plain"
    else:
        try:
            content = base64.b64decode(data.content_base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidInput("this is not base64", item="content_base64") from None
    listed = data.allow is not None or data.deny is not None
    access = AccessList.of(data.allow or (), data.deny or ()) if listed else None
    return Source(document, content, access, media_type, data.title, data.metadata)


def _lists(access: AccessList) -> dict[str, str]:
    return {"allow": label_summary(access.allow), "deny": label_summary(access.deny)}


def _item(item: Item) -> DocumentSummary:
    return DocumentSummary(
        item.name, item.version, item.title, item.media_type, item.seen,
        item.status, item.reason, item.remedy, list(item.warnings), item.language,
    )  # fmt: skip


def _detail(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """What became of the document, or of the first one in its file."""
    return {"status": outcomes[0].status.value, "change": outcomes[0].change.value} if outcomes else {}


def _outcome(outcome: Outcome) -> DocumentOutcome:
    return DocumentOutcome(
        outcome.document,
        outcome.status.value,
        outcome.change.value,
        outcome.chunks,
        list(outcome.warnings),
        outcome.reason,
    )
