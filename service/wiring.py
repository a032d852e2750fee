"""The one place that picks implementations: settings in, services out."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from admission.away import WithAllowance
from admission.counters import Counters
from admission.fair import Party
from admission.gate import Gate
from admission.local import LocalCounters
from admission.settings import AdmissionSettings
from admission.turns import Desks, FromThread, Turns
from cache.certificate.judge import JUDGE_REVISION
from cache.ladder import Ladder
from cache.policy import CachePolicy
from cache.score import default_score
from cache.stores.local import LocalStore
from cache.stores.port import CacheStore
from generation.placement import PooledRoutes
from generation.prompt import Templates
from indexing.collections.open import OpenCollections
from indexing.embed import Embedder
from indexing.embedding import Embedders
from indexing.engines.registry import Engines
from indexing.gpu import GpuSearch
from indexing.ingest import Pipeline
from indexing.parse.pool import ParsePool
from indexing.parse.settings import ParsingSettings
from retrieval.question import AnswerPath, PathSettings
from retrieval.rerank import EMBEDDING, CrossEncoderReranker, Reranker, RerankSettings, TokenReranker
from service.alerts import Alerts
from service.control import Control, open_control
from service.engines import build_engines
from service.generators import build_routes, reload_routes
from service.isolation import note_tenants
from service.likeness import EmbeddedLikeness
from service.loading import Loading
from service.metrics.signals import Signals
from service.settings import Settings, VerifierSettings
from service.spending import spent_this_month
from service.tariff import open_tariff
from tenancy.errors import Conflict
from tenancy.identity import Principal
from tenancy.keys import MasterKey
from tenancy.tenant import TenantHandle
from tenancy.workers import Lanes, Workers

LOCK_FILE: Final = "server.lock"
COMMAND_S: Final = 10.0
"""Seconds that a command waits for one answer of the cache's server."""


AffordTokens = Callable[[int], Coroutine[Any, Any, None]]
"""Hold what so many tokens of documents cost. Raises `LimitExceeded`."""


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a server, or a command that asks questions, works with."""

    settings: Settings
    control: Control
    workers: Workers
    lanes: Lanes
    loading: Loading
    parsing: ParsePool
    pipeline: Pipeline
    engines: Engines
    path: AnswerPath
    signals: Signals
    alerts: Alerts

    def forget_deleted(self) -> list[str]:
        """Drop from memory what is left of tenants that were deleted beside this process; returns their ids."""
        gone = self.control.tenants.forget_deleted(self.path.collections.tenants | self.path.cache.tenants)
        for tenant_id in gone:
            self.path.collections.close(tenant_id)
            self.path.cache.close(tenant_id)
            self.path.drift.forget(tenant_id)
        return gone

    def in_turn(self, principal: Principal, tenant: TenantHandle, afford: AffordTokens | None = None) -> Pipeline:
        """The pipeline for documents of `principal` that come in beside questions: bulk work, a few chunks at a time.
        `afford` is told of each document's tokens before they are embedded, and may refuse them.

        Within the event loop; the pipeline is for another thread.
        """
        party = Party(principal.tenant_id, principal.user_id, float(tenant.contract.weight), "batch")
        turns = FromThread(asyncio.get_running_loop(), self.path.desks.shared, party)

        def afforded(tokens: int) -> None:
            if afford is not None:
                turns.do(afford(tokens))

        return replace(self.pipeline, turn=turns.turn, afford=afforded)

    async def settle(self, tenant: TenantHandle) -> None:
        """Whoever is told that a change is done finds it so at the tenant's engine as well. Raises `Unavailable`."""
        collections = self.path.collections
        engine = await self.workers.run(collections.behind, tenant)
        if engine is not None:
            await self.lanes.of(engine).run(collections.settle, tenant)

    def reload(self, settings: Settings) -> None:
        """Take the pools of replicas from `settings`, within the server's event loop; all else stays as it was.

        Raises `InvalidInput`, and then nothing has changed.
        """
        if isinstance(self.path.routes, PooledRoutes):
            reload_routes(self.path.routes, settings.generation, EmbeddedLikeness(self.path.embedders.default))
            note_tenants(self.path.routes, self.control.tenants.count()[0])

    async def aclose(self) -> None:
        """Release connections, threads and databases, in the order in which they depend on each other."""
        await self.path.routes.aclose()
        await self.path.admission.counters.aclose()
        self.close()

    def close(self) -> None:
        self.loading.close()
        self.parsing.close()
        self.workers.close()
        self.lanes.close()
        self.engines.close()
        self.path.cache.shutdown()
        self.control.close()


