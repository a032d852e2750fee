"""A question with everything resolved that the server decides: template, model, limits, the stand-alone form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from admission.gate import Estimate
from cache.key import CompositeIdentity, RetrievalIdentity
from cache.lookup import Mode
from generation.budget import Count, Room, divide
from generation.canary import canary
from generation.guardrails.rails import Rails, rails_of
from generation.prompt import Template, history_digest
from generation.routing import Route
from generation.templates import resolve
from indexing.catalogue import EMBEDDED, serving
from indexing.chunk import CHUNKER_REVISION
from indexing.embed import Embedder
from indexing.filters import Filter, canonical, parse
from indexing.terms import TERMS_REVISION
from retrieval.boosts import identity
from retrieval.duplicates import DUPLICATES_REVISION
from retrieval.followup import stand_alone
from retrieval.fusion import FUSION_REVISION
from retrieval.question import AnswerPath, Question
from retrieval.rerank import Reranker
from retrieval.search import SearchMode
from tenancy.contract import Boost, HiddenText, Mixing
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.errors import InvalidInput
from tenancy.fields import FieldType
from tenancy.identity import Principal
from tenancy.limits import WorkClass
from tenancy.tenant import ReadView, TenantHandle

RESPONSE_CONTRACT = "answer-3"
"""Moves with what may leave in an answer, so that none is served that was remembered before."""

_WIDER, _WIDEST = 3, 48


@dataclass(frozen=True, slots=True)
class Plan:
    """`query` stands alone; `rewritten` is the same text where it differs from what was typed, else `None`.

    `room` says what of the model's context is for what, and which turns of the conversation stand in the prompt;
    `conversation` is the digest of all of them as sent. `threshold` is the least strength of evidence that is answered
    from (`retrieval.abstain`), `fields` the declared types of metadata, `reranker` what reads the passages again,
    `judge` what tells whether the best of them answer.
    `mark` is the prompt's canary. `rails` are the guard rails of the tenant's contract.
    """

    query: str
    rewritten: str | None
    template: Template
    route: Route
    top_k: int
    search_mode: SearchMode
    where: Filter | None
    boosts: tuple[Boost, ...]
    fields: Mapping[str, FieldType]
    room: Room
    mark: str = field(repr=False)
    rails: Rails
    mixing: Mixing
    hidden: HiddenText
    threshold: float
    reranker: Reranker | None
    judge: Reranker | None
    cache_mode: Mode
    conversation: str | None
    estimate: Estimate

    @property
    def breadth(self) -> int:
        """How many passages to search for: where some may be left out, more than can be used."""
        if self.mixing == "allow" and self.hidden == "mark":
            return self.top_k
        return max(self.top_k, min(_WIDER * self.top_k, _WIDEST))

    @property
    def max_tokens(self) -> int:
        """Tokens of the answer, at most."""
        return self.room.answer

    def count(self, text: str) -> int:
        """Tokens of `text` in the prompt, by the model that counts most."""
        return _counting(self.route, self.rails)(text)


@dataclass(frozen=True, slots=True)
class Opened:
    """The tenant of a question, the embedding model and the engine of its collection, and what is to be done."""

    tenant: TenantHandle
    embedder: Embedder
    engine: str
    plan: Plan


def open_plan(path: AnswerPath, principal: Principal, question: Question) -> Opened:
    """Raises `TenantSuspended`, `NotFound`, `ModelMismatch`, `InvalidInput`."""
    tenant = path.tenants.open(principal)
    with tenant.reading() as view:
        plan = make_plan(path, permission_domain(principal, view), view, question, principal.work)
        collection = serving(view)
        return Opened(tenant, path.embedders.of(view), EMBEDDED if collection is None else collection.engine, plan)


def make_plan(
    path: AnswerPath,
    domain: PermissionDomain,
    view: ReadView,
    question: Question,
    work: WorkClass = "interactive",
) -> Plan:
    """Resolve `question`, which is answered as `work`.

    Raises `NotFound` for a template, model or adapter that this tenant does not have, and `InvalidInput` for a filter
    that the tenant's contract does not provide for, a cache mode that the template's policy does not permit, or a
    question that is too long for the model.
    """
    settings, terms = path.settings, view.tenant.contract.retrieval
    route = path.routes.choose(domain, view, question.model, question.adapter, work)
    template = resolve(view, path.templates, question.template)
    alone = stand_alone(question.query, question.history)
    most = view.tenant.contract.generation.max_output_tokens or settings.max_tokens
    max_tokens = min(question.max_tokens or settings.max_tokens, most)
    mark = canary(view.tenant.keys.purpose("prompt-canary"), template.revision)
    rails = rails_of(view.tenant.contract.generation.guards)
    room = _room(path, route, rails, template, alone.text, question, max_tokens, mark)
    return Plan(
        query=alone.text,
        rewritten=rails.shown(alone.text) if alone.changed else None,
        template=template,
        route=route,
        top_k=question.top_k or terms.top_k or settings.top_k,
        search_mode=question.mode or terms.mode or settings.mode,
        where=None if question.filter is None else parse(question.filter, view.tenant.contract.metadata),
        boosts=tuple(terms.boosts),
        fields=view.tenant.contract.metadata,
        room=room,
        mark=mark,
        rails=rails,
        mixing=view.tenant.contract.generation.mixing or settings.mixing,
        hidden=view.tenant.contract.generation.hidden or settings.hidden,
        threshold=settings.threshold if terms.threshold is None else terms.threshold,
        reranker=path.reranker if terms.rerank else None,
        judge=path.judge,
        cache_mode=_cache_mode(path, question, template.name),
        conversation=history_digest(question.history),
        estimate=Estimate(room.fixed + room.sources, room.answer),
    )


def _room(
    path: AnswerPath,
    route: Route,
    rails: Rails,
    template: Template,
    query: str,
    question: Question,
    answer: int,
    mark: str,
) -> Room:
    """Nothing is cut where the model's context length is not known. Raises `InvalidInput`."""
    sources = path.settings.context_tokens
    if route.context_length is None:
        typed = route.count(question.query) + sum(route.count(turn.text) for turn in question.history)
        return Room(sources, answer, typed, question.history)
    return divide(
        template,
        query,
        question.history,
        length=route.context_length,
        sources=sources,
        answer=answer,
        count=_counting(route, rails),
        mark=mark,
    )


