"""The prompt that a question would make, with the sources that its asker may read now, without asking any model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from generation.generator import prompt_tokens
from generation.prompt import Prompt, Template
from retrieval.abstain import judged
from retrieval.masking import masked_prompt
from retrieval.plan import Plan, open_plan
from retrieval.question import AnswerPath, Question
from retrieval.rerank import best_apart, texts_of
from retrieval.search import Passages, open_scope, search
from retrieval.sources import Gathered, gather
from tenancy.identity import Principal

MARK: Final = "MARK"
"""Stands for the canary, which is not shown."""


@dataclass(frozen=True, slots=True)
class Preview:
    """`tokens` are the whole prompt's. Without sufficient evidence the service would abstain, and ask no model."""

    plan: Plan
    prompt: Prompt
    tokens: int
    found: Passages
    gathered: Gathered

    @property
    def asks_model(self) -> bool:
        return self.gathered.evidence.sufficient and bool(self.gathered.context.sources)


def preview(path: AnswerPath, principal: Principal, question: Question, system: str | None = None) -> Preview:
    """`system` takes the place of the template's text. Raises as `retrieval.plan.open_plan` and `search` do."""
    opened = open_plan(path, principal, question)
    tenant, embedder, plan = opened.tenant, opened.embedder, opened.plan
    if system is not None:
        plan = replace(plan, template=Template(plan.template.name, system))
    found = search(
        tenant,
        principal,
        open_scope(principal, tenant, path.collections),
        plan.query,
        embedder.encode_query(plan.query),
        plan.breadth if plan.reranker is None else max(plan.breadth, plan.reranker.depth),
        plan.search_mode,
        model=embedder.fingerprint,
        covers=embedder.covers(plan.query),
        where=plan.where,
        boosts=plan.boosts,
        copies_last=True,
        visible_only=plan.hidden == "leave_out",
    )
    if plan.reranker is not None:
        scores = plan.reranker.scores(plan.query, texts_of(found.items))
        found = replace(found, items=best_apart(found.items, scores, plan.breadth, plan.reranker.share))
    gathered = gather(tenant, plan, found, embedder)
    if plan.judge is not None:
        read = [source.passage for source in gathered.context.sources[: plan.judge.depth]]
        scores = plan.judge.scores(plan.query, texts_of(read)).tolist()
        gathered = replace(gathered, evidence=judged(gathered.evidence, scores, plan.threshold))
    prompt = masked_prompt(plan, gathered.context, mark=MARK).prompt
    return Preview(plan, prompt, prompt_tokens(prompt, plan.route.count), found, gathered)
