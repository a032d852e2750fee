"""The steps of `retrieval.answer` that meet the cache: look up, serve what is found, offer what was made."""

from __future__ import annotations

from dataclasses import replace

from audit.record import Policy, Resource
from cache.lookup import Asked, Candidate, Hit, Miss
from cache.store import Stored
from retrieval import paying, shadow, steps
from retrieval.context import Context
from retrieval.outgoing import shown_citations
from retrieval.question import Answer
from retrieval.recheck import require_adapter
from retrieval.remembered import (
    cited_in,
    hit_detail,
    hit_use,
    look_again,
    look_up_exact,
    look_up_semantic,
    made_by,
    miss_use,
    remember,
    replayed,
)
from retrieval.search import Passages


async def exact_hit(asking: steps.Asking) -> tuple[Asked, Hit | Miss]:
    with asking.hop("cache"):
        return await asking.in_time(
            look_up_exact, asking.path, asking.embedder, asking.principal, asking.tenant, asking.plan
        )


async def semantic_hit(asking: steps.Asking, asked: Asked, vector: steps.AskedVector, before: Miss) -> Hit | Miss:
    """`before` is the exact miss: where an entry was refused there, that is what the record says first."""
    with asking.hop("cache"):
        found = await asking.in_time(
            look_up_semantic, asking.path, vector.embedder, asking.principal, asking.tenant, asked, vector.vector
        )
    if isinstance(found, Miss):
        if before.candidates and found.would is None:
            found = replace(found, reason=before.reason, candidates=(*before.candidates, *found.candidates))
        asking.trail.note(cache=miss_use(found, asked))
    return found


async def replay(asking: steps.Asking, asked: Asked, hit: Hit | Miss) -> Answer | Miss:
    """Serve a stored answer: on record first, checked again after that, and free of generation.

    One that changed meanwhile is a miss, and the question goes on; the record says that it did not leave.
    """
    if isinstance(hit, Miss):
        return hit
    asking.trail.note(
        policy=Policy(
            domain=asked.namespace.domain,
            acl_epoch=hit.entry.acl_epoch,
            corpus_epoch=hit.entry.corpus_epoch,
            isolation=asking.tenant.contract.tier,
            template=asking.plan.template.revision,
        ),
        cache=hit_use(hit, asked, asking.principal),
        detail=hit_detail(hit, asked, asking.tenant),
        resources=[
            Resource(document=citation.document, version=citation.version, chunk=citation.chunk, stage="replayed")
            for citation in cited_in(hit)
        ],
    )
    seq = await asking.trail.intent()
    with asking.hop("cache") as use:
        reason = await asking.path.workers.run(look_again, asking.path, asking.principal, asked, hit)
        await require_adapter(asking)
        if reason is None:
            identity, (model, made) = asking.plan.route.identity, made_by(hit)
            use.by(model, identity.revision, identity.adapter)
            use.saved(*made)
    if reason is not None:
        asking.trail.withdraw(reason.name.lower())
        steps.note_question(asking.trail, asking.question)
        steps.note_plan(asking.trail, asking.plan, asking.path.settings.revision)
        missed = Miss(reason, (Candidate(hit.entry.id, hit.similarity, reason),))
        asking.trail.note(cache=miss_use(missed, asked))
        return missed
    served = _through_rails(asking, replayed(hit, asking.plan, seq, asking.question.request_id))
    await paying.settle(asking, served)
    asking.trail.course.first()
    await shadow.count_hit(asking, asked, hit)
    return served


def _through_rails(asking: steps.Asking, served: Answer) -> Answer:
    """What may leave of a stored answer, by the rails of this moment. Raises `Withheld` and `RailFailed`."""
    rails = asking.plan.rails
    text = rails.check_whole(served.text, cited=bool(served.citations))
    shown = replace(served, text=text, citations=shown_citations(rails, served.citations))
    verdicts = {"rail_mask_output": "pass" if shown == served else "masked"} if rails.terms.mask_output else {}
    if rails.topics:
        verdicts["rail_answer"] = "pass"
    if rails.terms.require_citation:
        verdicts["rail_citation"] = "pass"
    asking.trail.note(detail=verdicts)
    return shown


async def store(
    asking: steps.Asking, asked: Asked, finished: Answer, found: Passages, context: Context, vector: steps.AskedVector
) -> bool:
    """Offer the answer to the cache; False where it was not kept, as after a change of either model on the way."""
    path, embedder = asking.path, vector.embedder
    if embedder is not asking.embedder or finished.model != asking.plan.route.identity.model:
        return False
    dependencies = {(source.passage.document_id, source.passage.version) for source in context.sources}
    within = embedder.question_length(asked.question) <= embedder.fingerprint.window
    outcome = await path.workers.run(
        remember,
        path,
        asking.principal,
        asking.tenant,
        asked,
        finished,
        dependencies=tuple(sorted(dependencies)),
        epochs=found.domain.epochs,
        vector=vector.vector if within else None,
    )
    return isinstance(outcome, Stored)
