"""Remembering an answer: only a complete one, and only if nothing it rests on has moved since it was begun."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cache.decision import Asked, Mode, Reach
from cache.entry import Dependencies, Entry, Vector, new_entry_id, sealed
from cache.stores.port import CacheStore
from tenancy.domain import permission_domain, readable_documents
from tenancy.errors import Corrupt, Unavailable
from tenancy.identity import Principal
from tenancy.tenant import Epochs, TenantHandle


@dataclass(frozen=True, slots=True)
class Completed:
    """An answer that was generated, as offered to the cache.

    `finish_reason` is the generator's own; `abstained` an answer that says "not in the documents";
    `verified_citations` counts those whose quote was found verbatim. `dependencies` are all documents in the
    context, cited or not. `epochs` are those of the scope that the context was read under. `vector` (dim,) is the
    question's, None where it was not embedded or is longer than the window. `audit_seq` is the answer's own event.
    """

    payload: bytes
    finish_reason: str
    abstained: bool
    verified_citations: int
    dependencies: Dependencies
    epochs: Epochs
    vector: Vector | None
    audit_seq: int


@dataclass(frozen=True, slots=True)
class Stored:
    entry_id: str


@dataclass(frozen=True, slots=True)
class NotStored:
    reason: str


def put(
    tenant: TenantHandle, principal: Principal, store: CacheStore, asked: Asked, answer: Completed
) -> Stored | NotStored:
    """Remember `answer`, or say why not; never raises for a cache that is out of reach.

    Inside the cache's write transaction the tenant's database is read afresh: the ACL epoch, the principal's
    domain, and the version and readability of every dependency have to be what the answer was made from. What
    changes after that is caught when the entry is looked up.
    """
    if refusal := _not_storable(asked, answer):
        return NotStored(refusal)
    now = store.clock()
    # A vector that is not finite is no vector: it would compare with nothing.
    vector = answer.vector if answer.vector is not None and np.isfinite(answer.vector).all() else None
    shared = asked.reach is Reach.SHARED and vector is not None
    entry = sealed(
        tenant,
        Entry(
            id=new_entry_id(),
            namespace=asked.namespace.value,
            exact=asked.exact,
            template=asked.template,
            question=asked.question,
            vector=vector.astype("<f4").tobytes() if shared and vector is not None else b"",
            payload=answer.payload,
            dependencies=tuple(sorted(set(answer.dependencies))),
            acl_epoch=answer.epochs.acl,
            corpus_epoch=answer.epochs.corpus,
            created=now,
            expires=now + store.policy.lifetime(asked.template),
            origin_seq=answer.audit_seq,
            origin_user=principal.user_id,
        ),
    )

    def unchanged() -> str | None:
        return _moved(tenant, principal, asked, entry)

    try:
        refusal = store.put(tenant, entry, allowed=unchanged)
    except (Unavailable, Corrupt):
        return NotStored("cache out of reach")
    return Stored(entry.id) if refusal is None else NotStored(refusal)


def _not_storable(asked: Asked, answer: Completed) -> str | None:
    if asked.mode is Mode.BYPASS:
        return "bypassed"
    if asked.reach is Reach.NONE:
        return "not cacheable"
    if answer.finish_reason != "stop":
        return "incomplete"
    if answer.abstained:
        return "abstained"
    if answer.verified_citations < 1 or not answer.dependencies:
        return "no verified citation"
    return None


def _moved(tenant: TenantHandle, principal: Principal, asked: Asked, entry: Entry) -> str | None:
    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        if view.epochs.acl != entry.acl_epoch:
            return "access lists moved"
        if domain.fingerprint != asked.namespace.domain:
            return "the permission domain moved"
        readable = readable_documents(domain, view, [document for document, _ in entry.dependencies])
    if any(readable.get(document) != version for document, version in entry.dependencies):
        return "a document moved"
    return None