def build(settings: Settings, master: MasterKey | None = None) -> Services:
    """Open the data directory and load the models. Raises the errors of whatever cannot be had, with its remedy."""
    control = open_control(settings, master)
    try:
        return _build(settings, control)
    except BaseException:
        control.close()
        raise


def _build(settings: Settings, control: Control) -> Services:
    engines = build_engines(settings.collections)
    embedders = Embedders(settings.embedding)
    workers = Workers(settings.workers.threads, settings.workers.queue)
    lanes = engine_lanes(settings, workers)
    alerts = Alerts(settings.admission.alerts)
    path = AnswerPath(
        tenants=control.tenants,
        workers=workers,
        lanes=lanes,
        desks=turns_at(settings),
        collections=open_collections(settings, embedders, engines),
        embedders=embedders,
        routes=build_routes(settings.generation, likeness=EmbeddedLikeness(embedders.default)),
        templates=Templates(settings.generation.templates),
        cache=cache_store(settings),
        ladder=ladder(settings.cache.verifier),
        trail=control.trail,
        admission=gate(settings.admission, alerts, control, workers),
        settings=_path_settings(settings),
        tariff=open_tariff(settings.prices),
        reranker=reranker(settings.retrieval.rerank, embedders.default),
        judge=CrossEncoderReranker(settings.retrieval.judge) if settings.retrieval.judge.model else None,
    )
    note_tenants(path.routes, control.tenants.count()[0])
    signals = Signals(settings.signals.window_s, settings.signals.tenants, drift=path.drift)
    control.trail.observer = signals.ended
    loading, parsing = Loading(settings.workers.loading), parsers(settings.parsing)
    pipeline = ingestion(embedders, engines, parsing)
    return Services(settings, control, workers, lanes, loading, parsing, pipeline, engines, path, signals, alerts)


def gate(settings: AdmissionSettings, alerts: Alerts, control: Control, workers: Workers) -> Gate:
    """Where requests are admitted; usage ledgers tell the counters what a month has cost."""
    limits, counters = settings.limits, counters_at(settings)
    made = Gate(
        counters,
        lambda _tenant: limits,
        shared=settings.shared,
        alert=alerts,
        lease_s=settings.lease_s,
        queue=settings.queue,
        spent=lambda scopes: workers.run(spent_this_month, control, scopes),
    )
    if isinstance(counters, WithAllowance):
        counters.tell = made.tell
        counters.store.emptied = made.begin_again
    return made


def counters_at(settings: AdmissionSettings, *, patient: bool = False) -> Counters:
    """Of this process, or at a server that several share; commands are `patient`.

    Raises `InvalidInput` for settings of a server that cannot be used.
    """
    if settings.store == "memory":
        return LocalCounters()
    # Opened nothing yet: a server that is away keeps nobody from starting.
    from admission.redis_link import Link  # isort: skip  says what to install
    from admission.redis import RedisCounters

    redis = msgspec.structs.replace(settings.redis, timeout_s=COMMAND_S) if patient else settings.redis
    return WithAllowance(RedisCounters(Link(redis)))


def turns_at(settings: Settings) -> Desks:
    """Turns at the threads that embed and search. Two threads stay for the short calls of all other requests.

    They share the machine's processors, so that beside questions one piece of bulk work runs there at a time.
    """
    workers = settings.workers
    return Desks(
        Turns(max(1, workers.threads - 2), workers.queue, batch=1),
        {name: Turns(engine.concurrency, workers.queue) for name, engine in settings.collections.engines.items()},
    )


