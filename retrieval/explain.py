"""What the cache would do with a question, rung by rung, without doing it: the same ladder, looked at dry."""

from __future__ import annotations

from dataclasses import dataclass

from cache.lookup import Asked, Hit, Miss
from indexing.embed import Embedder
from retrieval.plan import Plan, open_plan
from retrieval.question import AnswerPath, Question
from retrieval.remembered import look_up_exact, look_up_semantic
from tenancy.domain import permission_domain
from tenancy.identity import Principal
from tenancy.scope import Scope, scope_of
from tenancy.tenant import TenantHandle


@dataclass(frozen=True, slots=True)
class Explanation:
    """`semantic` is None where the exact rung decided. `tokens` is the question's length, `window` what the embedder
    sees of one.
    """

    tenant: TenantHandle
    plan: Plan
    asked: Asked
    scope: Scope
    embedder: Embedder
    tokens: int
    exact: Hit | Miss
    semantic: Hit | Miss | None

    @property
    def window(self) -> int:
        return self.embedder.fingerprint.window

    @property
    def found(self) -> Hit | Miss:
        """What would have happened."""
        return self.exact if self.semantic is None else self.semantic


def explain(path: AnswerPath, principal: Principal, question: Question) -> Explanation:
    """Nothing is served, stored, touched or drawn. Raises as `retrieval.plan.open_plan` does."""
    opened = open_plan(path, principal, question)
    tenant, embedder, plan = opened.tenant, opened.embedder, opened.plan
    with tenant.reading() as view:
        scope = scope_of(principal, permission_domain(principal, view), view)
    asked, exact = look_up_exact(path, embedder, principal, tenant, plan, dry=True)
    semantic = None
    if isinstance(exact, Miss):
        vector = embedder.encode_query(plan.query)
        semantic = look_up_semantic(path, embedder, principal, tenant, asked, vector, dry=True)
    tokens = embedder.question_length(asked.question)
    return Explanation(tenant, plan, asked, scope, embedder, tokens, exact, semantic)
