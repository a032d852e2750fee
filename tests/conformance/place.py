"""A deployment of one column with two tenants, and a plain evaluation of what each person may find in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select

from indexing.catalogue import Collection, all_collections, serving
from indexing.engine import Engine
from indexing.filters import Filter
from indexing.remote.comparison import Comparison, compare
from retrieval.search import Passages, open_scope, search
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.identity import Authenticator, Principal
from tenancy.schema import acl, chunks, documents, vectors
from tests.conformance.columns import ENGINE, Column
from tests.conformance.watched import Watched
from tests.support.people import Company
from tests.support.shelf import Shelf

EAST = [1.0, 0.0, 0.0, 0.0]


class Place:
    """`shelf` holds acme's documents, `neighbour` globex's; both are at the same engine."""

    def __init__(self, column: Column, folder: Path) -> None:
        self.column = column
        self.folder = folder
        self.tenants = column.tenants(folder)
        authenticator = Authenticator(self.tenants)
        self.acme = Company(self.tenants, authenticator, "acme")
        self.globex = Company(self.tenants, authenticator, "globex")
        self.engines: Mapping[str, Watched] = {}
        self.connect()
        self.ana = self.acme.principal("ana")
        self.bo = self.acme.principal("bo")

    def connect(self) -> None:
        """Open the engine and the collections anew, as another process would find them."""
        self.disconnect()
        self.engines = {name: Watched(engine) for name, engine in self.column.open(self.folder).items()}
        self.shelf = self.shelf_of(self.acme)
        self.neighbour = self.shelf_of(self.globex)

    def disconnect(self) -> None:
        for engine in self.engines.values():
            engine.close()
        self.engines = {}

    def domain_of(self, principal: Principal) -> PermissionDomain:
        return self.acme.domain(principal)

    def shelf_of(self, company: Company) -> Shelf:
        engines: Mapping[str, Engine] = self.engines
        return Shelf(company, engine=self.column.engine, engines=engines)

    @property
    def engine(self) -> Watched:
        """The server engine; only in the columns that have one."""
        return self.engines[ENGINE]

    def collection(self, company: Company | None = None) -> Collection:
        with (company or self.acme).handle.reading() as view:
            found = serving(view)
        assert found is not None
        return found

    def settle(self) -> None:
        self.shelf.collections.settle(self.acme.handle)

    def search(
        self,
        principal: Principal,
        vector: Sequence[float] = EAST,
        k: int = 10,
        shelf: Shelf | None = None,
        where: Filter | None = None,
    ) -> Passages:
        """The product's own search, dense alone: what a question gets."""
        shelf = shelf or self.shelf
        tenant = shelf.company.handle
        scope = open_scope(principal, tenant, shelf.collections)
        question = np.array(vector, dtype=np.float32)
        return search(
            tenant, principal, scope, "", question, k, "dense", model=shelf.fingerprint, covers=1.0, where=where
        )

    def found(self, principal: Principal, vector: Sequence[float] = EAST, k: int = 10) -> list[int]:
        """The chunk ids of `search`, best first."""
        return [passage.chunk_id for passage in self.search(principal, vector, k).items]

    def expected(self, principal: Principal, vector: Sequence[float] = EAST, k: int = 10) -> list[int]:
        """The same by a loop over the rows of the database: allowed by some label, denied by none, best first."""
        with self.acme.handle.reading() as view:
            labels = permission_domain(principal, view).labels
            rows = view.execute(
                select(chunks.c.id, chunks.c.document_id, vectors.c.vector)
                .join(vectors, vectors.c.chunk_id == chunks.c.id)
                .join(documents, documents.c.id == chunks.c.document_id)
            ).all()
            lists = view.execute(select(acl)).all()
        sides: dict[tuple[int, str], set[int]] = {}
        for entry in lists:
            sides.setdefault((entry.document_id, entry.effect), set()).add(entry.label_id)
        scored = []
        for row in rows:
            allowed = sides.get((row.document_id, "allow"), set()) & labels
            denied = sides.get((row.document_id, "deny"), set()) & labels
            if allowed and not denied:
                stored = np.frombuffer(row.vector, dtype="<f4").astype(np.float64)
                scored.append((-float(stored @ np.array(vector)), row.id))
        return [chunk_id for _, chunk_id in sorted(scored)][:k]

    def compared(self) -> Comparison:
        return compare(self.acme.handle, self.engine, self.collection())

    def held(self) -> list[int]:
        """The chunk ids that the engine holds for acme, ascending."""
        return sorted(number for piece in self.engine.chunk_ids(self.collection().physical) for number in piece)

    def stored(self) -> list[int]:
        """The chunk ids in acme's database, ascending."""
        with self.acme.handle.reading() as view:
            return list(view.execute(select(chunks.c.id).order_by(chunks.c.id)).scalars())

    def close(self) -> None:
        for engine in self.engines.values():
            engine.back()
            # A server that several tests share keeps nothing of them.
            for company in (self.acme, self.globex):
                with company.handle.reading() as view:
                    found = all_collections(view)
                for collection in found:
                    engine.drop(collection.physical)
        self.disconnect()
        self.tenants.close()

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
