"""From a question to its passages: embedded, searched, and read again by a reranking model where there is one."""

from __future__ import annotations

from dataclasses import replace

from audit.record import Policy, Resource
from indexing.embed import Embedder
from retrieval.passage import Passage
from retrieval.rerank import Reranker, best_apart
from retrieval.search import ATTEMPTS, ModelMoved, Passages, open_scope, search
from retrieval.steps import AskedVector, Asking
from tenancy.pauses import reached


async def embed(asking: Asking) -> AskedVector:
    return await _embed(asking, asking.embedder)


async def passages(
    asking: Asking, vector: AskedVector, top_k: int, *, visible_only: bool = False
) -> tuple[Passages, AskedVector]:
    """The best `top_k` readable passages, on record as retrieved, and the vector that found them.

    Where the tenant moved to another embedding model meanwhile, the question is embedded with that one.
    """
    path = asking.path
    for _ in range(ATTEMPTS - 1):
        try:
            return await _passages(asking, vector, top_k, visible_only), vector
        except ModelMoved:
            vector = await _embed(asking, await path.workers.run(_model_now, asking))
    return await _passages(asking, vector, top_k, visible_only), vector


def _model_now(asking: Asking) -> Embedder:
    with asking.tenant.reading() as view:
        return asking.path.embedders.of(view)


async def _passages(asking: Asking, vector: AskedVector, top_k: int, visible_only: bool) -> Passages:
    path, plan, embedder = asking.path, asking.plan, vector.embedder
    wide = top_k if plan.reranker is None else max(top_k, plan.reranker.depth)

    def found() -> Passages:
        reached("scope")
        scope = open_scope(asking.principal, asking.tenant, path.collections)
        return search(
            asking.tenant,
            asking.principal,
            scope,
            plan.query,
            vector.vector,
            wide,
            plan.search_mode,
            model=embedder.fingerprint,
            covers=embedder.covers(plan.query),
            where=plan.where,
            boosts=plan.boosts,
            copies_last=True,
            visible_only=visible_only,
        )

    with asking.hop("retrieve") as use:
        use.by(asking.engine)
        # Which engine serves may have changed since: then that one's tenants lend a thread, this once.
        async with asking.lease.in_time(), path.turn(asking.principal, asking.tenant, asking.engine):
            result = await path.lanes.of(asking.engine).run(found)
    if plan.reranker is not None:
        result = replace(result, items=await _reranked(asking, plan.reranker, result, top_k))
    domain = result.domain
    asking.trail.note(
        policy=Policy(
            domain=domain.fingerprint,
            acl_epoch=domain.epochs.acl,
            corpus_epoch=domain.epochs.corpus,
            isolation=asking.tenant.contract.tier,
            template=plan.template.revision,
        ),
        resources=[
            Resource(document=item.document, version=item.version, chunk=item.chunk, stage="retrieved")
            for item in result.items
        ],
        withheld=result.withheld,
    )
    return result


async def _reranked(asking: Asking, reranker: Reranker, found: Passages, top_k: int) -> tuple[Passage, ...]:
    return best_apart(found.items, await asking.read_again(reranker, found.items), top_k, reranker.share)


async def _embed(asking: Asking, embedder: Embedder) -> AskedVector:
    with asking.hop("embed") as use:
        use.by(embedder.fingerprint.name, embedder.fingerprint.revision)
        async with asking.lease.in_time(), asking.path.turn(asking.principal, asking.tenant):
            vector = await asking.path.workers.run(embedder.encode_query, asking.plan.query)
        use.used(embedder.token_count(asking.plan.query))
    return AskedVector(embedder, vector)
