"""`strongroom audit replay`: past hits of a tenant decided again, under today's rules and for today's rights."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sqlalchemy import select

from audit.filters import check_window
from audit.hits import PastHit, past_hits, pruned, state_of
from audit.log import AuditLog
from audit.record import CacheUse
from cache import replay as rungs
from cache.decision import Asked, Mode
from cache.entry import Dependencies
from cache.guards import RULES_REVISION
from cache.ladder import Ladder
from cache.lookup import ask
from cache.replay import Finding, Pair, Past
from generation.adapters.registry import registered
from generation.templates import names_of
from retrieval.plan import composite_identity, make_plan
from retrieval.question import AnswerPath, Question
from service.control import Control
from tenancy.domain import PermissionDomain, permission_domain
from tenancy.errors import InvalidInput, NotFound, StrongroomError
from tenancy.identity import Principal
from tenancy.schema import documents, users
from tenancy.tenant import ReadView
from tenancy.types import among

Vector = npt.NDArray[np.float32]

PLAN: Final = "plan"
"""What comes before the cache's ladder: the template, the adapter and the model that a question would need."""
VECTORS: Final = 10_000
"""Questions whose vectors are kept in memory."""

_DOCUMENTS: Final = select(documents.c.id, documents.c.name).where(among(documents.c.name, "wanted"))


@dataclass(frozen=True, slots=True)
class _User:
    id: str
    name: str


@dataclass(slots=True)
class _Tally:
    """What became of the hits. Those that would be served again are counted, the others stand in `rows`."""

    hits: int = 0
    withheld: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    rungs: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        self.hits += 1
        self.decisions[row["decision"]] += 1
        self.rungs.update(found["rung"] for found in row["findings"] if found["verdict"] == "refuse")
        self.missing.update(row["missing"])
        if row["decision"] != "served":
            self.rows.append(row)


