"""The ladder: may an answer that is remembered be served to this question, and if not, why not.

    cacheability -> exact -> window -> opened by an operator -> nearest five -> threshold -> guards -> freshness

`ask` reads the question once and fixes its namespace; `exact` needs no embedding; `semantic` follows with the
vector. Each takes the permission domain and the view that it was made from, in one transaction:

    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        asked = ask(domain, view, identity, question, template="default", mode=Mode.DEFAULT, follow_up=False)
        found = exact(domain, view, store, asked)

Any doubt is a miss. Similarity alone never serves anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from cache import freshness
from cache.entry import Entry, Vector, is_intact
from cache.guards import RULES_REVISION, Text, Verdict, cacheability, compare, read, window
from cache.guards.cacheability import Reach
from cache.key import CompositeIdentity, Namespace, exact_key, namespace, normalise_question
from cache.openings import Opening, opening
from cache.stores.local import LocalStore
from tenancy.domain import PermissionDomain
from tenancy.errors import Corrupt, InvalidInput, Unavailable
from tenancy.tenant import ReadView


class Mode(StrEnum):
    """What the request asks of the cache: use it, leave it alone, or answer afresh and replace what is there."""

    DEFAULT = "default"
    BYPASS = "bypass"
    REFRESH = "refresh"


class Reason(StrEnum):
    BYPASSED = "bypassed"
    REFRESHED = "refreshed"
    NOT_CACHEABLE = "not cacheable"
    ABSENT = "absent"
    EXACT_ONLY = "exact only"
    WINDOW = "longer than the embedding window"
    NOT_OPENED = "template not opened for semantic hits"
    BELOW_THRESHOLD = "below the threshold"
    VETOED = "vetoed by a guard"
    CORRUPT = "corrupt entry"
    OTHER_NAMESPACE = "entry of another namespace"
    EXPIRED = "expired"
    STALE_DOMAIN = "domain of another state"
    CHANGED = "a document changed, went away or is not readable now"
    GROWN = "documents or access lists moved too long ago"
    STORE_AWAY = "cache out of reach"


@dataclass(frozen=True, slots=True)
class Asked:
    """One question as the cache sees it. `reach` says how far its answer may travel."""

    namespace: Namespace
    exact: bytes
    question: str
    text: Text
    template: str
    mode: Mode
    reach: Reach


@dataclass(frozen=True, slots=True)
class Candidate:
    """An entry that was looked at and refused. For the audit and for `explain`; never for the asker."""

    entry_id: str
    similarity: float
    reason: Reason
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """An answer to serve. `similarity` is 1 for an exact hit.

    A semantic hit names the `opening` that allowed it and is `uncertified`; `refused` are better candidates that
    a guard or a check turned away. `rules` is the revision of the guards.
    """

    entry: Entry
    kind: Literal["exact", "semantic"]
    similarity: float
    age: float
    opening: Opening | None = None
    refused: tuple[Candidate, ...] = ()
    rules: str = RULES_REVISION

    @property
    def uncertified(self) -> bool:
        return self.kind == "semantic"


@dataclass(frozen=True, slots=True)
class Miss:
    reason: Reason
    candidates: tuple[Candidate, ...] = ()


def ask(
    domain: PermissionDomain,
    view: ReadView,
    identity: CompositeIdentity,
    question: str,
    *,
    template: str,
    mode: Mode,
    follow_up: bool,
) -> Asked:
    """Fix how far the answer may travel, the namespace and the exact key.

    A question that carries personal data gets a namespace of its asker. `follow_up`: the question has a
    conversation before it (its digest is then `identity.conversation`). Raises `InvalidInput`.
    """
    if follow_up == (identity.conversation is None):
        raise InvalidInput("a follow-up needs a conversation digest, and only a follow-up has one", item="conversation")
    plain = normalise_question(question)
    text = read(plain)
    reach = cacheability.judge(text, follow_up=follow_up)
    if reach is Reach.PRIVATE:
        identity = replace(identity, user_id=domain.user_id)
    space = namespace(view.tenant, domain, identity)
    key = exact_key(view.tenant, space, question)
    return Asked(space, key, plain, text, template, mode, reach)


def exact(domain: PermissionDomain, view: ReadView, store: LocalStore, asked: Asked) -> Hit | Miss:
    """The same question again, in the same namespace."""
    if refusal := _not_looked_up(domain, asked):
        return Miss(refusal)
    try:
        entry = store.get(view.tenant, asked.namespace, asked.exact)
    except (Unavailable, Corrupt):
        return Miss(Reason.STORE_AWAY)
    if entry is None:
        return Miss(Reason.ABSENT)
    reason = _refusal(domain, view, store, asked, entry)
    if reason is None and entry.exact != asked.exact:
        reason = Reason.CORRUPT
    if reason is not None:
        return Miss(reason, (Candidate(entry.id, 1.0, reason),))
    store.touch(view.tenant, entry)
    return Hit(entry, "exact", 1.0, max(0.0, store.clock() - entry.created))


def semantic(
    domain: PermissionDomain,
    view: ReadView,
    store: LocalStore,
    asked: Asked,
    vector: Vector,
    *,
    tokens: int,
    limit: int,
) -> Hit | Miss:
    """A question that means the same, where an operator has opened the template.

    `vector` (dim,) float32, L2-normalised, of the question; `tokens` its length as the embedder counts, `limit`
    the embedder's window. Candidates are tried in order, so that a refused first one does not hide a good second.
    """
    if refusal := _not_looked_up(domain, asked):
        return Miss(refusal)
    if asked.reach is not Reach.SHARED:
        return Miss(Reason.EXACT_ONLY)
    if not window.check(tokens, limit).passed:
        return Miss(Reason.WINDOW)
    allowed = opening(view, asked.template)
    if allowed is None:
        return Miss(Reason.NOT_OPENED)
    try:
        candidates = store.nearest(view.tenant, asked.namespace, vector)
    except (Unavailable, Corrupt):
        return Miss(Reason.STORE_AWAY)
    refused: list[Candidate] = []
    for entry, similarity in candidates:
        verdict = None
        # Not `similarity < threshold`: a similarity that is not a number has to fail, too.
        if not similarity >= allowed.threshold:
            reason: Reason | None = Reason.BELOW_THRESHOLD
        elif not (verdict := compare(asked.text, read(entry.question))).passed:
            reason = Reason.VETOED
        else:
            reason = _refusal(domain, view, store, asked, entry)
        if reason is None:
            store.touch(view.tenant, entry)
            age = max(0.0, store.clock() - entry.created)
            return Hit(entry, "semantic", similarity, age, allowed, tuple(refused))
        refused.append(Candidate(entry.id, similarity, reason, verdict))
    return Miss(refused[0].reason if refused else Reason.ABSENT, tuple(refused))


def _not_looked_up(domain: PermissionDomain, asked: Asked) -> Reason | None:
    if asked.mode is not Mode.DEFAULT:
        return Reason.BYPASSED if asked.mode is Mode.BYPASS else Reason.REFRESHED
    if asked.reach is Reach.NONE or domain.is_empty:
        return Reason.NOT_CACHEABLE
    # The namespace was fixed for a domain; a principal whose domain has changed since then has another one.
    return None if asked.namespace.domain == domain.fingerprint else Reason.STALE_DOMAIN


def _refusal(domain: PermissionDomain, view: ReadView, store: LocalStore, asked: Asked, entry: Entry) -> Reason | None:
    """Why an entry that was read must not be served, whatever index or key led to it."""
    if entry.namespace != asked.namespace.value or entry.template != asked.template:
        return Reason.OTHER_NAMESPACE
    if not is_intact(view.tenant, entry):
        with suppress(Unavailable, Corrupt):
            store.discard(view.tenant, entry)
        return Reason.CORRUPT
    verdict = freshness.check(domain, view, entry, store.policy, store.clock())
    return None if verdict.passed else Reason(verdict.reason)
