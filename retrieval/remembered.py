"""The cache as the path of a question sees it: look up, replay, remember. Called in worker threads."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from audit.record import Bound, CacheUse, Detail, Freshness, GuardResult
from cache.certificate.negatives import pair_of
from cache.entry import Entry, canonical_payload
from cache.lookup import Asked, Candidate, Hit, Miss, Nominated, Reason, ask, exact, nominate, recheck
from cache.standing import Standing
from cache.store import Completed, NotStored, Stored, put
from generation.generator import Usage
from indexing.embed import Embedder
from retrieval.citations import Citation
from retrieval.plan import Plan, composite_identity
from retrieval.question import Answer, AnswerPath, CacheReport, coarse_age
from tenancy.domain import permission_domain
from tenancy.identity import Principal
from tenancy.pauses import reached
from tenancy.tenant import Epochs, TenantHandle

UNCERTIFIED: Final = "uncertified"
CERTIFIED: Final = "certified"

_STATUSES: Final[dict[Reason, Literal["bypass", "refresh"]]] = {
    Reason.BYPASSED: "bypass",
    Reason.REFRESHED: "refresh",
}


class _Payload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an entry stores: the parts of an answer that a replay repeats byte for byte, and the tokens (input, output)
    that it took.
    """

    text: str
    citations: tuple[Citation, ...]
    finish: str
    model: str
    warnings: tuple[str, ...] = ()
    tokens: tuple[int, int] = (0, 0)


def look_up_exact(
    path: AnswerPath, embedder: Embedder, principal: Principal, tenant: TenantHandle, plan: Plan, *, dry: bool = False
) -> tuple[Asked, Hit | Miss]:
    """Fix namespace and key in one read transaction, and look for the same question in it. `dry`: change nothing."""
    reached("cache")
    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        asked = ask(
            domain,
            view,
            composite_identity(path, embedder, domain, plan),
            plan.query,
            template=plan.template.name,
            mode=plan.cache_mode,
            follow_up=plan.conversation is not None,
            sampled=plan.route.identity.temperature > 0,
            policy=path.cache.policy.of(plan.template.name),
        )
        found = _legible(exact(domain, view, path.cache, asked, dry=dry))
    reached("cache-checked")
    return asked, found


def look_up_semantic(
    path: AnswerPath,
    embedder: Embedder,
    principal: Principal,
    tenant: TenantHandle,
    asked: Asked,
    vector: npt.NDArray[np.float32],
    *,
    dry: bool = False,
) -> Hit | Miss:
    """Look for a question that means the same. `vector` (dim,). `dry`: change nothing, and ask every rung."""
    tokens = embedder.question_length(asked.question)
    with tenant.reading() as view:
        domain = permission_domain(principal, view)
        limit, ladder = embedder.fingerprint.window, path.ladder
        found = nominate(domain, view, path.cache, asked, vector, tokens=tokens, limit=limit, ladder=ladder, dry=dry)
    return _legible(found.decided() if isinstance(found, Nominated) else found)


def _legible(found: Hit | Miss) -> Hit | Miss:
    """A payload that is whole but of another form, as after a change of program, is a miss and no error."""
    if isinstance(found, Miss):
        return found
    try:
        msgspec.json.decode(found.entry.payload, type=_Payload)
    except msgspec.DecodeError:
        return Miss(Reason.CORRUPT, (Candidate(found.entry.id, found.similarity, Reason.CORRUPT),))
    return found


def look_again(path: AnswerPath, principal: Principal, asked: Asked, hit: Hit) -> Reason | None:
    """Why a hit that is on record must not leave after all, in the state of this moment; None where it may.

    Raises `TenantSuspended` and `NotFound` as opening the tenant does.
    """
    reached("hit")
    tenant = path.tenants.open(principal)
    with tenant.reading() as view:
        reason = recheck(permission_domain(principal, view), view, path.cache, asked, hit.entry)
    reached("hit-checked")
    return reason


def replayed(hit: Hit, plan: Plan, audit_seq: int, request_id: str) -> Answer:
    """The stored answer under a fresh id. The entry's checksum was verified when it was looked up."""
    payload = msgspec.json.decode(hit.entry.payload, type=_Payload)
    return Answer(
        text=payload.text,
        citations=payload.citations,
        finish="stop",
        model=payload.model,
        rewritten=plan.rewritten,
        nearest_titles=(),
        cache=CacheReport(
            status="hit",
            kind=hit.kind,
            age_s=coarse_age(hit.age),
            cached_from=hit.entry.id,
            certified=None if hit.standing is None else UNCERTIFIED if hit.uncertified else CERTIFIED,
        ),
        usage=Usage(),
        audit_seq=audit_seq,
        request_id=request_id,
        warnings=payload.warnings,
    )


