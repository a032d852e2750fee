"""The whole path of a question over real stores, with the deterministic embedder and the extractive generator."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from admission.gate import Gate
from admission.local import LocalCounters
from audit.logs import AuditLogs
from audit.trail import AuditTrail
from cache.ladder import Ladder
from cache.policy import CachePolicy
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from generation.extractive import ExtractiveGenerator
from generation.generator import Generator
from generation.prompt import Templates
from generation.routing import OneRoute
from indexing.collections.open import OpenCollections
from indexing.embed import EmbeddingSettings
from indexing.embedding import Embedders
from indexing.engine import Engine
from indexing.ingest import Pipeline, Source, ingest
from retrieval.answer import answer, retrieve
from retrieval.question import Answer, AnswerPath, Delta, Done, PathSettings, Question, Retrieved
from tenancy.acl import AccessList
from tenancy.control import Tenants
from tenancy.identity import Principal
from tenancy.limits import TenantLimits
from tenancy.tenant import TenantHandle
from tenancy.workers import Lanes, Workers


class Path:
    """`AnswerPath` and short ways to use it from a synchronous test."""

    def __init__(
        self,
        tenants: Tenants,
        *,
        generator: Generator | None = None,
        limits: TenantLimits | None = None,
        settings: PathSettings | None = None,
        engines: Mapping[str, Engine] | None = None,
        also: tuple[str, ...] = (),
        cache: CacheStore | None = None,
        ladder: Ladder | None = None,
    ) -> None:
        self.embedders = Embedders(EmbeddingSettings(model="hashing:256", also=also))
        self.embedder = self.embedders.default
        self.logs = AuditLogs(tenants)
        workers = Workers(4, 64)
        self.path = AnswerPath(
            tenants=tenants,
            workers=workers,
            lanes=Lanes(workers),
            collections=OpenCollections(lambda view: self.embedders.of(view).fingerprint, 1 << 28, engines),
            embedders=self.embedders,
            routes=OneRoute(generator or ExtractiveGenerator()),
            templates=Templates(),
            cache=cache or LocalStore(CachePolicy()),
            trail=AuditTrail(self.logs),
            admission=Gate(LocalCounters(), lambda _tenant: limits or TenantLimits()),
            settings=settings or PathSettings(),
            ladder=ladder or Ladder(),
        )

    def close(self) -> None:
        self.path.workers.close()
        self.logs.close()

    def put(self, tenant: TenantHandle, name: str, text: str, *allow: str, deny: tuple[str, ...] = ()) -> None:
        source = Source(name, text.encode(), AccessList.of(allow, deny), media_type="text/plain")
        (outcome,) = ingest(tenant, Pipeline(self.embedder), source)
        assert outcome.error is None, outcome

    def ask(self, principal: Principal, query: str, **options: Any) -> Answer:
        return asyncio.run(self.ask_async(principal, query, **options))

    async def ask_async(self, principal: Principal, query: str, **options: Any) -> Answer:
        """The finished answer; its deltas must add up to its text."""
        question = Question(query, secrets.token_hex(16), **options)
        text, finished = "", None
        async with aclosing(answer(self.path, principal, question)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    text += event.text
                else:
                    assert isinstance(event, Done)
                    finished = event.answer
        assert finished is not None
        assert text in ("", finished.text)
        return finished

    def retrieve(self, principal: Principal, query: str, **options: Any) -> Retrieved:
        return asyncio.run(retrieve(self.path, principal, Question(query, secrets.token_hex(16), **options)))


@contextmanager
def open_path(tenants: Tenants, **options: Any) -> Iterator[Path]:
    path = Path(tenants, **options)
    try:
        yield path
    finally:
        path.close()
