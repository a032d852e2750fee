"""Why a remembered answer was served: who asked what made it, everyone it was served to, on which evidence."""

from __future__ import annotations

from typing import Final

from audit.filters import Filters
from audit.log import AuditLog
from audit.query import payloads_of
from audit.record import CacheUse, decode
from audit.reports.frame import Asked, Reading, Report, Row, Table, reading, require_name
from audit.reports.subject import documents_of
from audit.reports.uses import Use, paired
from tenancy.errors import InvalidInput, NotFound

KIND: Final = "cache-entry"

_ORIGIN: Final = (
    "seq", "ts", "user", "actor", "outcome", "question", "answer", "erased", "documents", "model", "revision",
    "template", "domain", "acl_epoch", "corpus_epoch", "request",
)  # fmt: skip
_USES: Final = (
    "seq", "ts", "user", "actor", "outcome", "released", "status", "kind", "why", "question", "erased", "origin_own",
    "similarity", "threshold", "score", "guards", "rules", "wrong", "judged", "upper", "certificate",
    "versions_checked", "readable_checked", "age_s", "namespace", "domain", "request",
)  # fmt: skip


def cache_entry_report(log: AuditLog, entry: str, asked: Asked, *, origin_seq: int | None = None) -> Report:
    """`origin` is the request whose answer was kept. `uses` are the requests for which the entry was served (status
    `hit`), and those for which it was looked at and turned away, with the reason (`why`) and the guards' verdicts.

    `wrong` of `judged` hits were found wrong and `upper` is the certificate's limit, as of each hit. The origin is
    known from a hit; without one it is `origin_seq`, if the caller knows it from the store.
    """
    with reading(log, KIND, require_name(entry, "entry"), asked) as found:
        wanted = [Filters(cache_entry=entry)]
        uses, after = found.uses(wanted, lambda event: event.cache is not None and event.cache.entry == entry)
        known = next((use.cache.origin_seq for use in uses if use.cache and use.cache.origin_seq is not None), None)
        origin = _origin(found, origin_seq if known is None else known)
        tables = {
            "origin": Table(_ORIGIN, () if origin is None else (origin,)),
            "uses": Table(_USES, tuple(_use(found, use, use.cache) for use in uses if use.cache is not None)),
        }
        return found.report(KIND, {"entry": entry}, tables, "uses", after)


def entry_of(log: AuditLog, seq: int) -> str:
    """The cache entry that a record is about. Raises `NotFound`, and `InvalidInput` for one that is about none."""
    log.flush()
    with log.database.reading() as connection:
        payload = payloads_of(connection, [seq] if 0 <= seq < 2**63 else []).get(seq)
    if payload is None:
        raise NotFound("no such audit event", item=str(seq)[:20])
    cache = decode(payload).cache if payload else None
    if cache is None or cache.entry is None:
        raise InvalidInput("this event is about no cache entry", item="entry", remedy="name a hit, or the entry itself")
    return cache.entry


def _origin(found: Reading, seq: int | None) -> Row | None:
    if seq is None or seq >= found.size:
        return None
    ((_, use),) = paired(found.connection, [seq], found.size, lambda _: False)
    if use is None:
        return None
    generation, policy = use.generation, use.policy
    return {
        **use.who(found.user(use)),
        **use.texts(found.texts, "question", "answer"),
        "documents": documents_of(use),
        "model": generation.model if generation else None,
        "revision": generation.revision if generation else None,
        "template": policy.template,
        "domain": policy.domain,
        "acl_epoch": policy.acl_epoch,
        "corpus_epoch": policy.corpus_epoch,
        "seq": seq,
    }


def _use(found: Reading, use: Use, cache: CacheUse) -> Row:
    bound, freshness = cache.bound, cache.freshness
    return {
        **use.who(found.user(use)),
        **use.texts(found.texts, "question"),
        "status": cache.status,
        "kind": cache.kind,
        "why": cache.reason or use.last.reason,
        "origin_own": cache.origin_actor_same,
        "similarity": cache.similarity,
        "threshold": cache.threshold,
        "score": cache.score,
        "guards": "; ".join(" ".join(filter(None, (guard.name, guard.verdict, guard.reason))) for guard in cache.guards)
        or None,
        "rules": cache.rules,
        "wrong": bound.k if bound else None,
        "judged": bound.n if bound else None,
        "upper": bound.upper if bound else None,
        "certificate": bound.state if bound else None,
        "versions_checked": freshness.versions_checked if freshness else None,
        "readable_checked": freshness.readable_checked if freshness else None,
        "age_s": cache.age_s,
        "namespace": cache.namespace,
        "domain": use.policy.domain,
    }