def replay(
    path: AnswerPath,
    control: Control,
    principal: Principal,
    *,
    since: float | None = None,
    until: float | None = None,
    user: str | None = None,
    questions: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Decide every hit of the window again; `user` is a name. Nothing is served, stored, touched or counted.

    Raises `NotFound` for a user whom the tenant does not have, `InvalidInput` for a window that ends before it begins.
    """
    check_window(since, until)
    log = control.logs.of(principal)
    head, tally = state_of(log), _Tally()
    tenant = path.tenants.open(principal)
    actor = None
    if user is not None:
        found = control.tenants.find_user(principal.tenant_id, user)
        if found is None:
            raise NotFound("no such user in this tenant", item=user[:200], remedy="use the name in the directory")
        actor = log.subjects.ref(found)
    vectors: dict[str, Vector] = {}
    for page in past_hits(log, head, since=since, until=until, actor=actor):
        tally.withheld += page.withheld
        with tenant.reading() as view:
            again = _Again(path, control, log, view, page.served, vectors)
            for hit in page.served:
                tally.add(again.row(hit, questions=questions))
        progress(len(page.served))
    return _report(path.ladder, tally) | {
        "pruned": pruned(log, head, since=since, until=until),
        "as_of": {"size": head.size, "root": head.root.hex()},
    }


def _report(ladder: Ladder, tally: _Tally) -> dict[str, Any]:
    return {
        "rules": {
            "guards": RULES_REVISION,
            "score": ladder.score.revision,
            "verifier": None if ladder.verifier is None else ladder.verifier.revision,
        },
        "hits": tally.hits,
        "served_again": tally.decisions["served"],
        "refused": tally.decisions["refused"],
        "open": tally.decisions["open"],
        "withheld_then": tally.withheld,
        "refused_by": dict(sorted(tally.rungs.items())),
        "missing": dict(sorted(tally.missing.items())),
        "rows": tally.rows,
    }


class _Again:
    """Decides hits in one state of the tenant. `vectors` are those of questions, by text, kept from page to page."""

    def __init__(
        self,
        path: AnswerPath,
        control: Control,
        log: AuditLog,
        view: ReadView,
        hits: Sequence[PastHit],
        vectors: dict[str, Vector],
    ) -> None:
        self._path = path
        self._control = control
        self._view = view
        self._embedder = path.embedders.of(view)
        self._vectors = vectors
        people = view.execute(select(users.c.id, users.c.name)).all()
        self._users = {log.subjects.ref(row.id): _User(row.id, row.name) for row in people}
        named = {name for hit in hits for name, _ in hit.sources or ()}
        self._documents = {row.name: int(row.id) for row in view.execute(_DOCUMENTS, {"wanted": named})}
        self._adapters = {one.id: one for one in registered(view)}
        self._templates = names_of(view, path.templates)
        self._domains: dict[str, PermissionDomain] = {}

    def row(self, hit: PastHit, *, questions: bool) -> dict[str, Any]:
        """One hit with what refused it or stays open, as plain data. Texts only where they were asked for."""
        event, use = hit.event, use_of(hit)
        asker, template = self._users.get(event.actor.ref or ""), self._template(hit)
        domain = None if asker is None else self._domain(asker)
        findings = list(self._findings(hit, domain, template))
        said = {found.verdict for found in findings}
        row: dict[str, Any] = {
            "seq": event.seq,
            "ts": event.ts,
            "user": None if asker is None else asker.name,
            "actor": event.actor.ref,
            "request": event.request.id,
            "kind": use.kind,
            "entry": use.entry,
            "origin_seq": use.origin_seq,
            "template": template,
            "decision": "refused" if "refuse" in said else "open" if "unknown" in said else "served",
            "findings": [_plain(found) for found in findings if found.verdict != "pass"],
            "missing": list(hit.missing),
            "then": {"rules": use.rules, "similarity": use.similarity, "score": use.score},
            "now": {found.rung: round(found.value, 6) for found in findings if found.value is not None},
            "domain_changed": _domain_changed(hit, domain),
        }
        return row | ({"question": hit.question, "cached": hit.cached} if questions else {})

    def _findings(self, hit: PastHit, domain: PermissionDomain | None, template: str | None) -> Iterator[Finding]:
        path, view, past = self._path, self._view, self._past(hit)
        yield from rungs.of_entry(domain, view, past, path.cache.policy, template or "")
        if domain is None:
            return
        asked = self._asked(hit, domain, template)
        if isinstance(asked, Finding):
            yield asked
            return
        yield from rungs.of_question(past, asked)
        if past.kind == "semantic":
            yield from rungs.of_pair(view, path.ladder, path.cache.policy, past, asked, self._pair(hit, asked))

    def _past(self, hit: PastHit) -> Past:
        use = use_of(hit)
        author = None if hit.origin is None else self._users.get(hit.origin.actor.ref or "")
        return Past(
            kind="exact" if use.kind == "exact" else "semantic",
            entry=use.entry or "",
            namespace=use.namespace or "",
            question=hit.question,
            cached=hit.cached,
            sources=self._sources(hit),
            age=float(use.age_s or 0),
            author=None if author is None else author.id,
            own=use.origin_actor_same is True,
            rights_known=hit.event.actor.method != "jwt",
        )

    def _sources(self, hit: PastHit) -> Dependencies | None:
        if hit.sources is None:
            return None
        return tuple(sorted((self._documents.get(name, -1), version) for name, version in hit.sources))

    def _template(self, hit: PastHit) -> str | None:
        """The template's name; exact hits have its revision alone on record."""
        named = hit.event.detail.get("template")
        if isinstance(named, str):
            return named
        policy = hit.event.policy
        return None if policy is None or policy.template is None else self._templates.get(policy.template)

    def _domain(self, user: _User) -> PermissionDomain:
        found = self._domains.get(user.id)
        if found is None:
            principal = self._control.authenticator.operator(self._view.tenant.name, user.name)
            found = self._domains[user.id] = permission_domain(principal, self._view)
        return found

    def _asked(self, hit: PastHit, domain: PermissionDomain, template: str | None) -> Asked | Finding | None:
        """The question as today's cache would see it; why it could not be asked any more; None without its text."""
        adapter = hit.event.detail.get("adapter")
        registered = self._adapters.get(adapter) if isinstance(adapter, str) else None
        if adapter is not None and (registered is None or registered.revoked is not None):
            return Finding(PLAN, "refuse", "the adapter was revoked")
        if hit.question is None:
            return None
        if template is None:
            return Finding(PLAN, "unknown", "template not on record")
        question = Question(
            query=hit.question,
            request_id=secrets.token_hex(16),
            template=template,
            adapter=None if registered is None else registered.name,
        )
        try:
            plan = make_plan(self._path, domain, self._view, question)
        except (NotFound, InvalidInput) as error:
            return Finding(PLAN, "refuse", f"could not be asked today: {error.code}")
        except StrongroomError as error:
            return Finding(PLAN, "unknown", f"could not be planned: {error.code}")
        return ask(
            domain,
            self._view,
            composite_identity(self._path, self._embedder, domain, plan),
            plan.query,
            template=template,
            mode=Mode.DEFAULT,
            follow_up=False,
            sampled=plan.route.identity.temperature > 0,
            policy=self._path.cache.policy.of(template),
        )

    def _pair(self, hit: PastHit, asked: Asked | None) -> Pair | None:
        if asked is None or hit.question is None or hit.cached is None:
            return None
        embedder, similarity = self._embedder, use_of(hit).similarity
        if similarity is None or hit.event.detail.get("embedder") != asked.embedder:
            similarity = float(self._vector(hit.question) @ self._vector(hit.cached))
        return Pair(
            similarity=similarity,
            tokens=embedder.question_length(hit.question),
            cached_tokens=embedder.question_length(hit.cached),
            window=embedder.fingerprint.window,
        )

    def _vector(self, text: str) -> Vector:
        found = self._vectors.get(text)
        if found is None:
            if len(self._vectors) >= VECTORS:
                self._vectors.clear()
            found = self._vectors[text] = self._embedder.encode_query(text)
        return found


def use_of(hit: PastHit) -> CacheUse:
    assert hit.event.cache is not None
    return hit.event.cache


def _domain_changed(hit: PastHit, domain: PermissionDomain | None) -> bool | None:
    """Whether the asker has another permission domain by now; None where that cannot be told."""
    if domain is None or hit.event.policy is None or hit.event.actor.method == "jwt":
        return None
    return hit.event.policy.domain != domain.fingerprint


def _plain(found: Finding) -> dict[str, Any]:
    return {"rung": found.rung, "verdict": found.verdict, "reason": found.reason or None}
