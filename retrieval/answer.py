"""The path of a question, top to bottom. Start reading here.

    credential -> principal (the edge) -> trail -> tenant -> lease -> blocked topics -> domain
        -> cache, exact -> vector -> cache, semantic -> passages -> context -> generator -> citations
        -> checked again -> compared, if drawn -> added to the day's sums -> cache, store
        -> settled and audited as the blocks are left

All branching is here; the steps (`retrieval.finding`, `retrieval.steps`, `retrieval.cached`) do not call each other.
No byte of an answer leaves before its intent is durable, and none of a stored one before it was checked again after
that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from dataclasses import replace

from cache.flight import Role as Flight
from cache.flight import Turn
from cache.lookup import Mode, Reach
from retrieval import cached, drift, finding, paying, shadow, steps
from retrieval.outgoing import verdicts_on_record
from retrieval.question import Answer, AnswerEvent, AnswerPath, Delta, Done, Question, Retrieved
from tenancy.identity import Principal, Role

__all__ = ["AnswerPath", "Question", "answer", "retrieve"]


async def answer(path: AnswerPath, principal: Principal, question: Question) -> AsyncGenerator[AnswerEvent, None]:
    """Answer `question` with what `principal` may read: any number of `Delta`, then one `Done`.

    Close it (`contextlib.aclosing`) to give up early; the trail then records `aborted`. Raises the errors of its
    steps: `Forbidden`, `LimitExceeded`, `NotFound`, `AuditUnavailable`, `Unavailable`, and `Revoked` where access to
    a source ended meanwhile, also between two deltas.
    """
    async with (
        path.trail.open(principal, action="answer", request_id=question.request_id, root=question.root) as trail,
        verdicts_on_record(trail),
    ):
        steps.note_question(trail, question)
        principal.require(Role.READER)
        opened = await steps.opened(path, principal, question)
        tenant, plan = opened.tenant, opened.plan
        steps.note_plan(trail, plan, path.settings.revision)
        steps.require_feature(tenant, question)
        meter = steps.priced(path, tenant, trail)
        async with paying.admitted(path, principal, opened, question, trail, meter) as lease:
            asking = steps.Asking(
                path, principal, tenant, opened.embedder, opened.engine, plan, question, trail, lease, meter
            )
            await steps.refuse_blocked_question(asking)
            asked, found = await cached.exact_hit(asking)
            served = await cached.replay(asking, asked, found)
            if isinstance(served, Answer):
                yield Delta(served.text)
                yield Done(served)
                return
            shares = plan.cache_mode is Mode.DEFAULT and asked.reach is not Reach.NONE
            flight = path.flights.turn(tenant, asked, lease.left_s) if shares else nullcontext(Turn(Flight.ALONE))
            async with flight as turn:
                if turn.role is Flight.FOLLOWER:
                    asked, found = await cached.exact_hit(asking)
                    served = await cached.replay(asking, asked, found)
                    if isinstance(served, Answer):
                        yield Delta(served.text)
                        yield Done(served)
                        return
                vector = await finding.embed(asking)
                found = await cached.semantic_hit(asking, asked, vector, served)
                served = await cached.replay(asking, asked, found)
                if isinstance(served, Answer):
                    yield Delta(served.text)
                    yield Done(served)
                    return
                async with shadow.Comparison(asking, asked, served) as comparison:
                    passages, vector = await finding.passages(
                        asking, vector, plan.breadth, visible_only=plan.hidden == "leave_out"
                    )
                    gathered = await steps.sources_of(asking, passages, vector.embedder)
                    draft = await steps.begin(asking, served, gathered)
                    finished = draft
                    if gathered.evidence.sufficient and gathered.context.sources:
                        async with aclosing(steps.generate(asking, passages, gathered, draft)) as events:
                            async for event in events:
                                if isinstance(event, Done):
                                    finished = event.answer
                                else:
                                    yield event
                    await comparison.compare(finished)
                noted = drift.noted(vector, passages, gathered, finished)
                await drift.note(path, tenant, question.feature, noted)
                stored = await cached.store(asking, asked, finished, passages, gathered.context, vector)
                if stored:
                    turn.stored()
            await paying.settle(asking, finished)
            if finished.finish == "abstain":
                yield Delta(finished.text)
            yield Done(replace(finished, cache=replace(finished.cache, stored=stored)))


async def retrieve(path: AnswerPath, principal: Principal, question: Question) -> Retrieved:
    """The passages for `question` that `principal` may read. Raises as `answer` does."""
    async with path.trail.open(
        principal, action="retrieve", request_id=question.request_id, root=question.root
    ) as trail:
        steps.note_question(trail, question)
        principal.require(Role.READER)
        opened = await steps.opened(path, principal, question)
        tenant, plan = opened.tenant, opened.plan
        steps.note_plan(trail, plan, path.settings.revision)
        meter = steps.priced(path, tenant, trail)
        async with paying.admitted(path, principal, opened, question, trail, meter, generates=False) as lease:
            asking = steps.Asking(
                path, principal, tenant, opened.embedder, opened.engine, plan, question, trail, lease, meter
            )
            passages, vector = await finding.passages(asking, await finding.embed(asking), plan.top_k)
            seq = await trail.intent()
            await lease.settle(vector.embedder.token_count(plan.query), 0, meter.microunits)
            return Retrieved(asking.plan.query, passages.items, seq, question.request_id)
