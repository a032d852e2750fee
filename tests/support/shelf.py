"""A tenant's documents written straight as rows, with vectors and texts that the test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sqlalchemy import select

from indexing import adding, documents
from indexing.catalogue import EMBEDDED
from indexing.chunk import Chunk
from indexing.collections.open import OpenCollections
from indexing.documents import Content
from indexing.embed import Fingerprint
from indexing.engine import Engine
from indexing.model import claim_model
from indexing.origin import API
from indexing.snapshot import Snapshot
from indexing.terms import pack, term_postings
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tenancy.schema import chunks
from tenancy.schema import documents as named
from tests.support.people import NOW, Company

DIMENSION = 4
FINGERPRINT = Fingerprint(
    name="by hand", revision="1", dtype="float32", dimension=DIMENSION, normalised=False, window=512
)


class Shelf:
    """Documents of one company, and a collection over them."""

    def __init__(
        self,
        company: Company,
        fingerprint: Fingerprint = FINGERPRINT,
        engine: str = EMBEDDED,
        engines: Mapping[str, Engine] | None = None,
    ) -> None:
        self.company = company
        self.fingerprint = fingerprint
        self.engine = engine
        self.collections = OpenCollections(fingerprint, budget_bytes=2**30, engines=engines)

    def put(
        self,
        name: str,
        *texts: str,
        vectors: Sequence[Sequence[float]] | None = None,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        metadata: Mapping[str, str | int | float | bool] | None = None,
    ) -> list[int]:
        """Add or replace a document with a chunk a text; returns the chunk ids."""
        self._claim()
        given = [[float(len(text) % 7), 1.0, 0.0, 0.0] for text in texts] if vectors is None else vectors
        content = Content(
            version=f"sha256:{abs(hash((texts, str(given)))):x}",
            title=name,
            media_type="text/plain",
            metadata=metadata or {},
            warnings=(),
            chunks=[Chunk(ordinal, 0, len(text), text) for ordinal, text in enumerate(texts)],
            terms=[pack(term_postings(text)) for text in texts],
            vectors=np.array(given, dtype=np.float32).reshape(len(texts), self.fingerprint.dimension),
            model_id=self.model_id,
        )
        access = AccessList.of(allow, deny)
        with self.company.handle.writing() as view:
            stored = documents.find_stored(view, name)
            if stored is not None:
                documents.replace(view, stored.id, name, content, API, access, NOW)
            else:
                adding.add(view, name, content, API, access, NOW)
        return self.chunk_ids(name)

    def _claim(self) -> None:
        with self.company.handle.writing() as view:
            self.model_id = claim_model(view, "by hand", self.fingerprint, self.engine, NOW).model.id

    def chunk_ids(self, name: str) -> list[int]:
        with self.company.handle.reading() as view:
            query = select(chunks.c.id).join(named, named.c.id == chunks.c.document_id).where(named.c.name == name)
            return list(view.execute(query.order_by(chunks.c.ordinal)).scalars())

    def remove(self, name: str) -> None:
        with self.company.handle.writing() as view:
            stored = documents.find_stored(view, name)
            assert stored is not None
            documents.remove(view, stored.id, NOW)

    def scope(self, principal: Principal) -> tuple[PermissionDomain, Snapshot]:
        with self.collections.opened(self.company.handle) as (view, snapshot):
            return permission_domain(principal, view), snapshot

    def dense(self, principal: Principal, vector: Sequence[float], k: int = 10) -> list[tuple[int, float]]:
        domain, snapshot = self.scope(principal)
        return [tuple(scored) for scored in snapshot.dense(domain, np.array(vector, dtype=np.float32), k)]

    def lexical(self, principal: Principal, text: str, k: int = 10) -> list[tuple[int, float]]:
        domain, snapshot = self.scope(principal)
        return [tuple(scored) for scored in snapshot.lexical(domain, term_postings(text), k)]


@contextmanager
def fresh_company(name: str = "acme") -> Iterator[Company]:
    """A company in a folder of its own, for property tests, which make many."""
    with TemporaryDirectory() as folder:
        tenants = Tenants(Path(folder), MasterKey(bytes(range(32))))
        try:
            yield Company(tenants, Authenticator(tenants), name)
        finally:
            tenants.close()
