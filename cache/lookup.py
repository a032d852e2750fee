"""The ladder: may an answer that is remembered be served to this question, and if not, why not.

    cacheability -> exact -> window -> nearest five -> identity, guards, negatives, score, verifier, freshness
    -> standing

Each rung is a module of `cache.rungs` and returns a verdict with its reason; this module runs them in order. `ask`
reads the question once and fixes its namespace; `exact` needs no embedding; `semantic` follows with the vector. Each
takes the permission domain and the view that it was made from, in one transaction:

    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        asked = ask(domain, view, identity, question, template="default", mode=Mode.DEFAULT, follow_up=False)
        found = exact(domain, view, store, asked)

Any doubt is a miss. Similarity alone never serves anything.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cache.decision import Asked, Candidate, Hit, Miss, Mode, Reach, Reason, Would
from cache.entry import Entry, Vector, sealed
from cache.guards import read
from cache.key import CompositeIdentity, exact_key, namespace, normalise_question
from cache.ladder import Ladder
from cache.policy import TemplatePolicy
from cache.rungs import cacheability, freshness, guards, identity, nearest, negatives, score, verifier, window
from cache.rungs import exact as exactly
from cache.rungs import standing as standings
from cache.standing import Standing
from cache.stores.port import CacheStore
from cache.verdict import Verdict
from tenancy.domain import PermissionDomain
from tenancy.errors import Corrupt, InvalidInput, Unavailable
from tenancy.tenant import ReadView

__all__ = [
    "Asked",
    "Candidate",
    "Hit",
    "Miss",
    "Mode",
    "Reach",
    "Reason",
    "Would",
    "ask",
    "exact",
    "recheck",
    "semantic",
]

_REASONS = frozenset(Reason)


def ask(
    domain: PermissionDomain,
    view: ReadView,
    identity: CompositeIdentity,
    question: str,
    *,
    template: str,
    mode: Mode,
    follow_up: bool,
    sampled: bool = False,
    policy: TemplatePolicy | None = None,
) -> Asked:
    """Fix how far the answer may travel, the namespace and the exact key.

    A question that carries personal data gets a namespace of its asker. `follow_up`: the question has a
    conversation before it (its digest is then `identity.conversation`). `sampled`: the answer is drawn by chance.
    Raises `InvalidInput`.
    """
    if follow_up == (identity.conversation is None):
        raise InvalidInput("a follow-up needs a conversation digest, and only a follow-up has one", item="conversation")
    policy = policy or TemplatePolicy()
    plain = normalise_question(question)
    text = read(plain)
    reach, why = cacheability.judge(text, follow_up=follow_up, sampled=sampled, policy=policy)
    if reach is Reach.PRIVATE:
        identity = replace(identity, user_id=domain.user_id)
    space = namespace(view.tenant, domain, identity)
    key = exact_key(view.tenant, space, question)
    return Asked(space, key, plain, text, template, mode, reach, why, identity, policy)


def exact(
    domain: PermissionDomain, view: ReadView, store: CacheStore, asked: Asked, *, dry: bool = False
) -> Hit | Miss:
    """The same question again, in the same namespace. `dry`: as in `semantic`."""
    if (refusal := _not_looked_up(domain, asked)) is not None:
        return refusal
    found, entry = exactly.fetch(view.tenant, store, asked)
    steps = (cacheability.check(asked.reach, asked.why), found)
    if entry is None:
        return Miss(Reason(found.reason), steps=steps)
    verdicts = (
        identity.check(view.tenant, asked, entry),
        exactly.check(asked, entry),
        negatives.check_entry(view, entry),
        freshness.check(domain, view, entry, store.policy, store.clock()),
    )
    reason = _first_reason(verdicts)
    if reason is not None:
        _leave(view, store, entry, reason, dry=dry)
        return Miss(reason, (Candidate(entry.id, 1.0, reason, verdicts),), steps=steps)
    if not dry:
        store.touch(view.tenant, entry)
    return Hit(entry, "exact", 1.0, _age(store, entry), verdicts=verdicts, steps=steps)


def semantic(
    domain: PermissionDomain,
    view: ReadView,
    store: CacheStore,
    asked: Asked,
    vector: Vector,
    *,
    tokens: int,
    limit: int,
    ladder: Ladder,
    dry: bool = False,
) -> Hit | Miss:
    """A question that means the same, where a certificate or an operator allows the template.

    `vector` (dim,) float32, L2-normalised, of the question; `tokens` its length as the embedder counts, `limit`
    the embedder's window. Candidates are tried in order, so that a refused first one does not hide a good second.
    A miss may still name the entry that it `would` have served, to be compared with the fresh answer.

    `dry` explains: nothing is touched, discarded or drawn, and a refused candidate is put before every rung.
    """
    if (refusal := _not_looked_up(domain, asked)) is not None:
        return refusal
    steps = [cacheability.check_semantic(asked.reach, asked.why)]
    if not steps[-1].passed:
        return Miss(Reason.EXACT_ONLY, steps=tuple(steps))
    steps.append(window.check(tokens, limit))
    if not steps[-1].passed:
        return Miss(Reason.WINDOW, steps=tuple(steps))
    standing = standings.of(view, ladder, asked, store.policy)
    allowed = standings.check(standing)
    if not (allowed.passed or dry or standings.is_checked(ladder, asked)):
        return Miss(Reason(allowed.reason), standing=standing, steps=(*steps, allowed))
    found, candidates = nearest.fetch(view.tenant, store, asked, vector)
    steps.append(found)
    if not found.passed:
        return Miss(Reason(found.reason), standing=standing, steps=tuple(steps))
    trial = _Trial(domain, view, store, asked, ladder, standing, dry)
    refused: list[Candidate] = []
    waiting: tuple[Entry, Candidate, tuple[Candidate, ...]] | None = None
    for entry, similarity in candidates:
        candidate = trial.of(entry, similarity)
        if candidate.reason is not None:
            _leave(view, store, entry, candidate.reason, dry=dry)
        elif standings.on_probation(ladder, asked, entry):
            # Not what is served, so not what is drawn either: a later one may have left its probation.
            waiting = waiting or (entry, candidate, tuple(refused))
            candidate = replace(candidate, reason=Reason.PROBATION)
        else:
            return trial.decided(entry, candidate, tuple(refused), [*steps, allowed])
        refused.append(candidate)
    if waiting is not None:
        return trial.decided(*waiting, [*steps, allowed])
    return Miss(refused[0].reason or Reason.ABSENT, tuple(refused), standing=standing, steps=tuple(steps))


def recheck(domain: PermissionDomain, view: ReadView, store: CacheStore, asked: Asked, entry: Entry) -> Reason | None:
    """Why an entry that was found must not be served after all, asked once more just before its first byte leaves.

    The domain and the view are new ones: fresh now, of the same domain, and still in the store.
    """
    if asked.namespace.domain != domain.fingerprint:
        return Reason.STALE_DOMAIN
    if not (wrong := negatives.check_entry(view, entry)).passed:
        return Reason(wrong.reason)
    verdict = freshness.check(domain, view, entry, store.policy, store.clock())
    if not verdict.passed:
        return Reason(verdict.reason)
    try:
        return None if _is_held(view, store, asked, entry) else Reason.GONE
    except (Unavailable, Corrupt):
        return Reason.STORE_AWAY


@dataclass(frozen=True, slots=True)
class _Trial:
    """The rungs that judge one candidate, and the decision about the one that is to be served."""

    domain: PermissionDomain
    view: ReadView
    store: CacheStore
    asked: Asked
    ladder: Ladder
    standing: Standing
    dry: bool

    def of(self, entry: Entry, similarity: float) -> Candidate:
        """Every rung in order, up to the first that refuses, or to the end in order to explain."""
        verdicts: list[Verdict] = []
        for verdict in self._verdicts(entry, similarity):
            verdicts.append(verdict)
            if not verdict.passed and not self.dry:
                break
        return Candidate(entry.id, similarity, _first_reason(verdicts), tuple(verdicts))

    def decided(
        self, entry: Entry, candidate: Candidate, refused: tuple[Candidate, ...], steps: list[Verdict]
    ) -> Hit | Miss:
        """Serve, where the standing allows it and the hit is not to be compared with a fresh answer."""
        values = {verdict.name: verdict.value for verdict in candidate.verdicts}
        probability = values[score.NAME] or 0.0
        random = (lambda: 1.0) if self.dry else self.ladder.random
        drawn, purpose = standings.purpose(self.standing, self.ladder, self.asked, entry, random)
        reason = _first_reason((steps[-1], drawn))
        if reason is not None:
            return Miss(
                reason,
                refused,
                Would(entry, candidate.similarity, probability, purpose, candidate.verdicts),
                self.standing,
                (*steps, drawn),
            )
        if not self.dry:
            self.store.touch(self.view.tenant, entry)
        return Hit(
            entry,
            "semantic",
            candidate.similarity,
            _age(self.store, entry),
            probability,
            values[verifier.NAME],
            self.standing,
            refused,
            self.standing.ladder,
            candidate.verdicts,
            (*steps, drawn),
        )

    def _verdicts(self, entry: Entry, similarity: float) -> Iterator[Verdict]:
        yield nearest.check(similarity, self.standing)
        yield identity.check(self.view.tenant, self.asked, entry)
        guarded, cached = guards.check(self.asked.text, entry.question)
        yield guarded
        yield negatives.check(self.view, self.asked, entry)
        yield score.check(self.ladder, self.asked, cached, similarity, guarded.near)
        yield verifier.check(self.ladder, self.asked, entry)
        yield freshness.check(self.domain, self.view, entry, self.store.policy, self.store.clock())


def _not_looked_up(domain: PermissionDomain, asked: Asked) -> Miss | None:
    if asked.mode is not Mode.DEFAULT:
        return Miss(Reason.BYPASSED if asked.mode is Mode.BYPASS else Reason.REFRESHED)
    possible = cacheability.check(asked.reach, asked.why)
    if not possible.passed or domain.is_empty:
        return Miss(Reason.NOT_CACHEABLE, steps=(possible,))
    # The namespace was fixed for a domain; a principal whose domain has changed since then has another one.
    return None if asked.namespace.domain == domain.fingerprint else Miss(Reason.STALE_DOMAIN)


def _first_reason(verdicts: Sequence[Verdict]) -> Reason | None:
    """Why a candidate is refused. Guards have reasons of their own kind; `Candidate.verdict` tells which."""
    refused = next((verdict for verdict in verdicts if not verdict.passed), None)
    if refused is None:
        return None
    return Reason(refused.reason) if refused.reason in _REASONS else Reason.VETOED


def _leave(view: ReadView, store: CacheStore, entry: Entry, reason: Reason, *, dry: bool) -> None:
    """A corrupt entry can never serve: it goes. Any other may serve somebody else, or later."""
    if reason is Reason.CORRUPT and not dry:
        with suppress(Unavailable, Corrupt):
            store.discard(view.tenant, entry)


def _is_held(view: ReadView, store: CacheStore, asked: Asked, entry: Entry) -> bool:
    """Whether the store holds this entry, by now perhaps with another count of its checks."""
    if store.holds(view.tenant, entry):
        return True
    held = store.get(view.tenant, asked.namespace, entry.exact)
    if held is None or held.id != entry.id:
        return False
    counted = sealed(view.tenant, replace(entry, confirmed=held.confirmed))
    return hmac.compare_digest(counted.checksum, held.checksum)


def _age(store: CacheStore, entry: Entry) -> float:
    return max(0.0, store.clock() - entry.created)
