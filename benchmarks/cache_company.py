"""One tenant with documents and any number of remembered answers, for the benchmarks of the cache."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import insert, update

from cache.entry import Entry, canonical_payload, encode_dependencies, new_entry_id, sealed
from cache.key import CompositeIdentity, RetrievalIdentity, exact_key, namespace
from cache.ladder import Ladder
from cache.lookup import Asked, Mode, ask
from cache.openings import open_template
from cache.score.fitted import default_score
from cache.stores import tables
from cache.stores.port import CacheStore
from service.settings import load_settings
from service.wiring import ladder
from tenancy import schema
from tenancy.acl import AccessList, write_access_list
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal, Role
from tenancy.keys import MasterKey
from tenancy.tenant import ReadView, TenantHandle

Vectors = npt.NDArray[np.float32]
DOCUMENTS = 50
CONTEXT = 5
PAYLOAD = canonical_payload({"answer": "The limit is 100 EUR. " * 20, "citations": [{"quote": "x" * 200}]})
_BATCH = 2_000
# Random vectors pass for those of the model that the shipped score was fitted with: it judges no other model's.
_EMBEDDER = json.dumps({"revision": default_score().embedder.rpartition("@")[2]})


@dataclass(frozen=True)
class Company:
    """A tenant and one of its readers."""

    tenants: Tenants
    tenant: TenantHandle
    principal: Principal

    @classmethod
    def found(cls, folder: Path, name: str = "acme", *, threshold: float | None = 0.9) -> Company:
        """A new tenant below `folder` with 50 documents that everybody in it may read, opened for semantic hits from
        `threshold` on.
        """
        tenants = Tenants(folder, MasterKey(bytes(32)))
        tenants.create(name)
        key = tenants.create_key(name, "ana", [Role.READER]).text
        principal = Authenticator(tenants).authenticate(key, "192.0.2.1")
        tenant = tenants.open(principal)
        _write_documents(tenant)
        if threshold is not None:
            with tenant.writing() as view:
                open_template(
                    view, "default", threshold=threshold, opened_by="benchmark", reason="benchmark", now=time.time()
                )
        return cls(tenants, tenant, principal)

    def entries(self, questions: Sequence[str], vectors: Vectors, filters: Sequence[str | None]) -> Iterator[Entry]:
        """A sealed entry a question, in the namespace of its filter."""
        with self.tenant.reading() as view:
            domain, epochs = permission_domain(self.principal, view), view.epochs
        now, spaces = time.time(), {}
        for number, (question, vector, filter_) in enumerate(zip(questions, vectors, filters, strict=True)):
            if filter_ not in spaces:
                spaces[filter_] = namespace(self.tenant, domain, identity(domain, filter_))
            documents = {(number * 7 + position) % DOCUMENTS + 1 for position in range(CONTEXT)}
            entry = Entry(
                id=new_entry_id(),
                namespace=spaces[filter_].value,
                exact=exact_key(self.tenant, spaces[filter_], question),
                template="default",
                question=question,
                vector=vector.astype("<f4").tobytes(),
                payload=PAYLOAD,
                dependencies=tuple((document, f"sha256:{document}") for document in sorted(documents)),
                acl_epoch=epochs.acl,
                corpus_epoch=epochs.corpus,
                created=now,
                expires=now + 86_400,
                origin_seq=number,
                origin_user=self.principal.user_id,
            )
            yield sealed(self.tenant, entry)


def identity(domain: PermissionDomain, filter_: str | None = None) -> CompositeIdentity:
    return CompositeIdentity(
        tenant_id=domain.tenant_id,
        domain=domain.fingerprint,
        model_revision="extractive-1",
        tokenizer_revision="words-1",
        template_revision="default@1",
        adapter_revision=None,
        embedder=_EMBEDDER,
        generation="temperature=0",
        user_id=None,
        filter=filter_,
        conversation=None,
        response_contract=None,
        retrieval=RetrievalIdentity(8, "hybrid", "rrf", None, "chunker-1"),
    )


def asking(domain: PermissionDomain, view: ReadView, text: str, filter_: str | None = None) -> Asked:
    return ask(domain, view, identity(domain, filter_), text, template="default", mode=Mode.DEFAULT, follow_up=False)


def shipped_ladder(**changes: Any) -> Ladder:
    """What decides about semantic hits with the settings as shipped, with `changes`."""
    return replace(ladder(load_settings(environment={}).cache.verifier), **changes)


def put_all(tenant: TenantHandle, store: CacheStore, entries: Iterator[Entry]) -> list[float]:
    """Through the store's own `put`; seconds of each write."""
    times = []
    for entry in entries:
        started = time.perf_counter()
        refused = store.put(tenant, entry, allowed=lambda: None)
        times.append(time.perf_counter() - started)
        if refused:
            raise SystemExit(refused)
    return times


def write_rows(tenant: TenantHandle, entries: Iterator[Entry]) -> None:
    """Straight into the local store's file, in large transactions: what `put` would have written, in less time."""
    rows: list[Entry] = []
    for entry in entries:
        rows.append(entry)
        if len(rows) == _BATCH:
            _write_batch(tenant, rows)
            rows = []
    if rows:
        _write_batch(tenant, rows)


def _write_batch(tenant: TenantHandle, entries: list[Entry]) -> None:
    names = [field.name for field in fields(Entry)]
    with tables.database(tenant).writing() as connection:
        rows = [
            {name: getattr(entry, name) for name in names}
            | {"dependencies": encode_dependencies(entry.dependencies), "bytes": 3_000, "used": entry.created}
            for entry in entries
        ]
        connection.execute(insert(tables.entries), rows)
        newest = connection.exec_driver_sql("SELECT max(seq) FROM entries").scalar_one()
        first = newest - len(entries) + 1
        connection.execute(
            insert(tables.dependencies),
            [
                {"document_id": document, "seq": first + offset}
                for offset, entry in enumerate(entries)
                for document, _ in entry.dependencies
            ],
        )
        connection.execute(
            update(tables.totals).values(
                entries=tables.totals.c.entries + len(entries), bytes=tables.totals.c.bytes + 3_000 * len(entries)
            )
        )


def _write_documents(tenant: TenantHandle) -> None:
    with tenant.writing() as view:
        for number in range(1, DOCUMENTS + 1):
            view.execute(
                insert(schema.documents).values(
                    id=number, name=f"doc-{number}", version=f"sha256:{number}", title="t", media_type="text/plain",
                    metadata={}, origin="benchmark", warnings=[], updated=time.time(),
                )
            )  # fmt: skip
            write_access_list(view, number, AccessList.of(["tenant"], []), time.time())
            view.bump_corpus(number)
