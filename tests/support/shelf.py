"""A tenant's documents written straight as rows, with vectors and texts that the test chooses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from indexing import documents
from indexing.catalogue import EMBEDDED
from indexing.chunk import Chunk
from indexing.collections.open import OpenCollections
from indexing.documents import Content
from indexing.embed import Fingerprint
from indexing.model import claim_model
from indexing.origin import API
from indexing.snapshot import Snapshot
from indexing.terms import pack, term_postings
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal
from tenancy.keys import MasterKey
from tests.support.people import NOW, Company

DIMENSION = 4
FINGERPRINT = Fingerprint(
    name="by hand", revision="1", dtype="float32", dimension=DIMENSION, normalised=False, window=512
)


class Shelf:
    """Documents of one company, and a collection over them."""

    def __init__(self, company: Company, fingerprint: Fingerprint = FINGERPRINT, engine: str = EMBEDDED) -> None:
        self.company = company
        self.fingerprint = fingerprint
        self.engine = engine
        self.collections = OpenCollections(fingerprint, budget_bytes=2**30)
        self._ids: dict[str, int] = {}

    def put(
        self,
        name: str,
        *texts: str,
        vectors: Sequence[Sequence[float]] | None = None,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
    ) -> list[int]:
        """Add or replace a document with a chunk a text; returns the chunk ids."""
        self._claim()
        given = [[float(len(text) % 7), 1.0, 0.0, 0.0] for text in texts] if vectors is None else vectors
        content = Content(
            version=f"sha256:{abs(hash((texts, str(given)))):x}",
            title=name,
            media_type="text/plain",
            metadata={},
            warnings=(),
            chunks=[Chunk(ordinal, 0, len(text), text) for ordinal, text in enumerate(texts)],
            terms=[pack(term_postings(text)) for text in texts],
            vectors=np.array(given, dtype=np.float32).reshape(len(texts), self.fingerprint.dimension),
            model_id=self.model_id,
        )
        access = AccessList.of(allow, deny)
        with self.company.handle.writing() as view:
            if name in self._ids:
                documents.replace(view, self._ids[name], name, content, API, access, NOW)
            else:
                self._ids[name] = documents.add(view, name, content, API, access, NOW)
        return self.chunk_ids(name)

    def _claim(self) -> None:
        with self.company.handle.writing() as view:
            self.model_id = claim_model(view, "by hand", self.fingerprint, self.engine, NOW).model.id

    def chunk_ids(self, name: str) -> list[int]:
        with self.company.handle.reading() as view:
            return [
                row.id
                for row in view.execute(
                    documents.chunks.select()
                    .where(documents.chunks.c.document_id == self._ids[name])
                    .order_by(documents.chunks.c.ordinal)
                )
            ]

    def remove(self, name: str) -> None:
        with self.company.handle.writing() as view:
            documents.remove(view, self._ids.pop(name), NOW)

    def scope(self, principal: Principal) -> tuple[PermissionDomain, Snapshot]:
        with self.company.handle.reading() as view:
            snapshot = self.collections.snapshot(self.company.handle, view)
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