def _counting(route: Route, rails: Rails) -> Count:
    """The more of a text as it is and as the model sees it: a placeholder may be longer than what it stands for."""
    if not rails.terms.mask_input:
        return route.count
    return lambda text: max(route.count(text), route.count(rails.masked(rails.masks([text]), text).text))


def _cache_mode(path: AnswerPath, question: Question, template: str) -> Mode:
    permitted = path.cache.policy.of(template).modes
    if question.cache is not None and question.cache not in permitted:
        raise InvalidInput(
            f"the cache mode {question.cache} is not permitted in this template",
            item=template,
            remedy=f"use {' or '.join(permitted)}",
        )
    return Mode(question.cache or permitted[0]) if path.settings.cache_enabled else Mode.BYPASS


def _reading(reader: Reranker) -> str:
    """A model that reads passages again, and how many of them."""
    return f"{reader.name}@{reader.revision}/{reader.depth}"


def composite_identity(path: AnswerPath, embedder: Embedder, domain: PermissionDomain, plan: Plan) -> CompositeIdentity:
    """Everything that has to be equal before an answer may be shared; all of it derived here."""
    model = plan.route.identity
    return CompositeIdentity(
        tenant_id=domain.tenant_id,
        domain=domain.fingerprint,
        model_revision=f"{model.model}@{model.revision}",
        tokenizer_revision=model.tokenizer,
        template_revision=plan.template.revision,
        adapter_revision=model.adapter,
        embedder=msgspec.json.encode(embedder.fingerprint, order="sorted").decode(),
        generation=f"max_tokens={plan.max_tokens} context_tokens={path.settings.context_tokens} "
        f"context_length={plan.route.context_length} mixing={plan.mixing} hidden={plan.hidden} "
        f"temperature={model.temperature!r} threshold={plan.threshold!r} "
        f"judge={None if plan.judge is None else _reading(plan.judge)} "
        f"rails={plan.rails.revision}",
        user_id=None,
        filter=None if plan.where is None else canonical(plan.where),
        conversation=plan.conversation,
        response_contract=RESPONSE_CONTRACT,
        retrieval=RetrievalIdentity(
            top_k=plan.top_k,
            mode=plan.search_mode,
            fusion=f"{FUSION_REVISION}/{DUPLICATES_REVISION}{identity(plan.boosts, plan.fields)}",
            reranker=None if plan.reranker is None else _reading(plan.reranker),
            chunker=f"{CHUNKER_REVISION}/{TERMS_REVISION}",
        ),
    )