def engine_lanes(settings: Settings, workers: Workers) -> Lanes:
    """As many threads for each engine as it may have calls: one that hangs takes none of the others'."""
    queue = settings.workers.queue
    return Lanes(
        workers,
        {
            name: Workers(engine.concurrency, queue, name, patience_s=engine.timeout_s)
            for name, engine in settings.collections.engines.items()
        },
    )


def open_collections(settings: Settings, embedders: Embedders, engines: Engines) -> OpenCollections:
    return OpenCollections(
        lambda view: embedders.of(view).fingerprint,
        settings.collections.budget,
        engines,
        wait_s=settings.collections.wait_s,
        # The other half of the threads ends what was begun, and so makes room.
        waiters=settings.workers.threads // 2,
        gpu=GpuSearch.start(settings.collections.gpu_budget) if settings.collections.gpu_budget else None,
    )


def reranker(settings: RerankSettings, embedder: Embedder) -> Reranker | None:
    """What reads passages again, where the settings name it. Raises `InvalidInput`, `Unavailable`."""
    if settings.model == EMBEDDING:
        return TokenReranker(embedder, settings)
    return CrossEncoderReranker(settings) if settings.model else None


def parsers(settings: ParsingSettings) -> ParsePool:
    """The processes that parse files; `ParsePool.close` ends them."""
    return ParsePool(settings.workers, settings.limits, settings.memory_bytes)


def ingestion(embedders: Embedders, engines: Engines, parsing: ParsePool) -> Pipeline:
    """How documents come in: each tenant's with the model of its collection, a first collection as agreed with it."""
    return Pipeline(
        embedders.default,
        engine_of=engines.agreed,
        embedder_of=embedders.of,
        parse=parsing.parse,
        parse_all=parsing.parse_all,
        max_bytes=parsing.limits.max_bytes,
    )


def cache_policy(settings: Settings) -> CachePolicy:
    cache = settings.cache
    return CachePolicy(
        time_to_live=cache.ttl_s,
        max_staleness=cache.max_staleness_s,
        max_entries=cache.entries,
        max_bytes=cache.quota,
        records=cache.records,
        templates=cache.templates,
    )


def cache_store(settings: Settings, *, patient: bool = False) -> CacheStore:
    """The store of remembered answers, also for commands, which are `patient`: nobody waits for them but who gave them.

    Raises `InvalidInput` for settings of a server that cannot be used.
    """
    cache, policy = settings.cache, cache_policy(settings)
    if cache.store == "local":
        return LocalStore(policy)
    # Opened nothing yet: a server that is away keeps nobody from starting.
    from cache.stores.redis_link import Link  # isort: skip  says what to install
    from cache.stores.redis import RedisStore

    redis = msgspec.structs.replace(cache.redis, timeout_s=COMMAND_S) if patient else cache.redis
    return RedisStore(Link(redis), policy)


def ladder(settings: VerifierSettings) -> Ladder:
    """What decides about semantic hits. A verifier that is named and cannot be used is an error, never left out."""
    if not settings.path:
        return Ladder(score=default_score(), judge=JUDGE_REVISION)
    from cache.verifier.pair import PairVerifier

    verifier = PairVerifier(Path(settings.path).expanduser(), timeout_s=settings.timeout_s)
    return Ladder(score=default_score(), verifier=verifier, judge=JUDGE_REVISION)


class ServerLock:
    """Held by the one server of a data directory, released by the kernel however the process ends."""

    def __init__(self, data_dir: Path) -> None:
        """Raises `Conflict` where another server holds it."""
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(data_dir / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Conflict(
                "another server runs on this data directory",
                item=str(data_dir),
                remedy="stop it, or give this one its own data_dir; all other commands work beside a server",
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)


def _path_settings(settings: Settings) -> PathSettings:
    return PathSettings(
        top_k=settings.retrieval.top_k,
        mode=settings.retrieval.mode,
        threshold=settings.retrieval.threshold,
        context_tokens=settings.retrieval.context_tokens,
        max_tokens=settings.generation.max_tokens,
        deadline_s=settings.generation.deadline_s,
        kv_sharing=settings.generation.kv_sharing,
        mixing=settings.generation.mixing,
        hidden=settings.generation.hidden,
        cache_enabled=settings.cache.enabled,
        roots=settings.admission.roots,
    )
