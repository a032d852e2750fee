"""The steps of `retrieval.answer`, each a small function over what the steps before it gave."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from admission.lease import Lease
from audit.record import GenerationUse, Policy, Resource
from audit.trail import Trail
from cache.lookup import Miss
from generation.declined import Declined
from generation.extractive import ExtractiveGenerator
from generation.generator import Delta as Piece
from generation.generator import Finish, Generator, ModelIdentity, Usage, prompt_tokens
from generation.generator import Piece as Generated
from generation.guardrails.rails import Leaving
from generation.injection import REVISION as INSTRUCTION_RULES
from generation.prompt import Prompt
from generation.quarantine import Quarantined
from generation.routing import Placed
from generation.salt import kv_salt, narrower
from indexing.embed import Embedder
from indexing.filters import canonical
from metering.meter import HopUse, Meter
from retrieval.abstain import judged
from retrieval.concluding import conclude, ended
from retrieval.masking import Masking, masked_prompt
from retrieval.outgoing import outgoing, passed, said_not_found, shown_evidence
from retrieval.passage import Passage
from retrieval.plan import Opened, Plan, open_plan
from retrieval.question import Answer, AnswerPath, CacheReport, Delta, Done, Question
from retrieval.recheck import require_readable
from retrieval.remembered import miss_status
from retrieval.rerank import Reranker, texts_of
from retrieval.search import Passages
from retrieval.sources import Gathered, gather
from tenancy.errors import InvalidInput, Unavailable
from tenancy.identity import Principal
from tenancy.keys import keyed_hash
from tenancy.tenant import TenantHandle

Vector = npt.NDArray[np.float32]
P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class AskedVector:
    """A question as a vector (dim,), with the model that made it."""

    embedder: Embedder
    vector: Vector


@dataclass(frozen=True, slots=True)
class Asking:
    """One admitted question on its way."""

    path: AnswerPath
    principal: Principal
    tenant: TenantHandle
    embedder: Embedder
    engine: str
    plan: Plan
    question: Question
    trail: Trail
    lease: Lease
    meter: Meter

    @contextmanager
    def hop(self, name: str) -> Iterator[HopUse]:
        """Time and price one step, on record also where it fails."""
        try:
            with self.meter.hop(name) as use:
                yield use
        finally:
            hop = self.meter.hops[-1]
            self.trail.hop(name, hop.milliseconds, hop.metered)
            self.trail.note(microunits=self.meter.microunits)

    async def read_again(self, reader: Reranker, passages: Sequence[Passage]) -> npt.NDArray[np.float32]:
        """How well each passage answers the question, in [0, 1]: (n,); in the asker's turn, metered."""
        texts = texts_of(passages)
        with self.hop("rerank") as use:
            use.by(reader.name, reader.revision)
            async with self.lease.in_time(), self.path.turn(self.principal, self.tenant):
                scores = await self.path.workers.run(reader.scores, self.plan.query, texts)
                use.used(await self.path.workers.run(reader.token_count, self.plan.query, texts))
        return scores

    async def in_time(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of `function` in a worker's thread. Raises `Unavailable` at the request's deadline."""
        async with self.lease.in_time():
            return await self.path.workers.run(function, *args, **kwargs)


def note_question(trail: Trail, question: Question) -> None:
    trail.note(question=question.query, detail={} if question.feature is None else {"feature": question.feature})


def note_plan(trail: Trail, plan: Plan, config: str) -> None:
    """`config` is the revision of the path's settings."""
    if plan.where is not None:
        trail.note(filter=canonical(plan.where))
    if plan.route.adapter is not None:
        trail.note(detail={"adapter": plan.route.adapter})
    trail.note(policy=Policy(rails=plan.rails.revision, config=config))


async def opened(path: AnswerPath, principal: Principal, question: Question) -> Opened:
    """Refuses a suspended tenant, and what this deployment does not have, before anything is spent."""
    return await path.workers.run(open_plan, path, principal, question)


def require_feature(tenant: TenantHandle, question: Question) -> None:
    """Raises `InvalidInput` where the tenant's contract wants to know what each question is asked for."""
    if question.feature is None and tenant.contract.usage.feature == "required":
        raise InvalidInput(
            "the tenant's contract requires that a question names its feature",
            item="feature",
            remedy="send `feature`, your own name of what asks; the chat route takes it in `metadata`",
        )


def priced(path: AnswerPath, tenant: TenantHandle, trail: Trail) -> Meter:
    """A meter by what was agreed with the tenant, on record. Raises `Unavailable` where its price list is missing."""
    meter = path.tariff.meter(tenant.contract.usage)
    trail.priced(meter.prices.id, meter.basis)
    return meter


async def refuse_blocked_question(asking: Asking) -> None:
    """Raises `BlockedTopic` for a question, as typed or as understood, or a turn that holds a blocked phrase."""
    rails, question = asking.plan.rails, asking.question
    if not rails.topics:
        return
    texts = (question.query, asking.plan.query, *(turn.text for turn in question.history))
    await asking.path.workers.run(rails.refuse_question, texts)
    asking.trail.note(detail={"rail_question": "pass"})


async def sources_of(asking: Asking, found: Passages, embedder: Embedder) -> Gathered:
    """The sources of the prompt, and whether they can answer; what enters the prompt is on record as such."""
    gathered = await _judged(asking, await asking.in_time(gather, asking.tenant, asking.plan, found, embedder))
    context, cut = gathered.context, asking.plan.room.cut
    # Counts and ids, no text: what was left out of the prompt, and which documents speak to the model.
    hidden = sum(source.passage.hidden for source in context.sources)
    detail: dict[str, int | str] = {"left_out": gathered.left_out, "history_cut": cut, "hidden_sources": hidden}
    if gathered.instructed:
        detail |= {
            "instructions": len(gathered.instructed),
            "instructing_documents": " ".join(map(str, gathered.instructed)),
            "instruction_rules": INSTRUCTION_RULES,
        }
    asking.trail.note(detail={name: value for name, value in detail.items() if value})
    if gathered.evidence.sufficient:
        asking.trail.note(
            resources=[
                Resource(
                    document=source.passage.document,
                    version=source.passage.version,
                    chunk=source.passage.chunk,
                    stage="in_prompt",
                )
                for source in context.sources
            ]
        )
    return gathered


async def _judged(asking: Asking, gathered: Gathered) -> Gathered:
    """`gathered` with the evidence that a model finds which reads the best sources, where there is one."""
    judge = asking.plan.judge
    if judge is None or not gathered.context.sources:
        return gathered
    read = [source.passage for source in gathered.context.sources[: judge.depth]]
    scores = await asking.read_again(judge, read)
    return replace(gathered, evidence=judged(gathered.evidence, scores.tolist(), asking.plan.threshold))


async def begin(asking: Asking, miss: Miss, gathered: Gathered) -> Answer:
    """Make the intent durable; from here on bytes may leave. Returns the answer that stands if none is generated."""
    evidence = shown_evidence(asking.plan.rails, gathered.evidence)
    seq = await asking.trail.intent()
    if not evidence.sufficient:
        # It names titles, and whoever judged the sources may have taken long.
        await require_readable(asking, gathered.context)
    return Answer(
        text=said_not_found(asking.plan.query, evidence),
        citations=(),
        finish="abstain",
        model=asking.plan.route.identity.model,
        rewritten=asking.plan.rewritten,
        nearest_titles=evidence.nearest,
        cache=CacheReport(status=miss_status(miss)),
        usage=Usage(),
        audit_seq=seq,
        request_id=asking.question.request_id,
    )


async def generate(
    asking: Asking, found: Passages, gathered: Gathered, draft: Answer
) -> AsyncGenerator[Delta | Done, None]:
    """Stream the answer of the route's first place; a later one takes over where nothing came from those before."""
    places = asking.plan.route.places
    passed_over: list[str] = []
    for number, placed in enumerate(places):
        begun = False
        if placed.waived:
            asking.trail.note(detail={"kv_isolation": "waived"})
        try:
            async with aclosing(_generate_at(asking, found, gathered, draft, placed)) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except (Unavailable, Quarantined) as failure:
            if begun or number == len(places) - 1 or isinstance(failure, Quarantined):
                asking.trail.note(detail={"failed_at": placed.pool})
                raise
            _log.warning("a generator was passed over (%s)", type(failure).__name__)
            passed_over.append(placed.pool)
            asking.trail.note(detail={"fallback_from": ", ".join(passed_over)})


def _pieces(
    asking: Asking, generator: Generator, prompt: Prompt, salt: str, limit: int, deadline: float
) -> AsyncGenerator[Generated, None]:
    request_id = asking.question.request_id
    pieces = generator.generate(prompt, salt=salt, request_id=request_id, max_tokens=limit, deadline=deadline)
    return _begun_in_turn(asking, pieces) if isinstance(generator, ExtractiveGenerator) else pieces


async def _begun_in_turn(asking: Asking, pieces: AsyncGenerator[Generated, None]) -> AsyncGenerator[Generated, None]:
    """`pieces` of a generator that reads with the embedding model, on its processors, before the first of them."""
    async with aclosing(pieces):
        async with asking.lease.in_time(), asking.path.turn(asking.principal, asking.tenant):
            first = await anext(pieces, None)
        if first is not None:
            yield first
        async for piece in pieces:
            yield piece


async def _generate_at(
    asking: Asking, found: Passages, gathered: Gathered, draft: Answer, placed: Placed
) -> AsyncGenerator[Delta | Done, None]:
    """Stream one generator's text through the checks of `outgoing`; access is checked before the first byte, every few
    seconds and at the end.
    """
    path, plan, lease, generator = asking.path, asking.plan, asking.lease, placed.generator
    context, declined = gathered.context, Declined(heeded=not isinstance(generator, ExtractiveGenerator))

    def prepared() -> tuple[Masking, int, Leaving]:
        made = masked_prompt(plan, context, mark=plan.mark)
        return made, prompt_tokens(made.prompt, generator.count), outgoing(plan, gathered, made.masks, declined)

    made, estimated, checks = await asking.in_time(prepared)
    await lease.expect(estimated)
    if made.masks.kinds:
        count = made.masks.count
        asking.trail.note(detail={"rail_mask_input": "masked" if count else "pass", "masked_input": count})
    salt = _salt(asking, found, generator.identity)
    limit = plan.max_tokens if lease.max_output_tokens is None else min(plan.max_tokens, lease.max_output_tokens)
    deadline = lease.until(path.settings.deadline_s)
    text, checked, so_far = "", 0.0, Usage(input=estimated)
    finish: Finish | None = None
    with asking.hop("generate") as use:
        use.by(generator.identity.model, generator.identity.revision, generator.identity.adapter)
        pieces = _pieces(asking, generator, made.prompt, salt, limit, deadline)
        async with aclosing(pieces):
            async for piece in pieces:
                if not isinstance(piece, Piece):
                    finish = piece
                    continue
                if time.monotonic() - checked > path.settings.recheck_s:
                    await require_readable(asking, context)
                    checked = time.monotonic()
                so_far = _further(so_far, piece, generator.count)
                use.used(so_far.input, so_far.output, cached_input=so_far.cached_input, estimated=True)
                within = await lease.produced(so_far.input, so_far.output)
                if leaving := passed(asking.trail, checks, piece.text):
                    text += leaving
                    asking.trail.course.first()
                    yield Delta(leaving)
                checks.refuse()
                if declined.goes_on or not within:
                    if not within:
                        asking.trail.note(detail={"stopped_by": lease.stopped_by})
                    finish = Finish("budget", so_far, salted=generator.salted, counted=False)
                    break
        if finish is None:
            raise Unavailable("the generator ended without a finish", item="generator", remedy="try again")
        used = finish.usage
        use.used(used.input, used.output, cached_input=used.cached_input, estimated=not finish.counted)
        asking.trail.course.waited(finish.waited_s)
    finish = _as_declined(asking, declined, finish)
    _note_generation(asking, placed, salt, finish)
    abstained = ended(finish) == "abstain"
    draft = replace(draft, model=generator.identity.model, usage=finish.usage)
    await require_readable(asking, context)
    if abstained:
        yield Done(draft)
        return
    leaving, required = passed(asking.trail, checks, None), plan.rails.terms.require_citation
    text += leaving
    if leaving and not required:
        asking.trail.course.first()
        yield Delta(leaving)
    checks.refuse()
    concluded = await conclude(asking, gathered, made, checks, draft, text, finish)
    if required and concluded.citations:
        yield Delta(text)
    yield Done(concluded)


def _as_declined(asking: Asking, declined: Declined, finish: Finish) -> Finish:
    """An abstention where the model said that there is no answer, on record as its own."""
    if finish.reason in ("length", "budget"):
        declined.cut()
    if not declined.said or finish.reason == "error":
        return finish
    asking.trail.note(detail=declined.detail)
    return replace(finish, reason="abstain")


def _further(so_far: Usage, piece: Piece, count: Callable[[str], int]) -> Usage:
    """What is charged if the stream is cut after `piece`: by the engine's own count where it says one."""
    return piece.usage or replace(so_far, output=so_far.output + count(piece.text))


def _salt(asking: Asking, found: Passages, identity: ModelIdentity) -> str:
    domain = found.domain
    return kv_salt(
        asking.tenant.keys.purpose("kv-salt"),
        tenant_id=domain.tenant_id,
        domain=domain.fingerprint,
        identity=identity,
        template_revision=asking.plan.template.revision,
        kv_epoch=domain.epochs.kv,
        sharing=narrower(asking.path.settings.kv_sharing, asking.tenant.contract.generation.kv_sharing),
        user_id=domain.user_id,
    )


def _note_generation(asking: Asking, placed: Placed, salt: str, finish: Finish) -> None:
    identity = placed.generator.identity
    asking.trail.note(
        generation=GenerationUse(
            model=identity.model,
            revision=identity.revision,
            adapter=identity.adapter,
            pool=placed.pool,
            # A fingerprint tells two salts apart without being usable as one.
            salt_fp=keyed_hash(b"salt-fingerprint", salt).hex()[:16] if finish.salted else None,
            input=finish.usage.input,
            cached_input=finish.usage.cached_input,
            output=finish.usage.output,
            finish=finish.reason,
        ),
        detail={"salted": finish.salted},
    )
