"""A past hit put before the rungs of the ladder as they are today, with today's documents and rights.

The same rungs decide that decide about questions, in the order of `cache.lookup`. What a rung would need and the record
does not have leaves that rung open: it neither refuses nor passes. Not asked is whether the entry would be found again:
entries expire and are evicted, and a namespace ends with a model or a template.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import select

from cache.certificate import evidence
from cache.certificate.negatives import known, refused
from cache.decision import Asked, Reach, Reason
from cache.entry import Dependencies, Entry
from cache.guards import Text
from cache.ladder import Ladder
from cache.openings import opening
from cache.policy import CachePolicy
from cache.rungs import cacheability, freshness, guards, nearest, negatives, score, standing, verifier, window
from cache.standing import Standing
from cache.verdict import Verdict
from tenancy.domain import PermissionDomain
from tenancy.schema import documents
from tenancy.tenant import ReadView
from tenancy.types import among

Kind = Literal["exact", "semantic"]

DOCUMENT_GONE: Final = "a document is gone"
DOCUMENT_CHANGED: Final = "a document changed"
UNREADABLE: Final = "a document is not readable by the asker now"
ASKER_GONE: Final = "the asker is no user any more"
RIGHTS_UNKNOWN: Final = "the groups of a token are on no record"

_VERSIONS: Final = select(documents.c.id, documents.c.version).where(among(documents.c.id, "wanted"))
_OPEN: Final = frozenset({Reason.VERIFIER_AWAY, Reason.UNASKED})
"""What is no verdict on the pair: the verifier could not say."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rung says today; `unknown` where the record does not have what it needs. `reason` quotes no text."""

    rung: str
    verdict: Literal["pass", "refuse", "unknown"]
    reason: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Past:
    """A hit on record. `question` is what was asked, `cached` what the stored answer was made for, `sources` what it
    rests on by today's ids (a document that is gone has none and is -1); None: not to be had.

    `age` is the entry's in seconds when it was served. `author` is the id of the user whose question made the entry,
    None where there is no such user any more; `own` says whether that was the asker. `rights_known` is False where
    rights came with a token, whose groups are on no record.
    """

    kind: Kind
    entry: str
    namespace: str
    question: str | None
    cached: str | None
    sources: Dependencies | None
    age: float
    author: str | None
    own: bool
    rights_known: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Both questions as today's embedding model has them: their cosine, lengths in tokens, and its window."""

    similarity: float
    tokens: int
    cached_tokens: int
    window: int


def of_question(past: Past, asked: Asked | None) -> Iterator[Finding]:
    """What the question alone decides. `asked` is None where its text is missing."""
    name = cacheability.NAME
    if asked is None:
        yield Finding(name, "unknown", "question missing")
        return
    if past.kind == "semantic":
        yield _finding(cacheability.check_semantic(asked.reach, asked.why))
        return
    if asked.reach is Reach.NONE and _differs_in_conversation(asked):
        yield Finding(name, "unknown", "it may have been a follow-up")
    elif asked.reach is Reach.PRIVATE and not past.own:
        yield Finding(name, "refuse", f"{asked.why}, and another user's answer")
    else:
        yield _finding(cacheability.check(asked.reach, asked.why))


def of_entry(
    domain: PermissionDomain | None, view: ReadView, past: Past, policy: CachePolicy, template: str
) -> Iterator[Finding]:
    """What the entry, its documents and the asker's rights decide. `domain` is None for a user who is gone."""
    if refused(view, past.entry):
        yield Finding(negatives.NAME, "refuse", Reason.KNOWN_NEGATIVE)
    elif past.kind == "exact":
        yield Finding(negatives.NAME, "pass")
    if domain is None:
        yield Finding(freshness.NAME, "refuse", ASKER_GONE)
    elif past.sources is None:
        yield Finding(freshness.NAME, "unknown", "sources missing")
    elif past.author is None:
        yield Finding(freshness.NAME, "refuse", Reason.ASKER_GONE)
    elif past.rights_known:
        yield _fresh(domain, view, past, past.sources, policy, template)
    else:
        changed = _changed(view, past.sources)
        yield Finding(freshness.NAME, "refuse" if changed else "unknown", changed or RIGHTS_UNKNOWN)


