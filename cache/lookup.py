"""The ladder: may an answer that is remembered be served to this question, and if not, why not.

    cacheability -> exact -> window -> nearest five -> identity, guards, negatives, score, freshness -> verifier
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
from collections.abc import Iterable, Iterator, Sequence
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
from tenancy.tenant import ReadView, TenantHandle

__all__ = [
    "Asked",
    "Candidate",
    "Hit",
    "Miss",
    "Mode",
    "Nominated",
    "Reach",
    "Reason",
    "Would",
    "ask",
    "exact",
    "nominate",
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
        _leave(view.tenant, store, entry, reason, dry=dry)
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
    """`nominate` and its decision in one, for callers that may hold their view while a verifier works."""
    found = nominate(domain, view, store, asked, vector, tokens=tokens, limit=limit, ladder=ladder, dry=dry)
    return found.decided() if isinstance(found, Nominated) else found


def nominate(
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
) -> Hit | Miss | Nominated:
    """A question that means the same, where a certificate or an operator allows the template.

    `vector` (dim,) float32, L2-normalised, of the question; `tokens` its length as the embedder counts, `limit`
    the embedder's window. Candidates are tried in order, so that a refused first one does not hide a good second.
    A miss may still name the entry that it `would` have served, to be compared with the fresh answer.

    `dry` explains: nothing is touched, discarded or drawn, and a refused candidate is put before every rung.

    With a verifier the candidates come back nominated: all that needs the view is done, so close it, and let them be
    `decided`. What changes meanwhile `recheck` finds, as whatever changes between look-up and first byte.
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
    tried = ((entry, trial.of(entry, similarity)) for entry, similarity in candidates)
    nominated = Nominated(view.tenant, store, asked, ladder, standing, (*steps, allowed), dry, tried)
    # The verifier takes its time, and gets it when the transaction has ended: until then all rungs that need it.
    return nominated.decided() if ladder.verifier is None else replace(nominated, tried=tuple(tried))


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
    """The rungs that judge one candidate in the state of a view."""

    domain: PermissionDomain
    view: ReadView
    store: CacheStore
    asked: Asked
    ladder: Ladder
    standing: Standing
    dry: bool

    def of(self, entry: Entry, similarity: float) -> Candidate:
        """Every rung but the verifier, up to the first that refuses, or to the end in order to explain."""
        verdicts: list[Verdict] = []
        for verdict in self._verdicts(entry, similarity):
            verdicts.append(verdict)
            if not verdict.passed and not self.dry:
                break
        return Candidate(entry.id, similarity, _first_reason(verdicts), tuple(verdicts))

    def _verdicts(self, entry: Entry, similarity: float) -> Iterator[Verdict]:
        yield nearest.check(similarity, self.standing)
        yield identity.check(self.view.tenant, self.asked, entry)
        verified = self.ladder.verifier is not None
        guarded, cached = guards.check(self.asked.text, entry.question, verified=verified)
        yield guarded
        yield negatives.check(self.view, self.asked, entry)
        yield score.check(self.ladder, self.asked, cached, similarity, guarded.near)
        yield freshness.check(self.domain, self.view, entry, self.store.policy, self.store.clock())


@dataclass(frozen=True, slots=True)
class Nominated:
    """Candidates of which every rung but the verifier has been asked, in order; `decided` needs no view."""

    tenant: TenantHandle
    store: CacheStore
    asked: Asked
    ladder: Ladder
    standing: Standing
    steps: tuple[Verdict, ...]
    dry: bool
    tried: Iterable[tuple[Entry, Candidate]]

    def decided(self) -> Hit | Miss:
        """The first that passes and is off probation, else the first that passes, else why not."""
        refused: list[Candidate] = []
        waiting: tuple[Entry, Candidate, tuple[Candidate, ...]] | None = None
        turns = verifier.Turns(self.ladder.pairs)
        for entry, candidate in self.tried:
            candidate = self._verified(entry, candidate, turns)
            if candidate.reason is not None:
                _leave(self.tenant, self.store, entry, candidate.reason, dry=self.dry)
            elif standings.on_probation(self.ladder, self.asked, entry):
                # Not what is served, so not what is drawn either: a later one may have left its probation.
                waiting = waiting or (entry, candidate, tuple(refused))
                candidate = replace(candidate, reason=Reason.PROBATION)
            else:
                return self._served(entry, candidate, tuple(refused))
            refused.append(candidate)
        if waiting is not None:
            return self._served(*waiting)
        reason = refused[0].reason or Reason.ABSENT
        return Miss(reason, tuple(refused), standing=self.standing, steps=self.steps[:-1])

    def _verified(self, entry: Entry, candidate: Candidate, turns: verifier.Turns) -> Candidate:
        """Put before the verifier what all others let pass; to explain, what they refused as well, beside the turns."""
        if candidate.reason is not None:
            if not self.dry:
                return candidate
            turns = verifier.Turns(1)
        scored = next(verdict for verdict in candidate.verdicts if verdict.name == score.NAME)
        verdicts = (*candidate.verdicts, verifier.check(self.ladder, self.asked, entry, scored, turns))
        return replace(candidate, reason=_first_reason(verdicts), verdicts=verdicts)

    def _served(self, entry: Entry, candidate: Candidate, refused: tuple[Candidate, ...]) -> Hit | Miss:
        """Serve, where the standing allows it and the hit is not to be compared with a fresh answer."""
        values = {verdict.name: verdict.value for verdict in candidate.verdicts}
        probability = values[score.NAME] or 0.0
        random = (lambda: 1.0) if self.dry else self.ladder.random
        drawn, purpose = standings.purpose(self.standing, self.ladder, self.asked, entry, random)
        steps = (*self.steps, drawn)
        reason = _first_reason((self.steps[-1], drawn))
        if reason is not None:
            would = Would(entry, candidate.similarity, probability, purpose, candidate.verdicts)
            return Miss(reason, refused, would, self.standing, steps)
        if not self.dry:
            self.store.touch(self.tenant, entry)
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
            steps,
        )


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


def _leave(tenant: TenantHandle, store: CacheStore, entry: Entry, reason: Reason, *, dry: bool) -> None:
    """A corrupt entry can never serve: it goes. Any other may serve somebody else, or later."""
    if reason is Reason.CORRUPT and not dry:
        with suppress(Unavailable, Corrupt):
            store.discard(tenant, entry)


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