def made_by(hit: Hit) -> tuple[str, tuple[int, int]]:
    """The model of a stored answer, and the tokens (input, output) that a hit saves; none of an older entry."""
    payload = msgspec.json.decode(hit.entry.payload, type=_Payload)
    return payload.model, payload.tokens


def cited_in(hit: Hit) -> tuple[Citation, ...]:
    """The citations of a stored answer, for the audit's record of what was replayed."""
    return stored_answer(hit.entry)[1]


def stored_answer(entry: Entry) -> tuple[str, tuple[Citation, ...]]:
    """Text and citations of a stored answer. Raises `msgspec.DecodeError` for a payload of another form."""
    payload = msgspec.json.decode(entry.payload, type=_Payload)
    return payload.text, payload.citations


def remember(
    path: AnswerPath,
    principal: Principal,
    tenant: TenantHandle,
    asked: Asked,
    answer: Answer,
    *,
    dependencies: tuple[tuple[int, str], ...],
    epochs: Epochs,
    vector: npt.NDArray[np.float32] | None,
) -> Stored | NotStored:
    """Offer a finished answer to the cache."""
    reached("store")
    stored = _Payload(
        answer.text,
        answer.citations,
        answer.finish,
        answer.model,
        answer.warnings,
        (answer.usage.input, answer.usage.output),
    )
    payload = canonical_payload(msgspec.to_builtins(stored))
    completed = Completed(
        payload=payload,
        finish_reason=answer.finish,
        abstained=answer.finish == "abstain",
        verified_citations=len(answer.citations),
        dependencies=dependencies,
        epochs=epochs,
        vector=vector,
        audit_seq=answer.audit_seq,
    )
    return put(tenant, principal, path.cache, asked, completed)


def hit_use(hit: Hit, asked: Asked, principal: Principal) -> CacheUse:
    """A hit as the audit records it."""
    vetoed = tuple(
        GuardResult(name=candidate.verdict.name, verdict="veto", reason=candidate.verdict.reason)
        for candidate in hit.refused
        if candidate.verdict is not None
    )
    checked = len(hit.entry.dependencies)
    use = CacheUse(
        status="hit",
        kind=hit.kind,
        entry=hit.entry.id,
        origin_seq=hit.entry.origin_seq,
        origin_actor_same=hit.entry.origin_user == principal.user_id,
        namespace=asked.space,
        guards=vetoed,
        rules=hit.rules,
        freshness=Freshness(versions_checked=checked, readable_checked=checked),
        age_s=int(hit.age),
    )
    standing = hit.standing
    if standing is None:
        return use
    return msgspec.structs.replace(
        use,
        similarity=hit.similarity,
        threshold=None if standing.opening is None else standing.opening.threshold,
        score=hit.score,
        guards=(GuardResult(name="all", verdict="pass"), *vetoed),
        bound=_bound(standing),
    )


def hit_detail(hit: Hit, asked: Asked, tenant: TenantHandle) -> dict[str, Detail]:
    """What feedback about a semantic hit needs: its template, and the pair of questions as a keyed hash. And what
    deciding it again needs: the model of its similarity.
    """
    if hit.standing is None:
        return {}
    pair = pair_of(tenant, asked.question, hit.entry.question)
    return {
        "template": asked.template,
        "pair": pair.hex(),
        "embedder": asked.embedder,
    }


def _bound(standing: Standing) -> Bound:
    return Bound(n=standing.n, k=standing.k, upper=standing.upper, state=standing.state)


def miss_status(miss: Miss) -> Literal["miss", "bypass", "refresh"]:
    return _STATUSES.get(miss.reason, "miss")


def miss_use(miss: Miss, asked: Asked) -> CacheUse:
    """A miss as the audit records it: why, which guard turned which candidate away, and what would have been served."""
    first = miss.candidates[0] if miss.candidates else None
    would, standing = miss.would, miss.standing
    return CacheUse(
        status=miss_status(miss),
        reason=miss.reason.value,
        entry=would.entry.id if would else None if first is None else first.entry_id,
        similarity=would.similarity if would else None if first is None else first.similarity,
        score=would.score if would else None,
        rules=standing.ladder if would and standing else None,
        bound=_bound(standing) if would and standing else None,
        namespace=asked.space,
        guards=tuple(
            GuardResult(name=candidate.verdict.name, verdict="veto", reason=candidate.verdict.reason)
            for candidate in miss.candidates
            if candidate.verdict is not None
        ),
    )