def of_pair(
    view: ReadView, ladder: Ladder, policy: CachePolicy, past: Past, asked: Asked | None, pair: Pair | None
) -> Iterator[Finding]:
    """What decides about a semantic hit beyond that. `pair` is None where one of the texts is missing."""
    if asked is None:
        yield Finding(standing.NAME, "unknown", "question missing")
    else:
        stands = _standing(view, ladder, policy, past, asked)
        yield _finding(standing.check(stands))
    if asked is None or past.cached is None or pair is None:
        for name in (window.NAME, nearest.NAME, guards.NAME, negatives.NAME, score.NAME):
            yield Finding(name, "unknown", "question missing" if past.question is None else "origin missing")
        return
    longest = max(pair.tokens, pair.cached_tokens)
    yield _finding(window.check(longest, pair.window))
    yield _finding(nearest.check(pair.similarity, stands))
    guarded, cached = guards.check(asked.text, past.cached, verified=ladder.verifier is not None)
    reason = guarded.reason if guarded.name == guards.NAME else f"{guarded.name}: {guarded.reason}"
    yield Finding(guards.NAME, "pass", "") if guarded.passed else Finding(guards.NAME, "refuse", reason)
    negative = known(view, asked.question, past.cached)
    yield Finding(negatives.NAME, "refuse" if negative else "pass", Reason.KNOWN_NEGATIVE if negative else "")
    yield from _weighed(ladder, asked, past, cached, pair, guarded)


def _weighed(
    ladder: Ladder, asked: Asked, past: Past, cached: Text | None, pair: Pair, guarded: Verdict
) -> Iterator[Finding]:
    """Score, and the verifier where there is one."""
    scored = score.check(ladder, asked, cached, pair.similarity, guarded.near)
    yield _finding(scored)
    if ladder.verifier is None:
        return
    entry = _entry(past, (), 0.0, 0.0, (0, 0), asked.template)
    verdict = verifier.check(ladder, asked, entry, scored, verifier.Turns(1))
    if verdict.reason in _OPEN:
        yield Finding(verifier.NAME, "unknown", verdict.reason)
    else:
        yield _finding(verdict)


def _standing(view: ReadView, ladder: Ladder, policy: CachePolicy, past: Past, asked: Asked) -> Standing:
    """As `cache.rungs.standing.of`, in the namespace of the hit."""
    allowed = opening(view, asked.template)
    version = ladder.version(asked, None if allowed is None else allowed.threshold, policy)
    return evidence.standing(
        view, asked.template, version, namespace=past.namespace, alpha=asked.policy.alpha, opening=allowed
    )


def _fresh(
    domain: PermissionDomain, view: ReadView, past: Past, sources: Dependencies, policy: CachePolicy, template: str
) -> Finding:
    """Today's rung on an entry as old as it was then.

    Which state the tenant was in between is on no record: of the entry's epochs it says that they did not move.
    """
    epochs = (view.epochs.acl, view.epochs.corpus)
    entry = _entry(past, sources, -past.age, policy.lifetime(template) - past.age, epochs, template)
    verdict = freshness.check(domain, view, entry, policy, 0.0)
    if verdict.reason != Reason.CHANGED:
        return _finding(verdict)
    return Finding(freshness.NAME, "refuse", _changed(view, sources) or UNREADABLE)


def _changed(view: ReadView, sources: Dependencies) -> str | None:
    """Which of the three things that `Reason.CHANGED` is, None where every document is still as it was."""
    rows = view.execute(_VERSIONS, {"wanted": {document for document, _ in sources}})
    now = {row.id: row.version for row in rows}
    if any(document not in now for document, _ in sources):
        return DOCUMENT_GONE
    return DOCUMENT_CHANGED if any(now[document] != version for document, version in sources) else None


def _entry(
    past: Past, sources: Dependencies, created: float, expires: float, epochs: tuple[int, int], template: str
) -> Entry:
    """The entry as far as the rungs that are asked here look at it."""
    return Entry(
        id=past.entry,
        namespace=b"",
        exact=b"",
        template=template,
        question=past.cached or "",
        vector=b"",
        payload=b"",
        dependencies=sources,
        acl_epoch=epochs[0],
        corpus_epoch=epochs[1],
        created=created,
        expires=expires,
        origin_seq=0,
        origin_user=past.author or "",
    )


def _differs_in_conversation(asked: Asked) -> bool:
    reach, _ = cacheability.judge(asked.text, follow_up=True, policy=asked.policy)
    return reach is not Reach.NONE


def _finding(verdict: Verdict) -> Finding:
    return Finding(verdict.name, *_said(verdict))


def _said(verdict: Verdict) -> tuple[Literal["pass", "refuse"], str, float | None]:
    return "pass" if verdict.passed else "refuse", str(verdict.reason), verdict.value
