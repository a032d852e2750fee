"""What one person was shown and asked, and what else was done under their name."""

from __future__ import annotations

from typing import Final

from audit.filters import Filters
from audit.log import AuditLog
from audit.reports.frame import Asked, Reading, Report, Row, Table, reading, require_name
from audit.reports.uses import Use
from audit.tables import events

KIND: Final = "subject"

_USES: Final = (
    "seq", "ts", "action", "outcome", "reason", "released", "question", "filter", "answer", "erased", "cache",
    "origin_seq", "origin_own", "documents", "withheld", "model", "request",
)  # fmt: skip


def subject_report(log: AuditLog, actor: str, asked: Asked) -> Report:
    """All that is on record under the reference `actor`, newest first (`uses`), and counted for the window (`actions`).

    `documents` names each with the furthest stage that it reached. Where a remembered answer was shown, `origin_seq` is
    the intent of the request that it was made for, and `origin_own` whether that was this person's own. `erased` names
    texts whose key was destroyed, or that cannot be read.
    """
    with reading(log, KIND, require_name(actor, "actor"), asked) as found:
        uses, after = found.uses([Filters(actor=actor)], lambda event: event.actor.ref == actor)
        counts = found.counts(events.c.actor == actor)
        tables = {"actions": counts, "uses": Table(_USES, tuple(_use(found, use) for use in uses))}
        name = found.user(uses[0]) if uses else None
        return found.report(KIND, {"actor": actor, "user": name}, tables, "uses", after)


def documents_of(use: Use) -> str | None:
    """Each document of a request with its stage, as one text."""
    stages = sorted(use.stages().items())
    return "; ".join(f"{name} ({stage.replace('_', ' ')})" for name, stage in stages) or None


def cache_of(use: Use) -> str | None:
    """How the cache decided, as one text."""
    cache = use.cache
    if cache is None:
        return None
    certificate = cache.bound.state if cache.bound else None
    return " ".join(filter(None, (cache.status, cache.kind, cache.reason, certificate)))


def _use(found: Reading, use: Use) -> Row:
    cache, generation = use.cache, use.generation
    hit = cache is not None and cache.status == "hit"
    return {
        **use.who(found.user(use)),
        **use.texts(found.texts, "question", "filter", "answer"),
        "cache": cache_of(use),
        "origin_seq": cache.origin_seq if hit and cache is not None else None,
        "origin_own": cache.origin_actor_same if hit and cache is not None else None,
        "documents": documents_of(use),
        "withheld": use.last.withheld or None,
        "model": generation.model if generation else None,
    }
